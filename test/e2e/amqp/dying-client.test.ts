// A client with a window whose process dies on one message, over the wire: who dies with it?
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import amqplib from "amqplib";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";

const CLIENT = join(import.meta.dirname, "dying-client.mjs");
const LIMIT = 2;
const PILLS = ["pill4", "pill30", "pill31"];

let folder: string;
let server: StartedBroker;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "dlo-dying-"));
  server = await startBroker({ file: join(folder, "dlo.db") });
});
afterEach(async () => {
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

const left = (name: string): number => {
  const queue = server.broker.host
    .vhost("/")
    ?.queues()
    .find(({ record }) => record.name === name);
  return (queue?.ready ?? 0) + (queue?.unacked ?? 0);
};

/** One life of the client; answers whether a message killed it. */
async function live(): Promise<boolean> {
  const env = {
    ...process.env,
    DYING_URL: server.url,
    DYING_PREFETCH: "20",
    DYING_NOTES: join(folder, "notes"),
  };
  const child = spawn(process.execPath, [CLIENT], { env, stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const ended = new Promise<NodeJS.Signals | null>((done) =>
    child.once("close", (_code, signal) => done(signal)),
  );
  const looks = setInterval(() => {
    if (left("work") === 0 && child.connected) {
      clearInterval(looks);
      child.send("nothing left");
    }
  }, 20);
  const signal = await ended;
  clearInterval(looks);
  return signal === "SIGKILL";
}

interface Result {
  readonly dead: readonly string[];
  readonly starts: ReadonlyMap<string, number>;
  readonly done: readonly string[];
}

/** Sixty messages, three of them pills, on a quorum queue with a delivery limit. */
async function run(more: Record<string, unknown>): Promise<Result> {
  const connection = await amqplib.connect(server.url);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue("dead");
  await channel.assertQueue("work", {
    arguments: {
      "x-queue-type": "quorum",
      "x-delivery-limit": LIMIT,
      "x-dead-letter-exchange": "",
      "x-dead-letter-routing-key": "dead",
      ...more,
    },
  });
  for (let i = 0; i < 60; i++) {
    const body = PILLS.includes(`pill${i}`) ? `pill${i}` : `m${i}`;
    channel.sendToQueue("work", Buffer.from(body), { persistent: true });
  }
  await channel.waitForConfirms();
  let lives = 0;
  while (await live()) expect(++lives, "lives of the client").toBeLessThan(40);
  const dead: string[] = [];
  for (let got = await channel.get("dead"); got; got = await channel.get("dead")) {
    dead.push(got.content.toString());
    channel.ack(got);
  }
  await connection.close();
  const starts = new Map<string, number>();
  const done: string[] = [];
  for (const line of readFileSync(join(folder, "notes"), "utf8").trim().split("\n")) {
    const [what, name] = line.split(" ") as [string, string];
    if (what === "done") done.push(name);
    else starts.set(name, (starts.get(name) ?? 0) + 1);
  }
  return { dead, starts, done };
}

it("with x-dlo-isolate-suspects only the pills die, and every innocent is handled once", async () => {
  const { dead, starts, done } = await run({ "x-dlo-isolate-suspects": true });
  expect(dead.toSorted()).toEqual(PILLS.toSorted());
  expect([done.length, new Set(done).size]).toEqual([57, 57]);
  for (const pill of PILLS) expect(starts.get(pill), pill).toBeLessThanOrEqual(LIMIT + 1);
});

it("without it RabbitMQ's counting holds, and innocents die with a pill", async () => {
  const { dead, starts } = await run({});
  expect(dead).toEqual(expect.arrayContaining(PILLS));
  expect(dead.filter((name) => name.startsWith("m")).length).toBeGreaterThanOrEqual(10);
  expect(starts.get("pill4")).toBe(LIMIT + 1);
});
