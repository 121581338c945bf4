import { type Channel, connect, type GetMessage, type Message as Sent } from "amqplib";
import { expect, onTestFinished, test } from "vitest";
import { DLQConsumer } from "../../../src/consumer/index.ts";
import { type DeadLetter, type Message, PermanentError } from "../../../src/core/index.ts";
import { startBroker } from "../../../src/dev/index.ts";
import { consumeWhole } from "../../../src/engines/rabbitmq/browse.ts";
import { lookAt } from "../../../src/engines/rabbitmq/counts.ts";
import { connectRabbitMQ, type RabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import { onOwnChannel } from "../../../src/engines/rabbitmq/topology.ts";
import { needVhost, type Vhost } from "../../support/rabbitmq-node.ts";

async function open(vhost: Vhost): Promise<{ rabbit: RabbitMQ; channel: Channel }> {
  const rabbit = await connectRabbitMQ({ url: vhost.url });
  const plain = await connect(vhost.url, { noDelay: true });
  onTestFinished(async () => {
    await rabbit.close();
    await plain.close();
  });
  return { rabbit, channel: await plain.createChannel() };
}

const letterOf = (message: Message, over: Partial<DeadLetter> = {}): DeadLetter => ({
  id: message.id,
  body: message.body,
  reason: "exhausted",
  error: "Error: no",
  attempts: message.receiveCount,
  firstAttemptAt: message.firstReceivedAt,
  failedAt: 1_700_000_000_000,
  generation: message.generation ?? 1,
  sourceQueue: "work",
  ...(message.headers ? { headers: message.headers } : {}),
  ...(message.properties ? { properties: message.properties } : {}),
  ...(message.raw ? { raw: message.raw } : {}),
  ...over,
});

const G3 = {
  messageId: "m-1",
  correlationId: "c-1",
  type: "order",
  contentType: "application/octet-stream",
  contentEncoding: "gzip",
  replyTo: "answers",
  timestamp: 1_700_000_000,
  priority: 3,
  deliveryMode: 2,
  appId: "shop",
  expiration: "600000",
  userId: "guest",
  headers: { n: 1, long: 9007199254740991, nul: null, nested: { a: [1, "x"] }, CC: ["nobody"] },
};
const BYTES = Buffer.from("ff00fe80", "hex");

test("body bytes, every property and every header survive retry, dead letter and replay", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [50] });
  const queue = rabbit.queue("work", { delays: [50] });
  const dead = rabbit.deadLetters("work.dead");
  await channel.assertQueue("nobody");
  channel.publish("", "work", BYTES, G3);
  await expect.poll(() => queue.pending()).toBe(1);
  // The publisher's own CC copy, and no other one later.
  expect((await lookAt(channel, "nobody")).messageCount).toBe(1);

  const shown = async (): Promise<Message> => (await queue.receive()) as Message;
  const first = await shown();
  const same = (message: Message): void => {
    expect(Buffer.from(message.raw as Uint8Array)).toEqual(BYTES);
    expect(message.properties).toEqual(first.properties);
    expect(message.headers).toEqual(first.headers);
  };
  const { headers: _, ...given } = G3;
  expect(first.properties).toEqual(given);
  expect(first.headers).toEqual(G3.headers);
  await queue.retry(first.id, first.receipt, { delayMs: 50 });
  await expect.poll(async () => (await lookAt(channel, "work")).messageCount).toBe(1);
  const second = await shown();
  same(second);
  await dead.put(letterOf(second));
  await queue.ack(second.id);

  const kept = (await channel.get("work.dead")) as GetMessage;
  const { headers, ...properties } = kept.properties;
  expect(kept.content).toEqual(BYTES);
  for (const name of [
    "messageId",
    "correlationId",
    "type",
    "contentType",
    "contentEncoding",
    "replyTo",
    "timestamp",
  ] as const) {
    expect(properties[name]).toEqual(G3[name]);
  }
  expect(headers).toMatchObject({ n: 1, long: 9007199254740991, nul: null, nested: { a: [1, "x"] } });
  expect(Object.keys(headers ?? {}).filter((name) => /^x-(?!dlo-|delivery-count)/.test(name))).toEqual([]);
  channel.nack(kept, false, true);

  await expect.poll(() => rabbit.replay({ from: "work.dead" })).toEqual({ sent: ["m-1"], failed: [] });
  const replayed = await shown();
  same(replayed);
  expect(replayed).toMatchObject({ receiveCount: 1, generation: 2 });
  expect((await lookAt(channel, "nobody")).messageCount).toBe(1);
  expect((await lookAt(channel, "work.dead")).messageCount).toBe(0);
});

