import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "amqplib";
import { expect, onTestFinished, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import { connectRabbitMQ, type RabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import type { Logger } from "../../../src/ports/index.ts";
import { crashWorld, type Job } from "../../crash/rabbitmq/world.ts";
import { needPrivateRabbit, needVhost } from "../../support/rabbitmq-node.ts";
import { type TcpProxy, tcpProxy } from "../../support/tcp-proxy.ts";

interface Life {
  readonly rabbit: RabbitMQ;
  readonly proxy: TcpProxy;
  readonly lines: string[];
  readonly seen: { id: string; count: number }[];
  start(handler?: (id: string, count: number) => unknown, concurrency?: number): Consumer;
}

/** A consumer behind a proxy, on a queue of its own. */
async function life(url: string): Promise<Life> {
  const proxy = await tcpProxy(url);
  const lines: string[] = [];
  const say = (message: string): void => void lines.push(message);
  const logger: Logger = { info: say, warn: say, error: say };
  const rabbit = await connectRabbitMQ({ url: proxy.through(url), logger, confirmTimeoutMs: 5_000 });
  await rabbit.setUpTopology({ queue: "work", delays: [50] });
  const seen: Life["seen"] = [];
  const consumers: Consumer[] = [];
  onTestFinished(async () => {
    proxy.thaw();
    proxy.down = false;
    await Promise.all(consumers.map((consumer) => consumer.stop({ drainMs: 100 })));
    await rabbit.close();
    await proxy.close();
  });
  return {
    rabbit,
    proxy,
    lines,
    seen,
    start(handler = () => {}, concurrency = 1) {
      const consumer = new Consumer({
        queue: rabbit.queue("work", { delays: [50], prefetch: 5 }),
        deadLetters: rabbit.deadLetters("work.dead"),
        handler: async (message) => {
          seen.push({ id: message.id, count: message.receiveCount });
          await handler(message.id, message.receiveCount);
        },
        concurrency,
        backoff: 50,
        warmUpMs: 10,
        logger,
      });
      consumers.push(consumer);
      void consumer.run();
      return consumer;
    },
  };
}

test("a cut connection comes back by itself, and unstarted messages of the window are not counted", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await life(url);
  const sender = world.rabbit.queue("work", { delays: [50] });
  let release = (): void => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  for (const id of ["a", "b", "c", "d"]) await sender.send(id, id);
  world.start((id, count) => (id === "a" && count === 1 ? held : undefined));
  await expect.poll(() => world.seen.length, { timeout: 10_000 }).toBe(1);
  for (let cut = 0; cut < 3; cut++) {
    world.proxy.cut();
    await expect.poll(() => world.rabbit.status.connected, { timeout: 10_000 }).toBe(true);
    await sleep(300);
  }
  release();
  await expect.poll(() => sender.pending().catch(() => -1), { timeout: 20_000 }).toBe(0);
  const counts = new Map(world.seen.map(({ id, count }) => [id, count]));
  // b, c and d lay in the window through three cuts, and were started once, as the first time.
  expect([counts.get("b"), counts.get("c"), counts.get("d")]).toEqual([1, 1, 1]);
  expect(counts.get("a")).toBeGreaterThanOrEqual(2);
  expect(await world.rabbit.deadLetters("work.dead").list()).toEqual([]);
  expect(world.lines.join("\n")).toMatch(/lost RabbitMQ at 127\.0\.0\.1:\d+/);
  expect(world.lines.join("\n")).not.toMatch(/guest/);
});

test("while the broker cannot be reached nothing is acked and nothing lost; afterwards everything is handled", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await life(url);
  const sender = world.rabbit.queue("work", { delays: [50] });
  for (let n = 0; n < 30; n++) await sender.send(n, `m${n}`);
  world.start(() => sleep(20), 3);
  await expect.poll(() => world.seen.length, { timeout: 10_000 }).toBeGreaterThan(5);
  world.proxy.down = true;
  world.proxy.cut();
  await expect(sender.send("x", "late")).rejects.toMatchObject({ code: "NOT_CONNECTED" });
  world.proxy.down = false;
  await expect.poll(() => sender.pending().catch(() => -1), { timeout: 20_000 }).toBe(0);
  expect(new Set(world.seen.map(({ id }) => id)).size).toBe(30);
});

test("a confirm that does not come in time is an error, not a wait for ever", async (ctx) => {
  const { url } = await needVhost(ctx);
  const proxy = await tcpProxy(url);
  const rabbit = await connectRabbitMQ({ url: proxy.through(url), confirmTimeoutMs: 400 });
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  const queue = rabbit.queue("work", { delays: [] });
  await queue.send("a", "a");
  proxy.frozen = true;
  await expect(queue.send("b", "b")).rejects.toMatchObject({
    code: "TIMED_OUT",
    message: /queue 'work' .*400 ms/,
  });
  proxy.thaw();
  await queue.send("c", "c");
  await rabbit.close();
  await proxy.close();
});

