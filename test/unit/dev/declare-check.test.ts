import { PassThrough } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import amqplib from "amqplib";
import { describe, expect, it, onTestFinished } from "vitest";
import { runDev, startBroker, watchDeclarations } from "../../../src/dev/index.ts";
import { openBroker } from "../../../src/index.ts";
import type { Logger } from "../../../src/ports/index.ts";

interface Told {
  readonly level: string;
  readonly text: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

function notebook(): { logger: Logger; told: Told[] } {
  const told: Told[] = [];
  const write =
    (level: string) =>
    (text: string, fields: Readonly<Record<string, unknown>> = {}): void => {
      told.push({ level, text, fields });
    };
  return { logger: { info: write("info"), warn: write("warn"), error: write("error") }, told };
}

async function until(what: () => boolean): Promise<void> {
  for (let tries = 0; tries < 400 && !what(); tries++) await sleep(20);
}

/** A broker in memory whose declarations are watched, judged after `settleMs` of quiet. */
function watched(settleMs: number, longestMs?: number) {
  const broker = openBroker({ file: ":memory:" });
  const book = notebook();
  const stop = watchDeclarations(broker.host, {
    logger: book.logger,
    settleMs,
    ...(longestMs === undefined ? {} : { longestMs }),
  });
  onTestFinished(async () => {
    stop();
    await broker.close();
  });
  const about = (name: string): Told[] => book.told.filter(({ fields }) => fields["about"] === name);
  return { broker, about, told: book.told, stop };
}

describe("the doctor at declare time", () => {
  it("names all three queues whose rejected messages would vanish, before one is lost (case D1)", async () => {
    const { broker, about, told } = watched(50);
    const channel = await broker.createChannel();
    await channel.assertExchange("dlx", "direct");
    await channel.assertExchange("dlx.fanout", "fanout");
    await channel.assertQueue("dlq");
    await channel.bindQueue("dlq", "dlx", "dead");
    await channel.assertQueue("one", { deadLetterExchange: "no.such.exchange" });
    await channel.assertQueue("two", { deadLetterExchange: "dlx" });
    await channel.assertQueue("three", { deadLetterExchange: "dlx.fanout" });
    await until(() => told.length >= 3);
    expect(about("one")).toMatchObject([
      { level: "error", text: expect.stringContaining("dlx-not-declared: no.such.exchange") },
    ]);
    expect(about("two")).toMatchObject([
      { level: "error", text: expect.stringContaining("dlx-unroutable"), fields: { vhost: "/" } },
    ]);
    expect(about("three")).toMatchObject([
      { level: "error", text: expect.stringContaining("dlx-without-bindings") },
    ]);
    for (const { fields } of [...about("one"), ...about("two"), ...about("three")])
      expect(fields["fix"]).toMatch(/\S/);
  });

  it("says nothing of a topology that is set up in the wrong order, and is whole when it comes to rest", async () => {
    const { broker, told } = watched(300);
    const channel = await broker.createChannel();
    await channel.assertQueue("orders", { deadLetterExchange: "late.dlx" });
    await channel.assertExchange("late.dlx", "fanout");
    await channel.assertQueue("orders.dlq");
    await channel.bindQueue("orders.dlq", "late.dlx", "");
    await sleep(700);
    expect(told).toEqual([]);
    // The same, left unfinished, is told: the silence above was no deafness.
    await channel.unbindQueue("orders.dlq", "late.dlx", "");
    await until(() => told.length > 0);
    expect(told[0]).toMatchObject({ level: "error", fields: { about: "orders" } });
  });

  it("says a thing once, and again only when it was mended in between", async () => {
    const { broker, about } = watched(40);
    const channel = await broker.createChannel();
    const lossy = { deadLetterExchange: "later" };
    await channel.assertQueue("orders", lossy);
    await until(() => about("orders").length > 0);
    await channel.assertQueue("orders", lossy);
    await channel.assertQueue("another");
    await sleep(300);
    expect(about("orders")).toHaveLength(1);
    await channel.assertExchange("later", "fanout");
    await channel.assertQueue("orders.dlq");
    await channel.bindQueue("orders.dlq", "later", "");
    await sleep(300);
    await channel.deleteExchange("later");
    await until(() => about("orders").length > 1);
    expect(about("orders")).toHaveLength(2);
  });

  it("points out letters that are copied to the dead-letter queues of two consumers (case D3)", async () => {
    const { broker, told } = watched(50);
    const channel = await broker.createChannel();
    await channel.assertExchange("events", "topic");
    await channel.assertExchange("dlx", "topic");
    for (const name of ["A", "B"]) {
      await channel.assertQueue(name, { deadLetterExchange: "dlx" });
      await channel.bindQueue(name, "events", "order.created");
      await channel.assertQueue(`D${name}`);
      await channel.bindQueue(`D${name}`, "dlx", "order.created");
    }
    await until(() => told.length > 0);
    expect(told.map(({ text }) => text)).toEqual([
      expect.stringContaining("a letter of A, B is copied to DA, DB"),
    ]);
  });

  it("warns of a wait queue that relies on each message's own time (case C1)", async () => {
    const { broker, about, told } = watched(50);
    const channel = await broker.createChannel();
    await channel.assertQueue("work", { deadLetterExchange: "", deadLetterRoutingKey: "work.dlq" });
    await channel.assertQueue("work.dlq");
    await channel.assertQueue("work.wait", { deadLetterExchange: "", deadLetterRoutingKey: "work" });
    await until(() => told.length > 0);
    expect(about("work.wait")).toMatchObject([
      { level: "warn", text: expect.stringContaining("wait-queue-without-ttl") },
    ]);
  });

  it("does not wait for ever while queues keep coming", async () => {
    const { broker, about } = watched(200, 400);
    const channel = await broker.createChannel();
    await channel.assertQueue("orders", { deadLetterExchange: "no.such" });
    for (let n = 0; n < 200 && about("orders").length === 0; n++) {
      await channel.assertQueue(`busy.${n}`);
      await sleep(20);
    }
    expect(about("orders")).toHaveLength(1);
  });

  it("takes the product's own queues as they are", async () => {
    const { broker, told } = watched(40);
    broker.queue("jobs");
    await sleep(300);
    expect(told).toEqual([]);
  });

  it("is one line of dlo dev's standard error", async () => {
    const stop = new AbortController();
    const streams = [new PassThrough(), new PassThrough()] as const;
    let said = "";
    streams[0].resume();
    streams[1].on("data", (chunk: Buffer) => (said += chunk));
    const broker = openBroker({ file: ":memory:" });
    const ended = runDev(
      { amqp: 0, management: false, broker },
      { stdout: streams[0], stderr: streams[1], signal: stop.signal },
    );
    const channel = await broker.createChannel();
    await sleep(50);
    await channel.assertQueue("orders", { deadLetterExchange: "no.such" });
    await until(() => said.includes("\n"));
    stop.abort();
    expect(await ended).toBe(0);
    await broker.close();
    expect(said).toMatch(
      /^error: dlx-not-declared: no\.such is not declared: .* vhost="\/" about="orders" fix="[^"]+"\n$/,
    );
  });

  it("speaks through the logger of startBroker for a client of the wire, and not when told to be silent", async () => {
    for (const checkDeclarations of [true, false]) {
      const { logger, told } = notebook();
      await using server = await startBroker({ logger, checkDeclarations });
      const connection = await amqplib.connect(server.url);
      const channel = await connection.createChannel();
      await channel.assertQueue("orders", { deadLetterExchange: "no.such" });
      if (checkDeclarations) await until(() => told.length > 0);
      else await sleep(1500);
      await connection.close();
      expect(told.map(({ level }) => level)).toEqual(checkDeclarations ? ["error"] : []);
    }
  });
});
