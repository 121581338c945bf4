import { setTimeout as sleep } from "node:timers/promises";
import amqplib, { type Channel, type ConsumeMessage } from "amqplib";
import { expect, it, onTestFinished } from "vitest";
import { type StartOptions, startBroker } from "../../../src/dev/index.ts";

async function served(options: StartOptions) {
  const server = await startBroker(options);
  onTestFinished(() => server.close());
  return server;
}

async function opened(url: string) {
  const connection = await amqplib.connect(url);
  connection.on("error", () => {});
  onTestFinished(() => connection.close().catch(() => {}));
  return connection;
}

async function until(what: () => boolean, ms = 20_000): Promise<void> {
  for (const end = Date.now() + ms; Date.now() < end && !what(); ) await sleep(20);
}

it("a late ack closes its channel with 406 and gives back what it held; another channel goes on (case F1)", async () => {
  const lines: [string, unknown][] = [];
  const note = (text: string, fields?: unknown): void => void lines.push([text, fields]);
  const logger = { info: note, warn: note, error: note };
  const server = await served({ limits: { ackTimeoutMs: 1_000 }, logger });
  const connection = await opened(server.url);
  const slow = await connection.createChannel();
  const other = await connection.createChannel();
  const told: { code?: number; message: string }[] = [];
  slow.on("error", (error) => told.push(error));
  other.on("error", (error) => told.push(error));
  await slow.assertQueue("jobs");
  await slow.assertQueue("quick");
  await slow.prefetch(1);
  for (const body of ["a", "b"]) slow.sendToQueue("jobs", Buffer.from(body));
  const quick: string[] = [];
  await other.consume("quick", (message) => {
    if (!message) return;
    quick.push(message.content.toString());
    other.ack(message);
  });
  const closed = new Promise<void>((done) => slow.once("close", done));
  const begunAt = Date.now();
  await slow.consume("jobs", () => {});
  await closed;
  expect(Date.now() - begunAt).toBeGreaterThanOrEqual(900);
  expect(told).toMatchObject([
    {
      code: 406,
      message: expect.stringMatching(
        /PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out\. Timeout value used: 1000 ms/,
      ),
    },
  ]);
  expect(lines).toContainEqual([
    "amqp: an ack is late: its channel is closed",
    { channel: 1, queue: "jobs", ackTimeoutMs: 1_000 },
  ]);
  // All is back, in order, told as redelivered; the connection and its other channel serve on.
  other.sendToQueue("quick", Buffer.from("still here"));
  await until(() => quick.length === 1);
  expect(quick).toEqual(["still here"]);
  const again = await connection.createChannel();
  const got = [await again.get("jobs"), await again.get("jobs")].map((one) =>
    one ? one.content.toString() : one,
  );
  expect(got).toEqual(["a", "b"]);
  again.ackAll();
  expect(told).toHaveLength(1);
});

it("two consumers that ack within 50 ms see no time-out under steady load (case F1)", async () => {
  const server = await served({ limits: { ackTimeoutMs: 1_500 } });
  const connection = await opened(server.url);
  const faults: unknown[] = [];
  let acked = 0;
  const consume = async (): Promise<Channel> => {
    const channel = await connection.createChannel();
    channel.on("error", (error) => faults.push(error));
    await channel.assertQueue("load");
    await channel.prefetch(2);
    await channel.consume("load", (message) => {
      if (!message) return;
      setTimeout(() => {
        channel.ack(message);
        acked++;
      }, 40 * Math.random());
    });
    return channel;
  };
  await consume();
  await consume();
  const publisher = await connection.createChannel();
  const end = Date.now() + 6_000;
  let sent = 0;
  while (Date.now() < end) {
    for (let n = 0; n < 4; n++) publisher.sendToQueue("load", Buffer.from(`${sent++}`));
    await sleep(50);
  }
  await until(() => acked === sent);
  expect(acked).toBe(sent);
  expect(faults).toEqual([]);
});

it("without a limit no ack is late", async () => {
  const server = await served({ limits: { ackTimeoutMs: 0 } });
  const connection = await opened(server.url);
  const channel = await connection.createChannel();
  await channel.assertQueue("jobs");
  channel.sendToQueue("jobs", Buffer.from("a"));
  let held: ConsumeMessage | null = null;
  await channel.consume("jobs", (message) => (held = message));
  await until(() => held !== null);
  await sleep(1_600);
  channel.ack(held as unknown as ConsumeMessage);
  expect((await channel.checkQueue("jobs")).messageCount).toBe(0);
});

it("after a polite goodbye nobody is suspect; after a lost connection each is tried alone", async () => {
  const server = await served({});
  const connection = await opened(server.url);
  const sender = await connection.createConfirmChannel();
  await sender.assertQueue("jobs", { arguments: { "x-dlo-isolate-suspects": true } });
  for (const body of ["a", "b", "c"]) sender.sendToQueue("jobs", Buffer.from(body));
  await sender.waitForConfirms();
  const take = async (count: number) => {
    const own = await amqplib.connect(server.url);
    own.on("error", () => {});
    const channel = await own.createChannel();
    await channel.prefetch(10);
    const got: ConsumeMessage[] = [];
    await channel.consume("jobs", (message) => void (message && got.push(message)));
    await until(() => got.length >= count);
    await sleep(200);
    return { own, channel, got };
  };
  const first = await take(3);
  expect(first.got).toHaveLength(3);
  await first.own.close();
  const second = await take(3);
  expect(second.got).toHaveLength(3);
  await second.channel.close();
  await second.own.close();
  const third = await take(3);
  expect(third.got).toHaveLength(3);
  (third.own as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
  const fourth = await take(1);
  expect(fourth.got).toHaveLength(1);
  await fourth.own.close();
});