test("the story of a death stays under 8 KiB, cut with a mark, however long the error", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue("work", { delays: [] });
  const dead = rabbit.deadLetters("work.dead");
  await queue.send({ n: 1 }, "long");
  const message = (await queue.receive()) as Message;
  const attempt = { n: 1, startedAt: 1, outcome: "failed" as const, cause: "x".repeat(300) };
  await dead.put(
    letterOf(message, {
      error: `Error: ${"ä".repeat(50_000)}`,
      stack: "s".repeat(50_000),
      history: Array(50).fill(attempt),
    }),
  );
  const [letter] = await dead.list();
  expect(letter?.error).toMatch(/^Error: ä+ … \[cut\]$/);
  expect(letter?.stack?.endsWith(" … [cut]")).toBe(true);
  expect(letter?.history?.length).toBeGreaterThan(0);
  const raw = (await channel.get("work.dead")) as GetMessage;
  const own = Object.entries(raw.properties.headers ?? {}).filter(([name]) => name.startsWith("x-dlo-"));
  expect(Buffer.byteLength(JSON.stringify(Object.fromEntries(own)))).toBeLessThan(8 * 1024);
});

test("a message without an id has a stable one, through redelivery, retry, death and replay", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue("work", { delays: [] });
  channel.sendToQueue("work", Buffer.from("plain"), { contentType: "text/plain" });
  await expect.poll(() => queue.pending()).toBe(1);
  const { id } = (await queue.receive()) as Message;
  await queue.recover();
  const again = (await queue.receive()) as Message;
  expect(again).toMatchObject({ id, receiveCount: 2, body: "plain" });
  expect(again.properties).toEqual({ contentType: "text/plain" });
  await queue.retry(id);
  const dead = rabbit.deadLetters("work.dead");
  const third = (await queue.receive()) as Message;
  expect(third).toMatchObject({ id, receiveCount: 3 });
  await dead.put(letterOf(third));
  await queue.ack(id);
  await rabbit.replay({ from: "work.dead" });
  const back = (await queue.receive()) as Message;
  expect(back).toMatchObject({ id, receiveCount: 1, generation: 2 });
  expect(back.properties).not.toHaveProperty("messageId");
});

test("a letter that cannot be stored is refused and named, so that nobody acks", async (ctx) => {
  const { rabbit } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue("work", { delays: [] });
  await queue.send("x", "x");
  const message = (await queue.receive()) as Message;
  await expect(rabbit.deadLetters("nowhere").put(letterOf(message))).rejects.toMatchObject({
    code: "UNROUTABLE",
    message: /no queue takes queue 'nowhere' \(NO_ROUTE\)/,
  });
});

test("letters are listed in order, doubled ones once, and looking changes nothing", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const one = rabbit.deadLetters<string>("work.dead");
  const letter = (id: string): DeadLetter<string> =>
    letterOf({ id, body: id, receiveCount: 3, firstReceivedAt: 5 }) as DeadLetter<string>;
  for (const id of ["a", "b", "c", "d"]) await one.put(letter(id));
  await one.put(letter("b")); // known: not put again
  await rabbit.deadLetters("work.dead").put(letter("c")); // another process, which does not know
  const other = rabbit.deadLetters("work.dead");
  expect(other.has("b")).toBe(false);
  for (let look = 0; look < 3; look++)
    expect((await other.list()).map(({ id }) => id)).toEqual(["a", "b", "c", "d"]);
  expect((await lookAt(channel, "work.dead")).messageCount).toBe(5);
  expect(other.has("b")).toBe(true);
  expect(await other.get("c")).toMatchObject({
    id: "c",
    reason: "exhausted",
    attempts: 3,
    firstAttemptAt: 5,
    sourceQueue: "work",
  });
  await other.remove("c");
  expect((await other.list()).map(({ id }) => id)).toEqual(["a", "b", "d"]);
  expect(other.has("c", 1)).toBe(true); // a tombstone: a late copy of that life is no new letter
});

