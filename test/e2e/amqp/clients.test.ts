// Other people's clients, as Debian and npm ship them, unmodified, against a served broker. A client that is not on
// this machine is reported as skipped, by name.
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { AMQPClient } from "@cloudamqp/amqp-client";
import type { Message } from "amqplib";
import { Connection } from "rabbitmq-client";
import { afterAll, beforeAll, describe, expect, it, type TestContext } from "vitest";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";

/** rascal ships no types. */
interface RascalEvents {
  on(event: string, listener: (...args: never[]) => void): RascalEvents;
}
interface Rascal {
  withTestConfig(config: object): object;
  BrokerAsPromised: {
    create(config: object): Promise<{
      publish(name: string, body: unknown): Promise<RascalEvents>;
      subscribe(name: string): Promise<RascalEvents>;
      shutdown(): Promise<void>;
    }>;
  };
}
type Settle = (error?: Error, recovery?: object) => void;
const rascal = createRequire(import.meta.url)("rascal") as Rascal;
const run = promisify(execFile);
const programs = join(import.meta.dirname, "clients");
const folder = mkdtempSync(join(tmpdir(), "dlo-clients-"));
let server: StartedBroker;

beforeAll(async () => {
  server = await startBroker();
});
afterAll(async () => {
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

async function has(command: string, ...args: string[]): Promise<boolean> {
  return run(command, args).then(
    () => true,
    () => false,
  );
}

/** Runs a client's program; it prints `done` when all its checks held. */
async function succeeds(
  command: string,
  args: string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv } = {},
) {
  const output = await run(command, args, { timeout: 150_000, maxBuffer: 64 << 20, ...options }).catch(
    (error) => error,
  );
  expect(`${output.stdout}\n${output.code ? output.stderr : ""}`).not.toMatch(/^FAILED|Exception|Error/m);
  return String(output.stdout);
}

const PYTHON = "/usr/bin/python3";
const JARS = "/usr/share/java/amqp-client.jar:/usr/share/java/slf4j-api.jar";
const GOPATH = "/usr/share/gocode";
const GO_CLIENT = "src/github.com/rabbitmq/amqp091-go";
const need = (there: boolean, context: TestContext, what: string) => {
  if (!there) context.skip(`${what} is not installed`);
};

describe("clients from Debian", () => {
  it("Java: the calls of the textbook and of a Spring topology, reject, nack, TTL, length", async (context) => {
    need(
      existsSync("/usr/share/java/amqp-client.jar") && (await has("javac", "-version")),
      context,
      "librabbitmq-client-java",
    );
    await run("javac", ["-cp", JARS, "-d", folder, join(programs, "DeadLetters.java")]);
    expect(await succeeds("java", ["-cp", `${JARS}:${folder}`, "DeadLetters", server.url])).toContain("done");
  });

  it("pika", async (context) => {
    need(await has(PYTHON, "-c", "import pika"), context, "python3-pika");
    expect(await succeeds(PYTHON, [join(programs, "dead_letters.py"), server.url])).toContain("done");
  });

  it("bunny", async (context) => {
    need(await has("ruby", "-e", "require 'bunny'"), context, "ruby-bunny");
    expect(await succeeds("ruby", [join(programs, "dead_letters.rb"), server.url])).toContain("done");
  });

  it("php-amqplib", async (context) => {
    need(await has("php", "-r", "require 'PhpAmqpLib/autoload.php';"), context, "php-amqplib");
    expect(
      await succeeds("php", [join(programs, "dead_letters.php"), server.host, String(server.port)]),
    ).toContain("done");
  });

  it("amqp-tools", async (context) => {
    need(await has("amqp-publish", "--help"), context, "amqp-tools");
    expect(await succeeds("sh", [join(programs, "amqp-tools.sh"), server.url])).toContain("done");
  });

  it("Go amqp091: its own tests", async (context) => {
    need(
      existsSync(join(GOPATH, GO_CLIENT)) && (await has("go", "version")),
      context,
      "golang-github-rabbitmq-amqp091-go-dev",
    );
    const home = join(folder, "go");
    cpSync(join(GOPATH, GO_CLIENT), join(home, GO_CLIENT), { recursive: true, dereference: true });
    const env = {
      ...process.env,
      GO111MODULE: "off",
      GOPATH: `${home}:${GOPATH}`,
      GOCACHE: join(tmpdir(), "dlo-go-cache"),
      AMQP_URL: `${server.url}/`,
    };
    const output = await run("go", ["test", "-count=1", "-tags", "integration", "-v", "."], {
      cwd: join(home, GO_CLIENT),
      env,
      maxBuffer: 64 << 20,
      timeout: 170_000,
    }).catch((error) => error);
    const failed = String(output.stdout).match(/^\s*--- FAIL.*$/gm);
    expect(failed, String(output.stderr)).toBeNull();
    expect(String(output.stdout).match(/^\s*--- PASS/gm)?.length).toBeGreaterThan(100);
  });

  it("rabbitmqadmin: list, declare, publish, get", async (context) => {
    need(existsSync("/usr/bin/rabbitmqadmin"), context, "rabbitmqadmin of rabbitmq-server");
    await using managed = await startBroker({ management: true });
    const { hostname, port } = new URL(managed.managementUrl as string);
    const admin = (...args: string[]) =>
      run(PYTHON, [
        "/usr/bin/rabbitmqadmin",
        "-H",
        hostname,
        "-P",
        port,
        "-u",
        "guest",
        "-p",
        "guest",
        ...args,
      ]);
    await admin("declare", "queue", "name=adm.q", "durable=true");
    await admin("publish", "exchange=amq.default", "routing_key=adm.q", "payload=hello");
    expect((await admin("list", "queues", "name", "messages")).stdout).toMatch(/adm\.q\s*\|\s*1/);
    expect((await admin("get", "queue=adm.q", "ackmode=ack_requeue_false")).stdout).toContain("hello");
  });
});

describe("clients from npm", () => {
  it("rabbitmq-client: publisher with confirms, consumer, dead letter", async () => {
    const rabbit = new Connection(server.url);
    try {
      const args = { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "rc.dead" };
      await rabbit.queueDeclare({ queue: "rc.dead", durable: true });
      await rabbit.queueDeclare({ queue: "rc.work", durable: true, arguments: args });
      const publisher = rabbit.createPublisher({ confirm: true });
      await publisher.send({ routingKey: "rc.work", durable: true, headers: { a: 1 } }, { n: 17 });
      const body = await new Promise((resolve) => {
        const consumer = rabbit.createConsumer(
          { queue: "rc.work", queueOptions: { passive: true } },
          async (message) => {
            setImmediate(() => void consumer.close().then(() => resolve(message.body)));
            return 2; // drop: reject without requeue
          },
        );
      });
      expect(body).toEqual({ n: 17 });
      await expect
        .poll(async () => (await rabbit.queueDeclare({ queue: "rc.dead", passive: true })).messageCount)
        .toBe(1);
      const dead = await rabbit.basicGet({ queue: "rc.dead", noAck: true });
      expect(dead?.headers?.["x-death"]?.[0]).toMatchObject({ reason: "rejected", queue: "rc.work" });
      await publisher.close();
    } finally {
      await rabbit.close();
    }
  });

  it("@cloudamqp/amqp-client: confirms, consume, nack, return", async () => {
    const connection = await new AMQPClient(server.url).connect();
    const channel = await connection.channel();
    await channel.confirmSelect();
    await channel.queueDeclare("ca.dead", { durable: true });
    await channel.queueDeclare(
      "ca.work",
      { durable: true },
      { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ca.dead" },
    );
    await channel.basicPublish("", "ca.work", "hello", { deliveryMode: 2 });
    const message = await channel.basicGet("ca.work", { noAck: false });
    expect(message?.bodyString()).toBe("hello");
    if (message) await message.nack(false);
    await expect
      .poll(async () => (await channel.queueDeclare("ca.dead", { passive: true })).messageCount)
      .toBe(1);
    await connection.close();
  });

  it("rascal: publication with confirms, subscription, nack to the dead letters", async () => {
    const config = rascal.withTestConfig({
      vhosts: {
        "/": {
          connection: { url: server.url, management: { url: server.url } },
          namespace: false,
          exchanges: ["ra.ex", "ra.dlx"],
          queues: {
            "ra.work": { options: { arguments: { "x-dead-letter-exchange": "ra.dlx" } } },
            "ra.dead": {},
          },
          bindings: {
            work: { source: "ra.ex", destination: "ra.work" },
            dead: { source: "ra.dlx", destination: "ra.dead" },
          },
          publications: { out: { exchange: "ra.ex", routingKey: "k", confirm: true } },
          subscriptions: { work: { queue: "ra.work" }, dead: { queue: "ra.dead" } },
        },
      },
    });
    const broker = await rascal.BrokerAsPromised.create(config);
    const seen: unknown[] = [];
    const work = await broker.subscribe("work");
    work.on("message", (_: unknown, content: unknown, ackOrNack: Settle) => {
      seen.push(content);
      ackOrNack(new Error("no good"), { strategy: "nack" });
    });
    const dead = new Promise((resolve) => {
      void broker.subscribe("dead").then((subscription) =>
        subscription.on("message", (message: Message, _: unknown, ackOrNack: Settle) => {
          ackOrNack();
          resolve(message.properties.headers?.["x-death"]?.[0]);
        }),
      );
    });
    const publication = await broker.publish("out", { n: 1 });
    await new Promise((resolve, reject) =>
      publication.on("success", resolve as never).on("error", reject as never),
    );
    expect(await dead).toMatchObject({ reason: "rejected", exchange: "ra.ex" });
    expect(seen).toEqual([{ n: 1 }]);
    await broker.shutdown();
  });

  it("amqplib 2.2.0: its own tests", async (context) => {
    const where = join(folder, "amqplib");
    const fetched = await run("npm", ["pack", "amqplib@2.2.0", "--pack-destination", folder], {
      timeout: 60_000,
    }).then(
      () => true,
      () => false,
    );
    if (!fetched) context.skip("amqplib 2.2.0 cannot be fetched from npm here");
    await run("tar", [
      "-xzf",
      join(folder, "amqplib-2.2.0.tgz"),
      "-C",
      folder,
      "--one-top-level=amqplib",
      "--strip-components=1",
    ]);
    // Beside the package, not in it: npm leaves out what the package itself calls a development dependency.
    const claire = [
      "install",
      "--no-save",
      "--no-audit",
      "--no-fund",
      "--ignore-scripts",
      "--prefix",
      folder,
      "claire@0.4.1",
    ];
    await run("npm", claire, { cwd: folder, timeout: 90_000 });
    // The tests ask for the default port; only that number is changed, and only in this copy.
    const connect = join(where, "lib/connect.js");
    writeFileSync(connect, readFileSync(connect, "utf8").replace(/\b5672\b/g, String(server.port)));
    await using six = await startBroker({ host: "::1", port: server.port, broker: server.broker });
    const output = await run(process.execPath, ["--test", "--test-timeout=60000"], {
      cwd: where,
      env: { ...process.env, URL: server.url, NODE_OPTIONS: "" },
      maxBuffer: 64 << 20,
      timeout: 170_000,
    }).catch((error) => error);
    const text = String(output.stdout);
    expect(text.match(/^\s*not ok.*$/gm), six.url).toBeNull();
    expect(Number(/^# pass (\d+)/m.exec(text)?.[1])).toBeGreaterThan(300);
  });
});
