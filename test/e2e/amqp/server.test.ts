import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import amqplib from "amqplib";
import { afterEach, describe, expect, it } from "vitest";
import { HeaderTable } from "../../../src/broker/index.ts";
import { hashPassword, type StartedBroker, type StartOptions, startBroker } from "../../../src/dev/index.ts";
import * as c from "../../support/amqp-methods.ts";
import { bytesOf, publish, RawClient } from "../../support/amqp-wire.ts";

let server: StartedBroker | undefined;
const folders: string[] = [];
afterEach(async () => {
  await server?.close();
  server = undefined;
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});
const start = async (options: StartOptions = {}): Promise<StartedBroker> => {
  server = await startBroker(options);
  return server;
};
const folder = (): string => {
  folders.push(mkdtempSync(join(tmpdir(), "dlo-server-")));
  return folders.at(-1) as string;
};

describe("a started broker", () => {
  it("is ready at once, and gone when it is let go", async () => {
    let url = "";
    {
      await using started = await startBroker({ port: 0 });
      url = started.url;
      await (await amqplib.connect(url)).close();
    }
    await expect(amqplib.connect(url)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  it("tells its clients when it closes, and keeps what is durable", async () => {
    const data = folder();
    const first = await startBroker({ data });
    const connection = await amqplib.connect(first.url);
    const told = new Promise<Error>((resolve) => connection.once("close", resolve));
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue("kept", { durable: true });
    channel.sendToQueue("kept", Buffer.from("x"), { persistent: true });
    await channel.waitForConfirms();
    await first.close();
    expect((await told).message).toContain("320");
    const again = await amqplib.connect((await start({ data })).url);
    expect((await (await again.createChannel()).checkQueue("kept")).messageCount).toBe(1);
    await again.close();
  });

  it("says who has its port", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await new Promise((ready) => other.once("listening", ready));
    const { port } = other.address() as { port: number };
    const error = await startBroker({ port }).catch((e) => e);
    other.close();
    expect(error).toMatchObject({ name: "DloError", code: "PORT_IN_USE" });
    if (process.platform === "linux") expect(error.message).toContain(`pid ${process.pid} (`);
  });

  it("serves TLS", async (context) => {
    const dir = folder();
    const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
    try {
      const make = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        cert,
        "-days",
        "2",
      ];
      execFileSync("openssl", [...make, "-subj", "/CN=localhost"], { stdio: "ignore" });
    } catch {
      context.skip("openssl is not installed");
    }
    const { url } = await start({ tls: { key: readFileSync(key), cert: readFileSync(cert) } });
    expect(url).toMatch(/^amqps:/);
    const connection = await amqplib.connect(url.replace("127.0.0.1", "localhost"), {
      ca: [readFileSync(cert)],
    });
    await connection.close();
  });
});

describe("users", () => {
  it("keep guest, and only guest, on this machine", async () => {
    await expect(startBroker({ host: "0.0.0.0" })).rejects.toMatchObject({
      code: "REFUSED",
      message: expect.stringContaining("guest as the only user"),
    });
    const users = [{ name: "app", password: "s3cret" }];
    const { port } = await start({ host: "0.0.0.0", users });
    await (await amqplib.connect(`amqp://app:s3cret@127.0.0.1:${port}`)).close();
    await expect(amqplib.connect(`amqp://guest:guest@127.0.0.1:${port}`)).rejects.toThrow("ACCESS_REFUSED");
  });

  it("log in against a hash, with the right password only", async () => {
    const { port } = await start({ users: [{ name: "app", passwordHash: await hashPassword("s3cret") }] });
    for (let i = 0; i < 2; i++) await (await amqplib.connect(`amqp://app:s3cret@127.0.0.1:${port}`)).close();
    await expect(amqplib.connect(`amqp://app:wrong@127.0.0.1:${port}`)).rejects.toThrow("403");
    await expect(amqplib.connect(`amqp://nobody:s3cret@127.0.0.1:${port}`)).rejects.toThrow("403");
  });

  it("do what their patterns permit", async () => {
    const permissions = {
      "/": { configure: "^mine\\.", write: "^(mine\\.|amq\\.default)", read: "^(mine\\.|amq\\.topic)" },
    };
    const { port } = await start({ users: [{ name: "app", password: "p", permissions }] });
    const connection = await amqplib.connect(`amqp://app:p@127.0.0.1:${port}`);
    const refused = async (work: (ch: amqplib.Channel) => Promise<unknown>) => {
      const channel = await connection.createChannel();
      channel.on("error", () => {});
      return work(channel).then(
        () => "allowed",
        (error: Error) => error.message,
      );
    };
    const ok = (work: (ch: amqplib.Channel) => Promise<unknown>) =>
      expect(refused(work)).resolves.toBe("allowed");
    await ok((ch) => ch.assertQueue("mine.q"));
    await ok((ch) => ch.bindQueue("mine.q", "amq.topic", "#"));
    await ok((ch) => ch.get("mine.q"));
    expect(await refused((ch) => ch.assertQueue("yours"))).toContain(
      "ACCESS_REFUSED - configure access to queue 'yours' in vhost '/' refused for user 'app'",
    );
    expect(await refused((ch) => ch.get("yours"))).toContain("read access to queue 'yours'");
    expect(await refused((ch) => ch.bindQueue("mine.q", "amq.fanout", ""))).toContain(
      "read access to exchange 'amq.fanout'",
    );
    expect(await refused((ch) => ch.assertQueue("mine.d", { deadLetterExchange: "amq.direct" }))).toContain(
      "write access to exchange 'amq.direct'",
    );
    await connection.close();
    await expect(amqplib.connect(`amqp://app:p@127.0.0.1:${port}/other`)).rejects.toThrow("ConnectionClose");
  });
});

describe("a full disk", () => {
  it("holds publishers and says so at once, takes new connections, and confirms once there is room", async () => {
    const { broker, port } = await start({ file: join(folder(), "dlo.db") });
    const { db } = (broker.host as unknown as { file: { db: { exec(sql: string): void } } }).file;
    const client = await RawClient.open(port);
    client.send(bytesOf((to) => c.writeChannelOpen(to, 1)));
    client.send(bytesOf((to) => c.writeConfirmSelect(to, 1, false)));
    const table = HeaderTable.empty;
    client.send(bytesOf((to) => c.writeQueueDeclare(to, 1, "q", false, true, false, false, false, table)));
    client.send(publish(1, "", "q", "first", { deliveryMode: 2 }));
    await client.frames.next("basic.ack");
    db.exec("PRAGMA max_page_count = 60");
    for (let i = 0; i < 400; i++) client.send(publish(1, "", "q", Buffer.alloc(5000), { deliveryMode: 2 }));
    expect((await client.frames.next("connection.blocked", 0, 20_000)).args).toEqual({
      reason: "low on disk",
    });
    const consumer = await amqplib.connect(`amqp://guest:guest@127.0.0.1:${port}`);
    db.exec("PRAGMA max_page_count = 100000");
    await client.frames.next("connection.unblocked", 0, 20_000);
    const confirmed = () =>
      client.frames.seen.findLast((one) => one.what === "basic.ack")?.args["deliveryTag"];
    while (confirmed() !== 401) await client.frames.next("basic.ack", client.frames.seen.length, 20_000);
    expect(client.frames.names().filter((name) => name.endsWith(".close") || name === "basic.nack")).toEqual(
      [],
    );
    const channel = await consumer.createChannel();
    expect((await channel.checkQueue("q")).messageCount).toBe(401);
    await consumer.close();
    client.socket.destroy();
  });
});

describe("limits", () => {
  it("refuse more connections than allowed, with a reason", async () => {
    const { url } = await start({ limits: { connections: 1 } });
    const one = await amqplib.connect(url);
    await expect(amqplib.connect(url)).rejects.toThrow("ConnectionClose");
    await one.close();
  });

  it("hold publishers while memory is short, and tell them", async () => {
    const { port } = await start({ limits: { memoryBytes: 1 } });
    await using client = await RawClient.open(port);
    await client.channel();
    client.send(publish(1, "", "q", "x"));
    expect((await client.frames.next("connection.blocked", 0, 20_000)).args).toEqual({
      reason: "low on memory",
    });
  });

  it("cut a stranger, and one who never finishes the handshake, and disturb nobody else", async () => {
    const { port, url } = await start({ limits: { handshakeMs: 300 } });
    const other = await amqplib.connect(url);
    const web = await RawClient.connect(port);
    web.send(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
    await web.frames.end();
    const silent = await RawClient.connect(port);
    await silent.frames.end();
    await (await other.createChannel()).close();
    await other.close();
  });

  it("do not let a consumer that never reads fill the memory", async () => {
    const { port, url } = await start();
    const connection = await amqplib.connect(url);
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue("big", { durable: false });
    const body = Buffer.alloc(100_000);
    for (let i = 0; i < 400; i++) channel.sendToQueue("big", body);
    await channel.waitForConfirms();
    await using idle = await RawClient.open(port);
    await idle.channel();
    idle.socket.pause();
    idle.write((to) => c.writeBasicConsume(to, 1, "big", "t", false, false, false, true, HeaderTable.empty));
    // Unacked is what was pushed at the reader: some, and far from all 40 MB.
    await expect
      .poll(async () => (await channel.checkQueue("big")).messageCount, { timeout: 5000 })
      .toBeLessThan(400);
    expect((await channel.checkQueue("big")).messageCount).toBeGreaterThan(200);
    await connection.close();
  });
});

it("hands headers on byte for byte, from publisher to dead letter", async () => {
  const { port } = await start();
  await using client = await RawClient.open(port);
  await client.channel();
  const table = (object: Record<string, unknown>) => HeaderTable.fromObject(object);
  const declare = (name: string, args: HeaderTable) =>
    client.call(
      (to) => c.writeQueueDeclare(to, 1, name, false, false, false, false, false, args),
      "queue.declare_ok",
    );
  await declare("dead", HeaderTable.empty);
  await declare("work", table({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead" }));
  // int64 1, a decimal, float32, a duplicate, an integer-like key after a word, __proto__, bytes that are no UTF-8.
  const odd = Buffer.from(
    "016c6c0000000000000001" +
      "01644402000004d2" +
      "016666" +
      "3fc00000" +
      "0161" +
      "62ff" +
      "0161" +
      "42ff" +
      "0131" +
      "5400000000ffffffff" +
      "095f5f70726f746f5f5f" +
      "5300000003ff41c3" +
      "02fffe" +
      "56",
    "hex",
  );
  const headers = HeaderTable.fromBytes(new Uint8Array(odd));
  client.send(publish(1, "", "work", "x", { headers, timestamp: 2n ** 63n + 1n, messageId: "m" }));
  const got = await client.call((to) => c.writeBasicGet(to, 1, "work", false), "basic.get_ok");
  const [first] = client.frames.seen
    .slice(client.frames.seen.indexOf(got))
    .filter((f) => f.what === "header");
  const hex = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString("hex");
  expect(hex(first?.payload)).toContain(odd.toString("hex"));
  client.write((to) => c.writeBasicReject(to, 1, 1, false));
  const from = client.frames.seen.length;
  const dead = await client.call((to) => c.writeBasicGet(to, 1, "dead", true), "basic.get_ok");
  await client.frames.next("body", client.frames.seen.indexOf(dead));
  const header = client.frames.seen.slice(from).find((f) => f.what === "header");
  expect(hex(header?.payload)).toContain(odd.toString("hex"));
  expect(hex(header?.payload)).toContain("8000000000000001");
  expect(hex(header?.payload)).toContain(Buffer.from("x-death").toString("hex"));
});
