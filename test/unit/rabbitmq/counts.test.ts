import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { lookAt, surely } from "../../../src/engines/rabbitmq/counts.ts";
import { OneAtATime } from "../../../src/engines/rabbitmq/wakers.ts";

/** A channel that answers one question after the other, each after its time; counts of the queue in turn. */
function channelOf(queueMs: number, exchangeMs: number[], counts: number[]) {
  let last: Promise<unknown> = Promise.resolve();
  let asked = 0;
  let exchanges = 0;
  const inTurn = <T>(ms: number, answer: () => T): Promise<T> => {
    const mine = last.then(() => sleep(ms)).then(answer);
    last = mine;
    return mine;
  };
  return {
    get asked() {
      return asked;
    },
    checkQueue: (queue: string) =>
      inTurn(queueMs, () => ({
        queue,
        messageCount: counts[Math.min(asked++, counts.length - 1)] as number,
        consumerCount: 0,
      })),
    checkExchange: () => inTurn(exchangeMs[exchanges++ % exchangeMs.length] as number, () => ({})),
  };
}

test("a 0 that took 250 ms is asked for again, also when other answers are late", async () => {
  for (const late of [[1], [60, 60, 1], [120, 90, 60]]) {
    const channel = channelOf(260, late, [0, 3]);
    expect(await lookAt(channel, "q")).toMatchObject({ messageCount: 3 });
    expect(channel.asked).toBe(2);
  }
});

test("two who look over one channel do not take each other's wait for the broker's distance", async () => {
  const channel = channelOf(255, [1], [0, 0, 3]);
  const both = await Promise.all([lookAt(channel, "q"), lookAt(channel, "q")]);
  expect(both.map(({ messageCount }) => messageCount)).toEqual([3, 3]);
});

test("a 0 from a broker that is far is believed at once, and one that comes at once as well", async () => {
  for (const [queueMs, exchangeMs] of [
    [300, 290],
    [1, 1],
  ] as const) {
    const channel = channelOf(queueMs, [exchangeMs], [0]);
    expect(await lookAt(channel, "q")).toMatchObject({ messageCount: 0 });
    expect(channel.asked).toBe(1);
  }
});

test("a look that began before a lost connection was missed does not end the wait for it", async () => {
  const backBy = performance.now() + 100;
  const backAt = performance.now() + 80;
  const look = async (): Promise<number> => {
    const count = performance.now() > backAt ? 1 : 0;
    await sleep(40);
    return count;
  };
  expect(await surely(look, () => backBy)).toBe(1);
});

test("a job that is asked for while it runs runs once more, never twice at once", async () => {
  const once = new OneAtATime();
  let running = 0;
  let most = 0;
  let runs = 0;
  const job = async (): Promise<void> => {
    most = Math.max(most, ++running);
    runs++;
    await sleep(5);
    running--;
  };
  const first = once.run(job, () => true);
  await Promise.all([once.run(job, () => true), once.run(job, () => true)]);
  await first;
  expect([runs, most]).toEqual([2, 1]);
  await Promise.all([once.run(job, () => false), once.run(job, () => false)]);
  expect(runs).toBe(3);
  await expect(
    once.run(
      () => Promise.reject(new Error("no")),
      () => true,
    ),
  ).rejects.toThrow("no");
  await once.run(job, () => true);
  expect(runs).toBe(4);
});
