/** Troubles that people had with real queues, played over AMQP against the served broker; each names its case. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import amqp, { type ChannelModel, type ConfirmChannel, type GetMessage, type Options } from "amqplib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";
import { Consumer, DLQConsumer, PermanentError, TransientError } from "../../../src/index.ts";

const said: [string, Record<string, unknown>][] = [];
const note = (message: string, fields: Readonly<Record<string, unknown>> = {}): void => {
  said.push([message, { ...fields }]);
};
const logger = { info() {}, warn: note, error: note };
let server: StartedBroker;
let connection: ChannelModel;
let channel: ConfirmChannel;

beforeEach(async () => {
  said.length = 0;
  server = await startBroker({ logger, checkDeclarations: false });
  connection = await amqp.connect(server.url);
  connection.on("error", () => {});
  channel = await connection.createConfirmChannel();
});
afterEach(async () => {
  await connection.close().catch(() => {});
  await server.close();
});

async function got(queue: string): Promise<GetMessage> {
  for (let i = 0; i < 200; i++) {
    const message = await channel.get(queue);
    if (message !== false) return message;
    await sleep(20);
  }
  throw new Error(`nothing came to ${queue}`);
}
const texts = async (queue: string): Promise<string[]> => {
  const seen: string[] = [];
  for (;;) {
    const message = await channel.get(queue, { noAck: true });
    if (message === false) return seen;
    seen.push(message.content.toString());
  }
};
const count = async (queue: string): Promise<number> => (await channel.checkQueue(queue)).messageCount;
const deaths = (message: GetMessage): { count: number; queue: string }[] =>
  (message.properties.headers?.["x-death"] ?? []) as { count: number; queue: string }[];

describe("A3: a count that other people's headers hold", () => {
  beforeEach(async () => {
    await channel.assertQueue("dlq");
    await channel.assertQueue("work", { deadLetterExchange: "", deadLetterRoutingKey: "dlq" });
  });

  it("goes on over round trips with the received headers (3.x) in one entry", async () => {
    await using old = await startBroker({ compat: "3.x" });
    const other = await amqp.connect(old.url);
    const own = await other.createConfirmChannel();
    await own.assertQueue("dlq");
    await own.assertQueue("work", { deadLetterExchange: "", deadLetterRoutingKey: "dlq" });
    let headers: Record<string, unknown> = {};
    const counts: number[] = [];
    for (let round = 0; round < 4; round++) {
      own.sendToQueue("work", Buffer.from("x"), { headers });
      await own.waitForConfirms();
      const message = (await own.get("work")) as GetMessage;
      own.nack(message, false, false);
      await own.waitForConfirms();
      const letter = (await own.get("dlq", { noAck: true })) as GetMessage;
      headers = letter.properties.headers as Record<string, unknown>;
      expect(deaths(letter)).toHaveLength(1);
      counts.push(deaths(letter)[0]?.count as number);
    }
    expect(counts).toEqual([1, 2, 3, 4]);
    await other.close();
  });

  it.each([["not a table"], [7], [["odd", 1]], [{ a: 1 }], [[{ count: "many", queue: "work" }]]])(
    "begins anew where the header is %j, and the queue goes on",
    async (death) => {
      channel.sendToQueue("work", Buffer.from("x"), { headers: { "x-death": death } });
      await channel.waitForConfirms();
      channel.nack(await got("work"), false, false);
      const letter = await got("dlq");
      expect(deaths(letter).find((one) => one.queue === "work")?.count).toBe(1);
      channel.sendToQueue("work", Buffer.from("next"));
      await channel.waitForConfirms();
      expect((await got("work")).content.toString()).toBe("next");
    },
  );

  it("is not what the consumer counts by: three runs, whatever the header says", async () => {
    channel.sendToQueue("work", Buffer.from("x"), {
      persistent: true,
      headers: { "x-death": [{ count: 9, queue: "work", reason: "rejected", exchange: "" }] },
    });
    await channel.waitForConfirms();
    let runs = 0;
    const consumer = new DLQConsumer(
      server.broker.queue("work"),
      server.broker.deadLetters("letters"),
      () => {
        runs++;
        throw new TransientError("no");
      },
    );
    expect([await consumer.processOne(), await consumer.processOne(), await consumer.processOne()]).toEqual([
      "retry",
      "retry",
      "dead",
    ]);
    expect([runs, await consumer.processOne()]).toEqual([3, null]);
  });
});

it("B4: bodies that call themselves JSON reach the handler as values, or die once with their bytes and place", async () => {
  await channel.assertQueue("work");
  const bodies = ['{"a":1', "", '[1,"x"]', '"str"', "null", "{bad}", "\ufeff{}", "NaN"];
  for (const [n, body] of bodies.entries())
    channel.sendToQueue("work", Buffer.from(body), {
      contentType: "application/json",
      messageId: `b${n}`,
      persistent: true,
    });
  await channel.waitForConfirms();
  const seen: unknown[] = [];
  const dead = server.broker.deadLetters("letters");
  const consumer = new Consumer({
    queue: server.broker.queue("work"),
    deadLetters: dead,
    handler: ({ body }) => void seen.push(body),
    backoff: 1,
    logger,
  });
  await consumer.run({ until: "idle" });
  expect(seen).toEqual([[1, "x"], "str", null]);
  const letters = dead.list();
  expect(letters.map((one) => [one.id, one.reason, one.attempts])).toEqual(
    [0, 1, 5, 6, 7].map((n) => [`b${n}`, "permanent", 1]),
  );
  for (const one of letters) {
    expect(one.error).toMatch(/JSON/);
    expect(
      Buffer.from(one.raw ?? (one.body as Uint8Array)).equals(
        Buffer.from(bodies[Number(one.id.slice(1))] as string),
      ),
    ).toBe(true);
    expect(JSON.stringify(said)).toContain(one.id);
  }
  expect(letters[0]?.error).toMatch(/line 1|position|column|offset|\b6\b|\b7\b/);
});

it("C1: per-message TTL is looked at at the head only, as in RabbitMQ; delays of one's own are not", async () => {
  await channel.assertQueue("done");
  await channel.assertQueue("wait", { deadLetterExchange: "", deadLetterRoutingKey: "done" });
  const startedAt = performance.now();
  channel.sendToQueue("wait", Buffer.from("slow"), { expiration: "900" });
  channel.sendToQueue("wait", Buffer.from("fast"), { expiration: "100" });
  await channel.waitForConfirms();
  const first = await got("done");
  expect(performance.now() - startedAt).toBeGreaterThan(850);
  expect([first.content.toString(), (await got("done")).content.toString()]).toEqual(["slow", "fast"]);
  await server.broker.delay("own", "slow", { delayMs: 900 });
  await server.broker.delay("own", "fast", { delayMs: 100 });
  const own = server.broker.queue("own");
  const order: unknown[] = [];
  while (order.length < 2) {
    const message = own.receive();
    if (message === null) await sleep(10);
    else order.push(message.body);
  }
  expect(order).toEqual(["fast", "slow"]);
});

it("C3: what fell due while the broker was down arrives after the start, in order", async () => {
  const folder = mkdtempSync(join(tmpdir(), "dlo-cases-"));
  try {
    const file = join(folder, "dlo.db");
    const before = await startBroker({ file });
    const one = await amqp.connect(before.url);
    const own = await one.createConfirmChannel();
    await own.assertQueue("work");
    await own.assertQueue("wait", { deadLetterExchange: "", deadLetterRoutingKey: "work", messageTtl: 400 });
    for (let n = 1; n <= 20; n++) own.sendToQueue("wait", Buffer.from(`m${n}`), { persistent: true });
    await own.waitForConfirms();
    await one.close();
    await before.close();
    await sleep(600);
    await using after = await startBroker({ file });
    const two = await amqp.connect(after.url);
    const again = await two.createChannel();
    const seen: string[] = [];
    for (;;) {
      const message = await again.get("work", { noAck: true });
      if (message === false) break;
      seen.push(message.content.toString());
    }
    expect(seen).toEqual(Array.from({ length: 20 }, (_, n) => `m${n + 1}`));
    expect((await again.checkQueue("wait")).messageCount).toBe(0);
    await two.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it("D1: dead letters that lead nowhere vanish over AMQP as in RabbitMQ, and are counted, told and kept here", async () => {
  await channel.assertExchange("direct.dlx", "direct");
  await channel.assertExchange("fan.dlx", "fanout");
  await channel.assertQueue("dlq");
  await channel.bindQueue("dlq", "direct.dlx", "dead");
  const queues = { one: "no.such.exchange", two: "direct.dlx", three: "fan.dlx" };
  for (const [queue, deadLetterExchange] of Object.entries(queues)) {
    await channel.assertQueue(queue, { deadLetterExchange });
    channel.sendToQueue(queue, Buffer.from("x"), { persistent: true });
    await channel.waitForConfirms();
    channel.nack(await got(queue), false, false);
    expect(await count(queue)).toBe(0);
  }
  expect(await count("dlq")).toBe(0);
  expect(server.broker.lost().map(({ queue, why, count: n }) => [queue, why, n])).toEqual([
    ["one", "dlx-missing", 1],
    ["two", "unroutable", 1],
    ["three", "unroutable", 1],
  ]);
  for (const [queue, exchange] of Object.entries(queues)) {
    const line = said.find(([message]) => message.includes(`'${queue}'`));
    expect(JSON.stringify(line)).toContain(exchange);
    expect(line?.[1]).toMatchObject({ queue, exchange, routingKey: queue });
  }
  expect(server.broker.letters.count({ state: "dead" })).toBe(3);
});

it("D3: one dead-letter exchange and one key for two queues put a failure into both", async () => {
  await channel.assertExchange("events", "topic");
  await channel.assertExchange("dlx", "topic");
  for (const queue of ["A", "B"]) {
    await channel.assertQueue(queue, { deadLetterExchange: "dlx" });
    await channel.assertQueue(`D${queue}`);
    await channel.bindQueue(queue, "events", "order.created");
    await channel.bindQueue(`D${queue}`, "dlx", "order.created");
  }
  channel.publish("events", "order.created", Buffer.from("x"));
  await channel.waitForConfirms();
  channel.nack(await got("A"), false, false);
  channel.ack(await got("B"));
  expect([await count("DA"), await count("DB")]).toEqual([1, 1]);
});

describe("D5: a full queue", () => {
  const fill = async (overflow: string): Promise<{ acks: boolean[]; left: string[]; dead: string[] }> => {
    await channel.assertQueue("dead");
    await channel.assertQueue("full", {
      maxLength: 2,
      deadLetterExchange: "",
      deadLetterRoutingKey: "dead",
      arguments: { "x-overflow": overflow },
    });
    const acks: boolean[] = [];
    for (let n = 1; n <= 5; n++)
      await new Promise<void>((done) => {
        channel.sendToQueue("full", Buffer.from(`m${n}`), {}, (error) => {
          acks.push(error === null);
          done();
        });
      });
    return { acks, left: await texts("full"), dead: await texts("dead") };
  };
  it.each([
    ["drop-head", [true, true, true, true, true], ["m4", "m5"], ["m1", "m2", "m3"]],
    ["reject-publish", [true, true, false, false, false], ["m1", "m2"], []],
    ["reject-publish-dlx", [true, true, false, false, false], ["m1", "m2"], ["m3", "m4", "m5"]],
  ])("with %s", async (overflow, acks, left, dead) => {
    expect(await fill(overflow)).toEqual({ acks, left, dead });
  });

  it("takes back what it gave out, over its limit", async () => {
    await channel.assertQueue("full", { maxLength: 2, arguments: { "x-overflow": "reject-publish" } });
    for (const text of ["a", "b"]) channel.sendToQueue("full", Buffer.from(text));
    await channel.waitForConfirms();
    const [a, b] = [await got("full"), await got("full")];
    for (const text of ["c", "e"]) channel.sendToQueue("full", Buffer.from(text));
    await channel.waitForConfirms();
    channel.nack(a, false, true);
    channel.nack(b, false, true);
    expect(await texts("full")).toEqual(["a", "b", "c", "e"]);
  });
});

describe("J1: a time that is none", () => {
  const failure = async (work: (own: ConfirmChannel) => Promise<unknown>): Promise<string> => {
    const own = await connection.createConfirmChannel();
    const closed = new Promise<string>((done) => own.on("error", (error: Error) => done(error.message)));
    const asked = work(own).then(
      () => "taken",
      (error: Error) => error.message,
    );
    return Promise.race([closed, asked]);
  };
  const published = (expiration: string): Promise<string> =>
    failure(async (own) => {
      own.publish("", "q", Buffer.from("x"), { expiration } as Options.Publish);
      await own.waitForConfirms();
    });
  const declared = (options: Options.AssertQueue): Promise<string> =>
    failure((own) => own.assertQueue("odd", options));

  beforeEach(() => channel.assertQueue("q"));
  it.each([
    ["898486.7806", /PRECONDITION_FAILED.*invalid expiration '898486\.7806'/],
    ["later", /invalid expiration 'later'.*no_integer/],
    ["-1", /invalid expiration '-1'.*value_negative/],
    ["", /invalid expiration ''/],
    [" 5000", /invalid expiration ' 5000'/],
    ["1e3", /invalid expiration '1e3'/],
    ["0x10", /invalid expiration '0x10'/],
    ["5000ms", /invalid expiration '5000ms'/],
    ["0", /^taken$/],
    ["4294967296", /^taken$/],
  ])("in a message: %j", async (expiration, words) => {
    expect(await published(expiration)).toMatch(words);
  });
  it.each([
    ["a text", { arguments: { "x-message-ttl": "6000" } }, /406.*x-message-ttl.*odd/],
    ["negative", { arguments: { "x-message-ttl": -1 } }, /406.*x-message-ttl.*odd.*value_negative/],
    ["a fraction", { arguments: { "x-message-ttl": 1.5 } }, /406.*x-message-ttl.*odd/],
    ["no lease", { expires: 0 }, /406.*x-expires.*odd.*value_zero/],
    [
      "a key without an exchange",
      { deadLetterRoutingKey: "k" },
      /406.*x-dead-letter-routing-key.*odd.*routing_key_but_no_dlx_defined/,
    ],
  ])("in a queue: %s", async (_what, options, words) => {
    expect(await declared(options)).toMatch(words);
  });
  it("or an argument that an existing queue does not have", async () => {
    const words = await failure((own) => own.assertQueue("q", { deadLetterExchange: "dlx" }));
    expect(words).toMatch(/inequivalent arg 'x-dead-letter-exchange' for queue 'q'/);
    expect(words).toContain("received the value 'dlx' of type 'longstr' but current is none");
  });
});

it("G3: bytes, properties and headers are the same after death, a look, and a replay", async () => {
  await channel.assertQueue("work");
  const body = Buffer.from([0xff, 0x00, 0xfe, 0x80]);
  channel.sendToQueue("work", body, {
    persistent: true,
    messageId: "m",
    correlationId: "c",
    type: "t",
    contentType: "application/octet-stream",
    contentEncoding: "gzip",
    replyTo: "r",
    timestamp: 1_700_000_000,
    priority: 3,
    appId: "app",
    headers: { n: 1, long: 9_007_199_254_740_991, nul: null, nested: { a: [1, "x"] } },
  });
  await channel.waitForConfirms();
  const lives: unknown[] = [];
  let fails = true;
  const dead = server.broker.deadLetters("letters");
  const consumer = new DLQConsumer(server.broker.queue("work"), dead, (message) => {
    const { receiveCount: _count, firstReceivedAt: _at, generation: _life, ...rest } = message;
    lives.push(rest);
    if (fails) throw new PermanentError("no");
  });
  expect(await consumer.processOne()).toBe("dead");
  const letter = server.broker.letters.page({}, 1)[0];
  expect(Buffer.from(server.broker.letters.get(letter?.letterId as string)?.entry.raw ?? [])).toEqual(body);
  fails = false;
  await server.broker.letters.replay([letter?.letterId as string]);
  expect(await consumer.processOne()).toBe("ok");
  expect(lives[1]).toEqual(lives[0]);
  expect(lives[0]).toMatchObject({
    properties: { correlationId: "c", priority: 3, replyTo: "r", appId: "app", deliveryMode: 2 },
    headers: { n: 1, long: 9_007_199_254_740_991, nul: null, nested: { a: [1, "x"] } },
  });
});

it("H1: looking at messages and letters changes nothing", async () => {
  await channel.assertQueue("dlq");
  await channel.assertQueue("work", {
    deadLetterExchange: "",
    deadLetterRoutingKey: "dlq",
    arguments: { "x-queue-type": "quorum", "x-delivery-limit": 2 },
  });
  for (const text of ["a", "b", "c"]) channel.sendToQueue("work", Buffer.from(text), { persistent: true });
  await channel.waitForConfirms();
  const host = server.broker.host.vhost("/") as unknown as { peek(queue: string, limit: number): unknown[] };
  for (let n = 0; n < 10; n++) {
    server.broker.letters.status();
    expect(host.peek("work", 10)).toHaveLength(3);
  }
  const seen = [await got("work"), await got("work"), await got("work")];
  expect(seen.map((one) => [one.content.toString(), one.fields.redelivered])).toEqual([
    ["a", false],
    ["b", false],
    ["c", false],
  ]);
  for (const one of seen) expect(one.properties.headers?.["x-delivery-count"] ?? 0).toBe(0);
  expect(await count("dlq")).toBe(0);
});
