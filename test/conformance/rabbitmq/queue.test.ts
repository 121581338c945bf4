import { connect } from "amqplib";
import { expect, onTestFinished, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import type { Message } from "../../../src/core/index.ts";
import { startBroker } from "../../../src/dev/index.ts";
import { lookAt } from "../../../src/engines/rabbitmq/counts.ts";
import { connectRabbitMQ, type RabbitMQ, type RabbitQueue } from "../../../src/engines/rabbitmq/index.ts";
import { management, needVhost, type Vhost } from "../../support/rabbitmq-node.ts";

async function open(vhost: Vhost): Promise<RabbitMQ> {
  const rabbit = await connectRabbitMQ({
    url: vhost.url,
    ...(vhost.managementUrl ? { managementUrl: vhost.managementUrl } : {}),
  });
  onTestFinished(() => rabbit.close());
  return rabbit;
}

/** The next message, which may still be on its way. */
async function soon(queue: RabbitQueue): Promise<Message> {
  for (;;) {
    const message = await queue.receive();
    if (message) return message;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const types = ["quorum", "classic"] as const;

for (const type of types) {
  test(`${type}: sent, received, acked; the count rises with each retry, and the first time stays`, async (ctx) => {
    const rabbit = await open(await needVhost(ctx));
    await rabbit.setUpTopology({ queue: "work", type, delays: [100] });
    const queue = rabbit.queue<{ n: number }>("work", { type, delays: [100] });
    expect(await queue.receive()).toBeNull();
    const id = await queue.send({ n: 1 });
    await queue.send({ n: 2 }, "second");
    const first = await queue.receive();
    expect(first).toMatchObject({ id, body: { n: 1 }, receiveCount: 1, generation: 1 });
    await queue.retry(id, first?.receipt);
    const other = await queue.receive();
    expect(other).toMatchObject({ id: "second", receiveCount: 1 });
    await queue.ack("second", other?.receipt);
    const again = await queue.receive();
    expect(again).toMatchObject({ id, receiveCount: 2, firstReceivedAt: first?.firstReceivedAt });
    expect(again?.suspect).toBeUndefined();
    await queue.retry(id, again?.receipt, { delayMs: 60, error: "Error: later" });
    expect(await queue.pending()).toBe(1);
    await expect
      .poll(() => queue.receive(), { timeout: 5000 })
      .toMatchObject({
        id,
        receiveCount: 3,
        firstReceivedAt: first?.firstReceivedAt,
        body: { n: 1 },
      });
    await queue.ack(id);
    expect(await queue.pending()).toBe(0);
  });

  test(`${type}: a consumer that was given up counts, a message on the way to it does not`, async (ctx) => {
    const rabbit = await open(await needVhost(ctx));
    await rabbit.setUpTopology({ queue: "work", type, delays: [] });
    const queue = rabbit.queue("work", { type, delays: [] });
    for (const id of ["a", "b", "c"]) await queue.send(id, id);
    for (let crash = 1; crash <= 3; crash++) {
      const message = await queue.receive();
      expect(message).toMatchObject({ id: "a", receiveCount: crash });
      await queue.recover();
      // A quorum queue takes the return a moment after the channel's close; who is quicker gets b.
      await expect.poll(() => queue.pending()).toBe(3);
    }
    expect(await queue.receive()).toMatchObject({ id: "a", receiveCount: 4, suspect: true });
    await queue.ack("a");
    await queue.close();

    const window = rabbit.queue("work", { type, delays: [], prefetch: 10 });
    expect(await window.receive()).toMatchObject({ id: "b", receiveCount: 1 });
    await window.recover();
    const c = await window.receive();
    expect(c).toMatchObject({ id: "c", receiveCount: 1 });
    expect(c?.suspect).toBeUndefined();
    expect(await window.receive()).toBeNull();
    await window.ack("c");
    await expect.poll(() => window.receive()).toMatchObject({ id: "b", receiveCount: 2, suspect: true });
  });
}

test("what another process held when it died runs alone from the suspects queue, counted once", async (ctx) => {
  const vhost = await needVhost(ctx);
  const rabbit = await open(vhost);
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const dying = await connect(vhost.url, { noDelay: true });
  dying.on("error", () => {});
  const channel = await dying.createChannel();
  await channel.prefetch(3);
  const queue = rabbit.queue("work", { delays: [], prefetch: 10 });
  for (const id of ["a", "b", "c", "d"]) await queue.send(id, id);
  await queue.close();
  await new Promise<void>((resolve) => {
    let seen = 0;
    void channel.consume("work", () => ++seen === 3 && resolve());
  });
  (dying.connection as unknown as { stream: { destroy(): void } }).stream.destroy();
  const next = rabbit.queue("work", { delays: [], prefetch: 10 });
  const d = await next.receive();
  expect(d).toMatchObject({ id: "d", receiveCount: 1 });
  // Suspects wait until nothing else is on hand.
  expect(await next.receive()).toBeNull();
  await next.ack("d");
  const order: unknown[] = [];
  for (let i = 0; i < 3; i++) {
    const one = await soon(next);
    order.push([one?.id, one?.receiveCount, one?.suspect]);
    // While it is out, no other suspect is.
    expect(await next.receive()).toBeNull();
    await next.ack(one?.id ?? "");
  }
  expect(order).toEqual([
    ["a", 2, true],
    ["b", 2, true],
    ["c", 2, true],
  ]);
});

test("retries at once on a queue with two consumers make no suspects, and each message has its three starts", async (ctx) => {
  const vhost = await needVhost(ctx);
  const both = [await open(vhost), await open(vhost)];
  const [sending = await open(vhost)] = both;
  await sending.setUpTopology({ queue: "work", delays: [] });
  const starts = new Map<string, number>();
  let suspects = 0;
  let dead = 0;
  for (const rabbit of both) {
    const consumer = new Consumer({
      queue: rabbit.queue("work", { delays: [], prefetch: 10 }),
      deadLetters: rabbit.deadLetters("work.dead"),
      handler: ({ id }) => {
        starts.set(id, (starts.get(id) ?? 0) + 1);
        throw new Error("no");
      },
      concurrency: 10,
      backoff: 0,
      warmUpMs: 0,
      logger: null,
    });
    consumer.on("suspect", () => suspects++);
    consumer.on("dead", () => dead++);
    onTestFinished(() => consumer.stop());
    void consumer.run();
  }
  const plain = await connect(vhost.url, { noDelay: true });
  onTestFinished(() => plain.close());
  const look = await plain.createChannel();
  await expect.poll(async () => (await lookAt(look, "work")).consumerCount, { timeout: 10_000 }).toBe(2);
  const sender = sending.queue("work", { delays: [] });
  await Promise.all(Array.from({ length: 200 }, (_, n) => sender.send(n, `m${n}`)));
  await expect.poll(() => dead, { timeout: 20_000 }).toBe(200);
  expect(suspects).toBe(0);
  expect([...new Set(starts.values())]).toEqual([3]);
});

test("released messages come back uncounted, and so do those a closing consumer never started", async (ctx) => {
  const rabbit = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue("work", { delays: [], prefetch: 10 });
  for (const id of ["a", "b", "c"]) await queue.send(id, id);
  const a = await queue.receive();
  await queue.begin("a", a?.receipt);
  await queue.release("a", a?.receipt);
  expect(await soon(queue)).toMatchObject({ id: "b" });
  await queue.ack("b");
  await queue.close();
  const next = rabbit.queue("work", { delays: [] });
  const seen = [await next.receive(), await next.receive()];
  expect(seen.map((one) => [one?.id, one?.receiveCount, one?.suspect, one?.starts])).toEqual([
    ["c", 1, undefined, undefined],
    ["a", 1, undefined, 1],
  ]);
});

test("a settlement after its channel has gone is refused and never sent on the new channel", async (ctx) => {
  const rabbit = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue("work", { delays: [], prefetch: 5 });
  await queue.send("x", "x");
  const old = await queue.receive();
  await queue.recover();
  const now = await soon(queue);
  expect(now).toMatchObject({ id: "x", receiveCount: 2 });
  expect(() => queue.ack("x", old?.receipt)).toThrow(/not in flight here any more/);
  await expect(queue.retry("x", old?.receipt)).rejects.toMatchObject({ code: "STALE_DELIVERY" });
  expect(queue.stale).toBe(2);
  await queue.ack("x", now?.receipt);
  expect(() => queue.ack("x", now?.receipt)).toThrow(/not in flight/);
  expect(await queue.pending()).toBe(0);
});

test("sending to a queue that is not there fails and names it; receiving too", async (ctx) => {
  const rabbit = await open(await needVhost(ctx));
  const queue = rabbit.queue("nowhere");
  await expect(queue.send("x")).rejects.toMatchObject({ code: "UNROUTABLE", message: /queue 'nowhere'/ });
  await expect(queue.receive()).rejects.toMatchObject({ code: "QUEUE_NOT_FOUND", message: /nowhere/ });
});

test("a delay beyond the ladder is kept by going round, and none comes early", async (ctx) => {
  const rabbit = await open(await needVhost(ctx));
  await rabbit.setUpTopology({ queue: "work", delays: [300] });
  const queue = rabbit.queue("work", { delays: [300] });
  await queue.send("x", "x");
  await queue.receive();
  const from = Date.now();
  await queue.retry("x", undefined, { delayMs: 1000 });
  await expect
    .poll(() => queue.receive(), { timeout: 8000, interval: 20 })
    .toMatchObject({ id: "x", receiveCount: 2 });
  expect(Date.now() - from).toBeGreaterThan(700);
});

test("the topology is idempotent, and a difference is named with the argument and both values", async (ctx) => {
  const rabbit = await open(await needVhost(ctx));
  const first = await rabbit.setUpTopology({ queue: "work", delays: [100, 200] });
  expect(await rabbit.setUpTopology({ queue: "work", delays: [100, 200] })).toEqual(first);
  await expect(rabbit.setUpTopology({ queue: "work", delays: [], deliveryLimit: 5 })).rejects.toMatchObject({
    code: "CONFLICT",
    message: /queue 'work' exists with x-delivery-limit none, asked for 5/,
  });
  await expect(
    rabbit.setUpTopology({
      queue: "work",
      delays: [],
      arguments: { "x-dead-letter-routing-key": "elsewhere" },
    }),
  ).rejects.toMatchObject({ message: /x-dead-letter-routing-key work\.parking, asked for elsewhere/ });
});

test("maxAttempts over the queue's delivery limit is refused with both numbers", async (ctx) => {
  const vhost = await needVhost(ctx);
  const rabbit = await open(vhost);
  await rabbit.setUpTopology({ queue: "work", delays: [], deliveryLimit: 2 });
  await expect(rabbit.checkAttempts("work", 3, 2)).rejects.toMatchObject({
    code: "CONFLICT",
    message: /delivery limit 2, the consumer maxAttempts 3/,
  });
  await rabbit.checkAttempts("work", 2, 2);
  if (!vhost.managementUrl) return;
  await expect(rabbit.checkAttempts("work", 3)).rejects.toMatchObject({ code: "CONFLICT" });
  await management(vhost, "PUT", `/api/policies/${vhost.name}/low`, {
    pattern: "^work$",
    "apply-to": "queues",
    definition: { "delivery-limit": 1 },
  });
  await expect
    .poll(() => rabbit.checkAttempts("work", 2).catch((error) => error.message), { timeout: 10_000 })
    .toMatch(/delivery limit 1, the consumer maxAttempts 2/);
});

test("a consumer does not start with more attempts than the queue allows, as far as that is known", async (ctx) => {
  const vhost = await needVhost(ctx);
  const start = async (rabbit: RabbitMQ, name: string, maxAttempts: number, deliveryLimit?: number) => {
    const queue = rabbit.queue(name, {
      delays: [],
      ...(deliveryLimit === undefined ? {} : { deliveryLimit }),
    });
    const handler = (): void => {};
    const deadLetters = rabbit.deadLetters(`${name}.dead`);
    await new Consumer({ queue, deadLetters, handler, maxAttempts }).run({ until: "idle" });
  };
  const clash = { code: "CONFLICT", message: /'work' has delivery limit 2, the consumer maxAttempts 3/ };
  // Set up here; told by the caller; asked of the management API.
  const setUp = await connectRabbitMQ({ url: vhost.url });
  onTestFinished(() => setUp.close());
  await setUp.setUpTopology({ queue: "work", delays: [], deliveryLimit: 2 });
  await expect(start(setUp, "work", 3)).rejects.toMatchObject(clash);
  await start(setUp, "work", 2);
  const told = await connectRabbitMQ({ url: vhost.url });
  onTestFinished(() => told.close());
  await expect(start(told, "work", 3, 2)).rejects.toMatchObject(clash);
  if (!vhost.managementUrl) return;
  await expect(start(await open(vhost), "work", 3)).rejects.toMatchObject(clash);
  // A management API that is not there stops nobody.
  const deaf = await connectRabbitMQ({ url: vhost.url, managementUrl: "http://127.0.0.1:1" });
  onTestFinished(() => deaf.close());
  await start(deaf, "work", 3);
});

test("a queue that is there is taken with the delivery limit it has, where that is asked for", async (ctx) => {
  const rabbit = await open(await needVhost(ctx));
  const asked = { queue: "work", delays: [], deliveryLimit: "existing" } as const;
  expect((await rabbit.setUpTopology({ ...asked, queue: "fresh" })).deliveryLimit).toBeNull();
  await rabbit.setUpTopology({ ...asked, deliveryLimit: 7 });
  expect((await rabbit.setUpTopology(asked)).deliveryLimit).toBe(7);
  expect((await rabbit.setUpTopology({ ...asked, queue: "fresh" })).deliveryLimit).toBeNull();
  await expect(rabbit.setUpTopology({ ...asked, arguments: { "x-max-length": 5 } })).rejects.toMatchObject({
    code: "CONFLICT",
    message: /x-max-length/,
  });
});

test("from 4.0 on a queue without a stated limit has 20, and a consumer is told so", async () => {
  const broker = await startBroker(); // announces itself as 4.x
  onTestFinished(() => broker.close());
  const rabbit = await connectRabbitMQ({ url: broker.url });
  onTestFinished(() => rabbit.close());
  const parking = { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work.parking" };
  const plain = await connect(broker.url, { noDelay: true });
  onTestFinished(() => plain.close());
  const channel = await plain.createChannel();
  await channel.assertQueue("work", {
    arguments: {
      ...parking,
      "x-queue-type": "quorum",
      "x-dead-letter-strategy": "at-least-once",
      "x-overflow": "reject-publish",
    },
  });
  const unknown = rabbit.queue("work", { delays: [] });
  await unknown.accepts(20);
  await expect(unknown.accepts(21)).rejects.toMatchObject({
    code: "CONFLICT",
    message: /default delivery limit 20, the consumer maxAttempts 21.*deliveryLimit/,
  });
  await rabbit.queue("work", { delays: [], deliveryLimit: -1 }).accepts(21);
  const { deliveryLimit } = await rabbit.setUpTopology({
    queue: "work",
    delays: [],
    deliveryLimit: "existing",
  });
  expect(deliveryLimit).toBe(20);
  await expect(unknown.accepts(21)).rejects.toMatchObject({ message: /'work' has delivery limit 20/ });
  await rabbit.setUpTopology({ queue: "free", delays: [] });
  await rabbit.queue("free", { delays: [] }).accepts(1_000);
});