test("replay sends in order, each once, and what cannot be sent stays and is named", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const dead = rabbit.deadLetters("work.dead");
  const put = (id: string, sourceQueue = "work"): Promise<void> =>
    dead.put(letterOf({ id, body: id, receiveCount: 3, firstReceivedAt: 5 }, { sourceQueue }));
  await put("gone", "deleted-queue");
  for (let n = 1; n <= 100; n++) await put(`m${n}`);
  // Broker's own deaths can be replayed too, by the queue x-death names.
  await channel.assertQueue("other", {
    arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work.dead" },
  });
  channel.sendToQueue("other", Buffer.from("r"), { messageId: "rejected-1" });
  await expect.poll(async () => (await lookAt(channel, "other")).messageCount).toBe(1);
  channel.reject((await channel.get("other")) as GetMessage, false);
  await expect.poll(async () => (await lookAt(channel, "work.dead")).messageCount).toBe(102);
  expect(await rabbit.deadLetters("work.dead").get("rejected-1")).toMatchObject({
    reason: "rejected",
    sourceQueue: "other",
    error: null,
  });

  const some = await rabbit.replay({ from: "work.dead", ids: ["m7", "m7", "nope"] });
  expect(some.sent).toEqual(["m7"]);
  expect(some.failed).toMatchObject([{ id: "nope", why: /not in 'work.dead'/ }]);
  const rest = await rabbit.replay({ from: "work.dead" });
  expect(rest.sent).toEqual(
    [...Array(100).keys()]
      .map((n) => `m${n + 1}`)
      .filter((id) => id !== "m7")
      .concat("rejected-1"),
  );
  expect(rest.failed).toMatchObject([{ id: "gone", why: /queue 'deleted-queue'/ }]);
  expect((await lookAt(channel, "work.dead")).messageCount).toBe(1);
  expect((await rabbit.replay({ from: "work.dead", to: "work" })).sent).toEqual(["gone"]);
  const queue = rabbit.queue("work", { delays: [] });
  const order: string[] = [];
  for (let message = await queue.receive(); message; message = await queue.receive()) {
    order.push(message.id);
    await queue.ack(message.id);
  }
  expect(order).toEqual(["m7", ...rest.sent.filter((id) => id !== "rejected-1"), "gone"]);
});

test("two replays at once send each letter once", async (ctx) => {
  const vhost = await needVhost(ctx);
  const { rabbit, channel } = await open(vhost);
  const { rabbit: second } = await open(vhost);
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const dead = rabbit.deadLetters("work.dead");
  const all = [...Array(1200).keys()].map((n) => `m${n}`);
  await Promise.all(
    all.map((id) => dead.put(letterOf({ id, body: id, receiveCount: 3, firstReceivedAt: 5 }))),
  );
  const [one, two] = await Promise.all([
    rabbit.replay({ from: "work.dead" }),
    second.replay({ from: "work.dead" }),
  ]);
  expect([...one.sent, ...two.sent].sort()).toEqual([...all].sort());
  expect((await lookAt(channel, "work")).messageCount).toBe(1200);
});

