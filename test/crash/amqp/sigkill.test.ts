// SIGKILL of a broker that real clients are using, again and again on the same files: every confirmed persistent
// message is there after the restart or was handled before, once, and what was out with a consumer says so.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import amqplib, { type ChannelModel, type GetMessage } from "amqplib";
import { afterEach, beforeEach, expect, it } from "vitest";

const MAIN = join(import.meta.dirname, "../../../dist/cli/main.js");
let folder: string;
let child: ChildProcess;

/** `dlo dev` on the folder; answers its AMQP address. */
async function start(): Promise<string> {
  const args = [MAIN, "dev", "--amqp", "0", "--management", "0", "--data", folder];
  child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  let err = "";
  child.stderr?.on("data", (text) => {
    err += text;
  });
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`dlo dev ended with ${code}: ${err}`)));
    child.stdout?.on("data", (text) => {
      out += text;
      if (out.includes("ready\n")) resolve(/amqp:\S+/.exec(out)?.[0] as string);
    });
  });
}

async function kill(): Promise<void> {
  const gone = new Promise((resolve) => child.once("close", resolve));
  child.removeAllListeners("exit");
  child.kill("SIGKILL");
  await gone;
}

async function connect(url: string): Promise<ChannelModel> {
  const connection = await amqplib.connect(url);
  connection.on("error", () => {});
  return connection;
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-sigkill-"));
});
afterEach(() => {
  child.removeAllListeners("exit");
  child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

interface Book {
  readonly confirmed: Set<string>;
  /** Seen by a consumer, whether or not its ack arrived. */
  readonly seen: Set<string>;
}

/** Publishes and consumes until `count` more are confirmed and some were settled for good, then the broker is killed under it. */
async function load(url: string, book: Book, round: number, count: number): Promise<void> {
  const wanted = book.confirmed.size + count;
  let settled: () => void = () => {};
  const someSettled = new Promise<void>((resolve) => {
    settled = resolve;
  });
  const reached = new Promise<void>((resolve) => {
    const publisher = async (name: string) => {
      const channel = await (await connect(url)).createConfirmChannel();
      channel.on("error", () => {});
      await channel.assertQueue("dead", { durable: true });
      const options = { durable: true, deadLetterExchange: "", deadLetterRoutingKey: "dead" };
      await channel.assertQueue("work", options);
      for (let i = 0; i < 1000; i++) {
        const id = `${round}.${name}.${i}`;
        channel.sendToQueue("work", Buffer.alloc(200, id), { persistent: true, messageId: id }, (error) => {
          if (error === null) book.confirmed.add(id);
          if (book.confirmed.size >= wanted) resolve();
        });
        if (i % 50 === 49) await new Promise((next) => setImmediate(next));
      }
    };
    const consumer = async () => {
      const channel = await (await connect(url)).createChannel();
      channel.on("error", () => {});
      await channel.assertQueue("work", {
        durable: true,
        deadLetterExchange: "",
        deadLetterRoutingKey: "dead",
      });
      await channel.prefetch(20);
      let n = 0;
      await channel.consume("work", (message) => {
        if (message === null) return;
        book.seen.add(message.properties.messageId);
        // One in ten is refused and must lie in the dead letters, one in ten is left unsettled.
        if (n % 10 === 0) channel.reject(message, false);
        else if (n % 10 !== 1) channel.ack(message);
        // An answer tells that what was settled before is written, which an ack or a reject alone does not.
        if (++n === 40) channel.checkQueue("work").then(settled, () => {});
      });
    };
    for (const work of [publisher("a"), publisher("b"), consumer()]) work.catch(() => {});
  });
  await Promise.all([reached, someSettled]);
  await kill();
}

/** Everything in a queue, taken out. */
async function drain(connection: ChannelModel, queue: string): Promise<GetMessage[]> {
  const channel = await connection.createChannel();
  const all: GetMessage[] = [];
  for (;;) {
    const message = await channel.get(queue, { noAck: true });
    if (message === false) return all;
    all.push(message);
  }
}

it("loses no confirmed message over three kills, doubles none, and marks what was out", async () => {
  const book: Book = { confirmed: new Set(), seen: new Set() };
  for (let round = 0; round < 3; round++) await load(await start(), book, round, 400);
  const connection = await connect(await start());
  const waiting = await drain(connection, "work");
  const dead = await drain(connection, "dead");
  const ids = (messages: GetMessage[]) => messages.map((m) => m.properties.messageId as string);
  const there = new Set([...ids(waiting), ...ids(dead)]);
  expect([...book.confirmed].filter((id) => !there.has(id) && !book.seen.has(id))).toEqual([]);
  expect(there.size).toBe(waiting.length + dead.length);
  for (const message of waiting) {
    const id = message.properties.messageId as string;
    expect(message.content.equals(Buffer.alloc(200, id)), id).toBe(true);
    if (book.seen.has(id)) expect(message.fields.redelivered, id).toBe(true);
  }
  for (const message of dead) expect(message.properties.headers?.["x-death"]?.[0]?.reason).toBe("rejected");
  expect(book.seen.size).toBeGreaterThan(0);
  expect(dead.length).toBeGreaterThan(0);
  await connection.close();
});

it("C3: what fell due while a killed broker was down is in the work queue after the start, in order, and none is left", async () => {
  const connection = await connect(await start());
  const channel = await connection.createConfirmChannel();
  channel.on("error", () => {});
  await channel.assertQueue("work", { durable: true });
  const waits = { messageTtl: 1_500, deadLetterExchange: "", deadLetterRoutingKey: "work" };
  await channel.assertQueue("wait", { durable: true, ...waits });
  const sent = Array.from({ length: 20 }, (_, n) => `m${n + 1}`);
  for (const text of sent) channel.sendToQueue("wait", Buffer.from(text), { persistent: true });
  await channel.waitForConfirms();
  const due = Date.now() + waits.messageTtl;
  await kill();
  await new Promise((done) => setTimeout(done, due + 500 - Date.now()));
  const again = await connect(await start());
  const arrived = await drain(again, "work");
  expect(arrived.map(({ content }) => content.toString())).toEqual(sent);
  expect(arrived.every(({ properties }) => properties.headers?.["x-death"]?.[0]?.reason === "expired")).toBe(
    true,
  );
  expect(await drain(again, "wait")).toEqual([]);
});
