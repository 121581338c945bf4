import { expect, test } from "vitest";
import { needVhost } from "../../support/rabbitmq-node.ts";
import { crashWorld, type Job } from "./world.ts";

// A lease is not a delivery: processes that really die, with a window of leased messages and handlers side by side.

interface Setting {
  readonly name: string;
  readonly job: Partial<Job> & Pick<Job, "prefetch" | "concurrency">;
  readonly pills: readonly string[];
}

const kill1 = ["kill"];
const kill4 = ["kill", "kill", "kill", "kill"];
const settings: Setting[] = [
  { name: "quorum, window 1, one at a time, one pill", job: { prefetch: 1, concurrency: 1 }, pills: kill1 },
  { name: "quorum, window 20, one at a time, one pill", job: { prefetch: 20, concurrency: 1 }, pills: kill1 },
  {
    name: "quorum, window 20, one at a time, four pills",
    job: { prefetch: 20, concurrency: 1 },
    pills: kill4,
  },
  { name: "quorum, window 20, 20 at a time, one pill", job: { prefetch: 20, concurrency: 20 }, pills: kill1 },
  {
    name: "quorum, window 20, 20 at a time, four pills",
    job: { prefetch: 20, concurrency: 20 },
    pills: kill4,
  },
  {
    name: "classic, window 20, 20 at a time, four pills",
    job: { type: "classic", prefetch: 20, concurrency: 20 },
    pills: kill4,
  },
  {
    name: "supervised: children killed, out of memory, hanging",
    job: { prefetch: 20, concurrency: 3, isolate: true, timeoutMs: 4_000 },
    pills: ["kill", "oom", "hang"],
  },
];

for (const { name, job, pills } of settings) {
  test(`100 messages, ${name}: no innocent is dead-lettered, each pill starts at most three times`, async (ctx) => {
    const { url } = await needVhost(ctx);
    const world = await crashWorld(url);
    const full: Job = { url, queue: "work", delays: [50], ...job };
    await world.rabbit.setUpTopology({ queue: "work", type: full.type ?? "quorum", delays: full.delays });
    const queue = world.rabbit.queue("work", { delays: full.delays });
    const names: string[] = [];
    for (let n = 0; n < 100; n++) {
      const pill = n % 5 === 3 ? pills[(n - 3) / 5] : undefined;
      if (pill) names.push(`m${n}`);
      // An innocent takes long enough to be beside a pill when that kills.
      await queue.send({ how: pill, ms: pill ? 5 : 3 }, `m${n}`);
    }
    const died = await world.untilIdle(full, pills.length * 3 + 3);
    const { starts, ends } = world.notes();
    const dead = await world.rabbit.deadLetters("work.dead").list();
    expect(dead.map(({ id }) => id).sort()).toEqual([...names].sort());
    for (const letter of dead)
      expect(letter).toMatchObject(full.isolate ? {} : { reason: "poison", error: null });
    for (const id of names) expect(starts.get(id)).toBeLessThanOrEqual(3);
    expect(ends.size).toBe(100 - names.length);
    expect(await queue.pending()).toBe(0);
    expect(died).toBeLessThanOrEqual(full.isolate ? 0 : pills.length * 3);
  });
}