test("a consumer the broker cancels, its queue deleted and made again, consumes again", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await life(url);
  const sender = world.rabbit.queue("work", { delays: [50] });
  world.start();
  await sender.send("a", "a");
  await expect.poll(() => world.seen.length, { timeout: 10_000 }).toBe(1);
  const plain = await connect(url, { noDelay: true });
  const channel = await plain.createChannel();
  await channel.deleteQueue("work");
  await expect
    .poll(() => world.lines.join("\n"), { timeout: 10_000 })
    .toMatch(/queue 'work': the broker cancelled/);
  await expect
    .poll(() => world.lines.join("\n"), { timeout: 10_000 })
    .toMatch(/consuming queue 'work'.*(404|no queue)/i);
  await world.rabbit.setUpTopology({ queue: "work", delays: [50] });
  await sender.send("b", "b");
  await expect.poll(() => world.seen.at(-1)?.id, { timeout: 15_000 }).toBe("b");
  await plain.close();
});

test("a dead-letter queue that is gone: nothing is acked, the rest is served, and the letter arrives when it is back", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await life(url);
  const sender = world.rabbit.queue("work", { delays: [50] });
  const plain = await connect(url, { noDelay: true });
  const channel = await plain.createChannel();
  await channel.deleteQueue("work.dead");
  world.start((id) => {
    if (id === "bad") throw Object.assign(new Error("no"), { name: "PermanentError" });
  });
  await sender.send(1, "bad");
  await sender.send(2, "good");
  await expect.poll(() => world.seen.some(({ id }) => id === "good"), { timeout: 10_000 }).toBe(true);
  await expect
    .poll(() => world.lines.join("\n"), { timeout: 10_000 })
    .toMatch(/no queue takes queue 'work\.dead'/);
  expect(await sender.pending()).toBeGreaterThanOrEqual(0);
  await world.rabbit.setUpTopology({ queue: "work", delays: [50] });
  await expect
    .poll(async () => (await channel.checkQueue("work.dead")).messageCount, { timeout: 20_000 })
    .toBe(1);
  await plain.close();
});

test("F1: a channel closed because an ack was late is opened again; the slow one counts, its late ack is not sent", async (ctx) => {
  const node = await needPrivateRabbit(ctx, {
    advanced: "[{rabbit, [{consumer_timeout, 2000}, {channel_tick_interval, 500}]}]",
  });
  const world = await life(node.url);
  const sender = world.rabbit.queue("work", { delays: [50] });
  await sender.send("slow", "slow");
  world.start((id, count) => (id === "slow" && count === 1 ? sleep(7_000) : undefined), 2);
  await expect.poll(() => world.seen.length, { timeout: 10_000 }).toBe(1);
  await expect
    .poll(() => world.lines.join("\n"), { timeout: 30_000 })
    .toMatch(/consuming queue 'work'.*timeout/is);
  const closedAt = Date.now();
  await sender.send("next", "next");
  await expect.poll(() => world.seen.some(({ id }) => id === "next"), { timeout: 5_000 }).toBe(true);
  expect(Date.now() - closedAt).toBeLessThan(5_000);
  await expect
    .poll(() => world.seen.filter(({ id }) => id === "slow").at(-1)?.count, { timeout: 20_000 })
    .toBe(2);
  await expect.poll(() => sender.pending(), { timeout: 20_000 }).toBe(0);
  await sleep(Math.max(0, 7_500 - (Date.now() - closedAt)));
  expect(world.lines.join("\n")).not.toMatch(/unknown delivery tag/);
  expect(world.lines.join("\n")).toMatch(/taken over|stale/i);
});

test("F3: on SIGTERM started handlers finish and their acks arrive: over 20 deploys each message is handled once", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await crashWorld(url);
  // Four services side by side, five deploys each.
  const service = async (name: string): Promise<void> => {
    const job: Job = { url, queue: name, delays: [50], prefetch: 5, concurrency: 5, until: "stopped" };
    await world.rabbit.setUpTopology({ queue: name, delays: job.delays });
    const queue = world.rabbit.queue(name, { delays: job.delays });
    for (let n = 0; n < 30; n++) await queue.send({ ms: 300 }, `${name}-${n}`);
    for (let deploy = 0; deploy < 5; deploy++) {
      const child = await world.consumer(job);
      await sleep(100);
      const from = Date.now();
      child.kill("SIGTERM");
      const [code] = (await once(child, "exit")) as [number];
      expect(code).toBe(0);
      expect(Date.now() - from).toBeLessThan(10_000); // 2 s on a quiet machine
    }
    expect(await world.untilIdle({ ...job, until: "idle" }, 0)).toBe(0);
  };
  await Promise.all(["a", "b", "c", "d"].map(service));
  const { starts, ends } = world.notes();
  expect(ends.size).toBe(120);
  expect([...starts.values(), ...ends.values()].every((times) => times === 1)).toBe(true);
});

test("F6: a frozen consumer's late ack is refused and does not touch the delivery that took over", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await life(url);
  const frozen = world.rabbit.queue("work", { delays: [50] });
  const other = await connectRabbitMQ({ url });
  onTestFinished(() => other.close());
  await frozen.send("x", "x");
  const old = await frozen.receive();
  world.proxy.cut(); // what RabbitMQ does to a consumer whose heartbeats stop
  const taker = other.queue("work", { delays: [50] });
  await expect.poll(() => taker.receive(), { timeout: 10_000 }).toMatchObject({ id: "x", receiveCount: 2 });
  expect(() => frozen.ack("x", old?.receipt)).toThrow(/not in flight here any more/);
  await taker.ack("x");
  await expect.poll(() => taker.pending()).toBe(0);
});