test("replay by exchange goes where the first publish went; without a binding the letter stays", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({
    queue: "work",
    delays: [],
    bind: [{ exchange: "orders", type: "topic", key: "order.*" }],
  });
  const queue = rabbit.queue("work", { delays: [] });
  const dead = rabbit.deadLetters("work.dead");
  channel.publish("orders", "order.created", Buffer.from("{}"), {
    messageId: "x",
    contentType: "application/json",
  });
  await expect.poll(() => queue.pending()).toBe(1);
  const message = (await queue.receive()) as Message;
  await dead.put(letterOf(message));
  await queue.ack("x");
  await channel.unbindQueue("work", "orders", "order.*");
  expect(await rabbit.replay({ from: "work.dead", via: "exchange" })).toMatchObject({
    sent: [],
    failed: [{ id: "x", why: /exchange 'orders' with routing key 'order.created'/ }],
  });
  await channel.bindQueue("work", "orders", "order.created");
  expect(await rabbit.replay({ from: "work.dead", via: "exchange" })).toEqual({ sent: ["x"], failed: [] });
  expect(await queue.receive()).toMatchObject({ id: "x", generation: 2 });
});

test("two consumers of one event have dead-letter queues of their own, and a letter lands in one", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  for (const queue of ["a", "b"]) {
    await rabbit.setUpTopology({
      queue,
      delays: [],
      bind: [{ exchange: "orders", type: "topic", key: "order.created" }],
    });
  }
  channel.publish("orders", "order.created", Buffer.from("{}"), { messageId: "x" });
  const a = rabbit.queue("a", { delays: [] });
  const b = rabbit.queue("b", { delays: [] });
  await expect.poll(() => a.pending()).toBe(1);
  const message = (await a.receive()) as Message;
  await rabbit.deadLetters("a.dead").put(letterOf(message, { sourceQueue: "a" }));
  await a.ack("x");
  await b.receive();
  await b.ack("x");
  // The broker's own rejection keeps to its queue as well.
  channel.publish("orders", "order.created", Buffer.from("{}"), { messageId: "y" });
  await expect.poll(() => a.pending()).toBe(1);
  channel.reject((await channel.get("a")) as GetMessage, false);
  await expect.poll(async () => (await lookAt(channel, "a.parking")).messageCount).toBe(1);
  expect((await lookAt(channel, "a.dead")).messageCount).toBe(1);
  for (const name of ["b.dead", "b.parking"]) expect((await lookAt(channel, name)).messageCount).toBe(0);
});

test("two queues that share one dead-letter queue: neither swallows the other's message, and each letter goes back", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  for (const queue of ["a", "b"])
    await rabbit.setUpTopology({
      queue,
      delays: [],
      deadLetters: "all.dead",
      bind: [{ exchange: "orders", type: "topic", key: "order.created" }],
    });
  channel.publish("orders", "order.created", Buffer.from("{}"), { messageId: "x", persistent: true });
  const letters = rabbit.deadLetters("all.dead");
  const runs: string[] = [];
  const process = async (name: string, fails: boolean) => {
    const queue = rabbit.queue(name, { delays: [] });
    const consumer = new DLQConsumer(queue, letters, () => {
      runs.push(name);
      if (fails) throw new PermanentError("no");
    });
    let outcome: unknown = null;
    await expect
      .poll(async () => (outcome = await consumer.processOne()), { timeout: 10_000 })
      .not.toBe(null);
    return outcome;
  };
  expect(await process("a", true)).toBe("dead");
  expect(await process("b", true)).toBe("dead");
  expect((await rabbit.deadLetters("all.dead").list()).map((one) => one.sourceQueue)).toEqual(["a", "b"]);
  expect(await rabbit.replay({ from: "all.dead" })).toEqual({ sent: ["x", "x"], failed: [] });
  expect([await process("a", false), await process("b", false)]).toEqual(["ok", "ok"]);
  expect(runs).toEqual(["a", "b", "a", "b"]);
});

test("a message that died again after a replay is listed once, in its latest life, and goes with its earlier ones", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const dead = rabbit.deadLetters("work.dead");
  const put = (generation: number): Promise<void> =>
    dead.put(letterOf({ id: "a", body: "a", receiveCount: 3, firstReceivedAt: 5, generation }));
  await put(1);
  await put(2);
  await put(1); // a late copy of an earlier life
  const other = rabbit.deadLetters("work.dead");
  const [letter, ...more] = await other.list();
  expect(more).toEqual([]);
  expect(letter).toMatchObject({ id: "a", generation: 2, earlier: [{ generation: 1, attempts: 3 }] });
  await other.remove("a", 1); // only exactly that life
  expect((await lookAt(channel, "work.dead")).messageCount).toBe(2);
  await other.remove("a", 2);
  expect((await lookAt(channel, "work.dead")).messageCount).toBe(0);
});

