import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import { connectRabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import { needPrivateRabbit, needVhost } from "../../support/rabbitmq-node.ts";
import { crashWorld, type Job } from "./world.ts";

/** From a seed, so that a failure can be run again. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

for (const type of ["quorum", "classic"] as const) {
  test(`${type}: consumers killed at random moments lose nothing, and what dies is dead-lettered once`, async (ctx) => {
    const { url } = await needVhost(ctx);
    const world = await crashWorld(url);
    // Each kill from outside counts a start, so the limit is far from what twelve of them can do to one message.
    const job: Job = {
      url,
      queue: "work",
      type,
      delays: [50],
      prefetch: 20,
      concurrency: 5,
      maxAttempts: 30,
      until: "stopped",
    };
    await world.rabbit.setUpTopology({ queue: "work", type, delays: job.delays });
    const queue = world.rabbit.queue("work", { type, delays: job.delays });
    const sent: string[] = [];
    const send = async (): Promise<void> => {
      for (let n = 0; n < 600; n++) {
        await queue.send({ ms: n % 10 }, `m${n}`);
        sent.push(`m${n}`);
      }
    };
    const random = randomOf(7);
    const publishing = send();
    const alive: ChildProcess[] = [await world.consumer(job), await world.consumer(job)];
    for (let kill = 0; kill < 12; kill++) {
      await sleep(50 + random() * 250);
      const victim = alive.shift() as ChildProcess;
      victim.kill("SIGKILL");
      alive.push(await world.consumer(job));
    }
    await publishing;
    // A handle that does not consume counts what waits, not what lies in a consumer's window.
    const left = (): string[] => sent.filter((id) => !world.notes().ends.has(id));
    await expect.poll(left, { timeout: 60_000, interval: 200 }).toEqual([]);
    await expect.poll(() => queue.pending(), { timeout: 60_000, interval: 200 }).toBe(0);
    for (const child of alive) {
      child.kill("SIGTERM");
      if (child.exitCode === null) await once(child, "exit");
      expect(child.exitCode).toBe(0);
    }
    expect(await queue.pending()).toBe(0);
    const { ends } = world.notes();
    const dead = (await world.rabbit.deadLetters("work.dead").list()).map(({ id }) => id);
    expect(sent.filter((id) => !ends.has(id) && !dead.includes(id))).toEqual([]);
    expect(dead).toEqual([]);
  });
}

test("supervised: the parent killed at random loses nothing and blames nobody", async (ctx) => {
  const { url } = await needVhost(ctx);
  const world = await crashWorld(url);
  const job: Job = {
    url,
    queue: "work",
    delays: [50],
    prefetch: 20,
    concurrency: 2,
    isolate: true,
    maxAttempts: 30,
    until: "stopped",
  };
  await world.rabbit.setUpTopology({ queue: "work", delays: job.delays });
  const queue = world.rabbit.queue("work", { delays: job.delays });
  for (let n = 0; n < 150; n++) await queue.send({ ms: 5 }, `m${n}`);
  const random = randomOf(11);
  for (let kill = 0; kill < 4; kill++) {
    const parent = await world.consumer(job);
    await sleep(300 + random() * 300);
    parent.kill("SIGKILL");
  }
  expect(await world.untilIdle({ ...job, until: "idle" }, 0)).toBe(0);
  const { ends } = world.notes();
  expect([...ends.keys()].length).toBe(150);
  expect(await world.rabbit.deadLetters("work.dead").list()).toEqual([]);
});

test("the broker killed twice in the middle: every confirmed message is handled or waiting, the consumer goes on by itself", async (ctx) => {
  const node = await needPrivateRabbit(ctx);
  const rabbit = await connectRabbitMQ({ url: node.url, confirmTimeoutMs: 60_000 });
  await rabbit.setUpTopology({ queue: "work", delays: [50] });
  const queue = rabbit.queue<{ n: number }>("work", { delays: [50], prefetch: 20 });
  const sender = rabbit.queue<{ n: number }>("work", { delays: [50] });
  // 3.10 writes a new quorum queue's election record late: killed within seconds of its declaration it never
  // has a leader again. Nothing of ours can help that, so the first kill waits.
  await sleep(4_000);
  const ended = new Map<string, number>();
  const consumer = new Consumer<{ n: number }>({
    queue,
    deadLetters: rabbit.deadLetters("work.dead"),
    handler: async (message) => {
      if (message.body.n % 10 === 0 && message.receiveCount === 1) throw new Error("once");
      if (message.body.n % 25 === 7) throw Object.assign(new Error("never"), { name: "PermanentError" });
      await sleep(2);
      ended.set(message.id, (ended.get(message.id) ?? 0) + 1);
    },
    concurrency: 10,
    maxAttempts: 30,
    backoff: 50,
    logger: null,
  });
  const running = consumer.run();
  const confirmed: string[] = [];
  const publishing = (async () => {
    for (let n = 0; n < 2_000; n++) {
      const id = `m${n}`;
      // A publish whose fate is not known is sent again, under the same id.
      while (
        !(await sender.send({ n }, id).then(
          () => true,
          () => sleep(100),
        ))
      ) {}
      confirmed.push(id);
    }
  })();
  for (const at of [400, 1_200]) {
    await expect.poll(() => confirmed.length, { timeout: 60_000 }).toBeGreaterThan(at);
    await node.restart();
  }
  await publishing;
  const dies = (id: string): boolean => Number(id.slice(1)) % 25 === 7;
  const left = (): string[] => confirmed.filter((id) => !dies(id) && !ended.has(id));
  await expect.poll(left, { timeout: 60_000, interval: 200 }).toEqual([]);
  const letters = (): Promise<number> =>
    rabbit
      .deadLetters("work.dead")
      .list()
      .then(
        ({ length }) => length,
        () => -1,
      );
  await expect.poll(letters, { timeout: 60_000, interval: 500 }).toBe(confirmed.filter(dies).length);
  await expect.poll(() => sender.pending().catch(() => -1), { timeout: 60_000, interval: 200 }).toBe(0);
  await consumer.stop();
  await running;
  const dead = (await rabbit.deadLetters("work.dead").list()).map(({ id }) => id);
  const lost = confirmed.filter((id) => !ended.has(id) && !dead.includes(id));
  expect(lost).toEqual([]);
  expect(confirmed.length).toBe(2_000);
  expect([...dead].sort()).toEqual(confirmed.filter(dies).sort());
  await rabbit.close();
});
