import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "amqplib";
import { expect, onTestFinished, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import { lookAt } from "../../../src/engines/rabbitmq/counts.ts";
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
  const plain = await connect(url, { noDelay: true });
  onTestFinished(() => plain.close());
  const look = await plain.createChannel();
  world.start((id, count) => (id === "a" && count === 1 ? held : undefined));
  await expect.poll(() => world.seen.length, { timeout: 10_000 }).toBe(1);
  for (let cut = 0; cut < 3; cut++) {
    world.proxy.cut();
    await expect.poll(() => world.rabbit.status.connected, { timeout: 10_000 }).toBe(true);
    await sleep(300);
    // Cut only what has arrived: a delivery on the wire is not known here, and counts when it comes again.
    await expect.poll(async () => (await lookAt(look, "work")).messageCount, { timeout: 10_000 }).toBe(0);
    await sleep(300);
  }
  release();
  const countsOf = () => new Map(world.seen.map(({ id, count }) => [id, count]));
  // A handle that does not consume counts what waits, not what lies in the consumer's window.
  await expect
    .poll(() => [countsOf().size, (countsOf().get("a") ?? 0) > 1], { timeout: 20_000 })
    .toEqual([4, true]);
  await expect.poll(() => sender.pending().catch(() => -1), { timeout: 20_000 }).toBe(0);
  const counts = countsOf();
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
  await expect.poll(() => new Set(world.seen.map(({ id }) => id)).size, { timeout: 20_000 }).toBe(30);
  await expect.poll(() => sender.pending().catch(() => -1), { timeout: 20_000 }).toBe(0);
});

test("a queue is not called empty while RabbitMQ has yet to miss a lost connection with all its messages", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await life(url);
  const sender = world.rabbit.queue("work", { delays: [50] });
  for (const id of ["a", "b", "c"]) await sender.send(id, id);
  const consuming = world.rabbit.queue("work", { delays: [50], prefetch: 5 });
  onTestFinished(() => consuming.close());
  for (let cut = 0; cut < 5; cut++) {
    await expect
      .poll(async () => ((await consuming.receive()) === null ? 0 : 1), { timeout: 10_000 })
      .toBe(1);
    world.proxy.cut(500);
    await expect.poll(() => world.rabbit.status.connected, { timeout: 10_000, interval: 1 }).toBe(false);
    await expect.poll(() => world.rabbit.status.connected, { timeout: 10_000, interval: 1 }).toBe(true);
    expect(await consuming.pending()).toBeGreaterThan(0);
  }
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
    .poll(async () => (await lookAt(channel, "work.dead")).messageCount, { timeout: 20_000 })
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

test("F1: steady work with every ack within 50 ms never meets the consumer timeout", async (ctx) => {
  const node = await needPrivateRabbit(ctx, {
    advanced: "[{rabbit, [{consumer_timeout, 3000}, {channel_tick_interval, 500}]}]",
  });
  const seconds = Number(process.env.DLO_STEADY_S ?? 8); // more than two time-outs long; 60 by hand
  const lines: string[] = [];
  const say = (message: string): void => void lines.push(message);
  const connection = async (): Promise<RabbitMQ> => {
    const rabbit = await connectRabbitMQ({ url: node.url, logger: { info: say, warn: say, error: say } });
    onTestFinished(() => rabbit.close());
    return rabbit;
  };
  const sending = await connection();
  await sending.setUpTopology({ queue: "work", delays: [50] });
  const sender = sending.queue("work", { delays: [50] });
  const handled: string[] = [];
  const consumers = await Promise.all(
    [1, 2].map(async () => {
      const rabbit = await connection();
      return new Consumer({
        queue: rabbit.queue("work", { delays: [50], prefetch: 2 }),
        deadLetters: rabbit.deadLetters("work.dead"),
        handler: async ({ id }) => {
          await sleep(20);
          handled.push(id);
        },
        concurrency: 2,
      });
    }),
  );
  const runs = consumers.map((consumer) => consumer.run());
  const until = performance.now() + seconds * 1000;
  let sent = 0;
  while (performance.now() < until) {
    await sender.send(sent, `m${sent++}`);
    await sleep(15);
  }
  await expect.poll(() => new Set(handled).size, { timeout: 30_000 }).toBe(sent);
  await Promise.all(consumers.map((consumer) => consumer.stop()));
  await Promise.all(runs);
  expect(handled.length).toBe(sent);
  expect(lines.filter((line) => /timeout|timed out|closed by|opening the channel/i.test(line))).toEqual([]);
  const log = await node.ctl("eval", "ets:info(connection_created, size).");
  expect(log.trim()).toBe("3"); // nobody had to connect again
});

test("a broker that holds publishers: sends wait and are not told as timed out, and everything arrives once", async (ctx) => {
  const node = await needPrivateRabbit(ctx);
  const lines: string[] = [];
  const say = (message: string): void => void lines.push(message);
  const limitMs = 1_500;
  const logger: Logger = { info: say, warn: say, error: say };
  const rabbit = await connectRabbitMQ({ url: node.url, logger, confirmTimeoutMs: limitMs });
  onTestFinished(() => rabbit.close());
  await rabbit.setUpTopology({ queue: "work", delays: [50] });
  const sender = rabbit.queue("work", { delays: [50] });
  const handled: string[] = [];
  const consuming = await connectRabbitMQ({ url: node.url, logger, confirmTimeoutMs: limitMs });
  onTestFinished(() => consuming.close());
  const consumer = new Consumer({
    queue: consuming.queue("work", { delays: [50], prefetch: 2 }),
    deadLetters: consuming.deadLetters("work.dead"),
    handler: ({ id, receiveCount }) => {
      handled.push(`${id} ${receiveCount}`);
      if (id.startsWith("again") && receiveCount === 1) throw new Error("once more");
    },
    backoff: 50,
  });
  await sender.send(0, "before");
  await node.ctl("set_vm_memory_high_watermark", "0.00001");
  const ids = ["a", "b", "again"];
  const settled: string[] = [];
  const sends = ids.map((id) => sender.send(id, id).then(() => void settled.push(id)));
  await expect.poll(() => rabbit.status.blocked, { timeout: 20_000 }).toMatch(/memory/);
  expect(lines.join("\n")).toMatch(/RabbitMQ at 127\.0\.0\.1:\d+ holds publishers: .*memory/);
  // A queue first used while the broker holds us waits as well.
  const late = rabbit.queue("work", { delays: [50] }).send("late", "late");
  const run = consumer.run();
  await sleep(limitMs * 2.5);
  expect(settled).toEqual([]);
  await node.ctl("set_vm_memory_high_watermark", "absolute", "2GB");
  await Promise.all([...sends, late]);
  await expect.poll(() => rabbit.status.blocked).toBeNull();
  await expect.poll(() => handled.length, { timeout: 20_000 }).toBe(6);
  await consumer.stop();
  await run;
  expect(await sender.pending()).toBe(0);
  expect(handled.toSorted()).toEqual(["a 1", "again 1", "again 2", "b 1", "before 1", "late 1"]);
  expect(lines.join("\n")).toMatch(/takes publishes again/);
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
    // What the broker was still taking back when one looked and found nothing is for the next.
    const rest = async (): Promise<number> => {
      expect(await world.untilIdle({ ...job, until: "idle" }, 0)).toBe(0);
      return [...world.notes().ends.keys()].filter((id) => id.startsWith(`${name}-`)).length;
    };
    await expect.poll(rest, { timeout: 30_000, interval: 200 }).toBe(30);
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