test("from 4.0 on a queue with a delivery limit is not read: twenty looks would drop its letters", async () => {
  const broker = await startBroker(); // announces itself as 4.x
  onTestFinished(() => broker.close());
  const rabbit = await connectRabbitMQ({ url: broker.url });
  onTestFinished(() => rabbit.close());
  const plain = await connect(broker.url, { noDelay: true });
  const channel = await plain.createChannel();
  await channel.assertQueue("limited", { arguments: { "x-queue-type": "quorum" } });
  await channel.assertQueue("classic");
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  await expect(rabbit.deadLetters("limited").list()).rejects.toMatchObject({ code: "UNSUPPORTED" });
  expect(await rabbit.deadLetters("classic").list()).toEqual([]);
  const dead = rabbit.deadLetters("work.dead");
  await dead.put(letterOf({ id: "a", body: "a", receiveCount: 3, firstReceivedAt: 5 }));
  for (let look = 0; look < 25; look++) expect((await dead.list()).length).toBe(1);
  // A replay gives back what it does not send: the same.
  channel.sendToQueue("limited", Buffer.from("1"), { messageId: "kept" });
  for (const asked of [{ from: "limited" }, { from: "limited", ids: ["other"] }]) {
    await expect(rabbit.replay(asked)).rejects.toMatchObject({ code: "UNSUPPORTED", message: /'limited'/ });
  }
  await expect(rabbit.replay({ from: "missing" })).rejects.toMatchObject({ code: "QUEUE_NOT_FOUND" });
  const none = { from: "work.dead", ids: ["other"] };
  for (let look = 0; look < 25; look++) expect((await rabbit.replay(none)).failed.length).toBe(1);
  expect(await rabbit.replay({ from: "work.dead", to: "work" })).toEqual({ sent: ["a"], failed: [] });
  expect((await lookAt(channel, "limited")).messageCount).toBe(1);
  await plain.close();
});

test.for(["RabbitMQ", "the embedded broker"])(
  "H1: before 4.0 a queue with a delivery limit of its own is not read either: three looks at limit 2 would lose it (%s)",
  async (which, ctx) => {
    const own = await startBroker({ compat: "3.x" });
    onTestFinished(() => own.close());
    const { url } = which === "RabbitMQ" ? await needVhost(ctx) : own;
    const rabbit = await connectRabbitMQ({ url });
    onTestFinished(() => rabbit.close());
    const plain = await connect(url, { noDelay: true });
    onTestFinished(() => plain.close());
    const channel = await plain.createConfirmChannel();
    const quorum = { "x-queue-type": "quorum", "x-message-ttl": 600_000, "x-max-length": 100_000 };
    const dead = { "x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k" };
    const limited = { ...quorum, ...dead, "x-delivery-limit": 2 };
    await channel.assertQueue("limited", { arguments: limited });
    await channel.assertQueue("free", { arguments: { ...quorum, ...dead } });
    await channel.assertQueue("classic", { arguments: { "x-message-ttl": 600_000 } });
    for (const queue of ["limited", "free", "classic"])
      channel.sendToQueue(queue, Buffer.from("1"), { messageId: "kept", persistent: true });
    await channel.waitForConfirms();
    for (let look = 0; look < 4; look++) {
      await expect(rabbit.deadLetters("limited").list()).rejects.toMatchObject({
        code: "UNSUPPORTED",
        message: /'limited'.*counts towards.*limit of this one is 2/,
      });
      for (const queue of ["free", "classic"])
        expect((await rabbit.deadLetters(queue).list()).map(({ id }) => id)).toEqual(["kept"]);
    }
    await expect(rabbit.replay({ from: "limited" })).rejects.toMatchObject({ code: "UNSUPPORTED" });
    const kept = (await channel.get("limited")) as GetMessage;
    expect([kept.fields.redelivered, kept.properties.headers?.["x-delivery-count"] ?? 0]).toEqual([false, 0]);
  },
);

test("messages of one id with different bodies are letters of their own: none is swallowed, each is replayed", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue<string>("work", { delays: [] });
  const dead = rabbit.deadLetters<string>("work.dead");
  let broken = true;
  const seen: string[] = [];
  const consumer = new DLQConsumer(queue, dead, ({ body }) => {
    seen.push(body);
    if (broken) throw new PermanentError("no");
  });
  for (const body of ["created", "paid", "created"]) {
    await queue.send(body, "order-1");
    expect(await consumer.processOne()).toBe("dead");
  }
  expect(seen).toEqual(["created", "paid"]);
  expect((await dead.list()).map(({ body }) => body)).toEqual(["created", "paid"]);
  broken = false;
  expect(await consumer.replay()).toEqual(["order-1", "order-1"]);
  await expect.poll(async () => (await lookAt(channel, "work.dead")).messageCount).toBe(0);
  expect([await consumer.processOne(), await consumer.processOne()]).toEqual(["ok", "ok"]);
  expect(seen.slice(2).sort()).toEqual(["created", "paid"]);
});

test("a replay by the queue sends both of two messages that share an id, and a doubled letter once", async (ctx) => {
  const { rabbit, channel } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const put = (body: string): Promise<void> =>
    rabbit.deadLetters("work.dead").put(letterOf({ id: "a", body, receiveCount: 3, firstReceivedAt: 5 }));
  for (const body of ["one", "two", "one"]) await put(body);
  const before = (await lookAt(channel, "work.dead")).messageCount;
  expect(before).toBeGreaterThanOrEqual(2);
  expect((await rabbit.replay({ from: "work.dead" })).sent).toEqual(["a", "a"]);
  await expect.poll(async () => (await lookAt(channel, "work")).messageCount).toBe(2);
  expect((await lookAt(channel, "work.dead")).messageCount).toBe(0);
});

test("a letter has the body of its own message, also while another one of its id is in flight", async (ctx) => {
  const { rabbit } = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue<string>("work", { delays: [], prefetch: 10 });
  const dead = rabbit.deadLetters<string>("work.dead");
  for (const body of ["one", "two"]) await queue.send(body, "a");
  const messages: Message<string>[] = [];
  await expect
    .poll(async () => {
      const message = await queue.receive();
      return message === null ? messages.length : messages.push(message);
    })
    .toBe(2);
  for (const message of messages) {
    await dead.put(letterOf(message) as DeadLetter<string>);
    await queue.ack(message.id, message.receipt);
  }
  expect((await dead.list()).map(({ body }) => body)).toEqual(["one", "two"]);
});

test("a queue longer than a window is looked at whole, page by page, and keeps its order", async (ctx) => {
  const vhost = await needVhost(ctx);
  const model = await connect(vhost.url, { noDelay: true });
  onTestFinished(() => model.close());
  const channel = await model.createChannel();
  for (const type of ["quorum", "classic"]) {
    const queue = `long-${type}`;
    await channel.assertQueue(queue, { arguments: { "x-queue-type": type } });
    const sent = Array.from({ length: 57 }, (_, n) => `m${n}`);
    for (const id of sent) channel.sendToQueue(queue, Buffer.from(id), { messageId: id, persistent: true });
    await expect.poll(async () => (await lookAt(channel, queue)).messageCount).toBe(57);
    for (let look = 0; look < 3; look++) {
      const seen: string[] = [];
      await onOwnChannel(model, "looking", async (own) => {
        const show = (message: Sent | null): boolean => seen.push(String(message?.content)) > 0;
        await consumeWhole(own, queue, 57, show, 10);
        await expect.poll(() => seen.length).toBe(57);
      });
      expect(seen).toEqual(sent);
      await expect.poll(async () => (await lookAt(channel, queue)).messageCount).toBe(57);
    }
  }
});
