import { PermanentError, type Receipt } from "../core/index.ts";
import { runExperiment } from "./experiment.ts";
import { arrival, dies, process, soon } from "./help.ts";
import { type ConformanceOptions, itWhen, lacks, type TestFunctions, withWorld } from "./world.ts";

const BODIES: readonly unknown[] = [
  "text",
  "",
  "日本語 🎌 ünïcode\u0000\n",
  0,
  -1.5,
  true,
  null,
  [1, "x", null],
  { a: { b: [{ c: "deep" }] }, "": 1, __proto__x: 2 },
  "x".repeat(70_000),
];

const fails = (error: unknown) => () => {
  throw error;
};

/**
 * The queue's half of the conformance suite: the contract's six methods, crash points of the consumer's rules, and
 * every capability that `supports` declares. Call it inside a test file, with the runner's own functions.
 */
export function queueConformance(test: TestFunctions, options: ConformanceOptions): void {
  test.describe(`${options.name}: a queue by the contract`, () => {
    basics(test, options);
    retries(test, options);
    rules(test, options);
    starts(test, options);
    fences(test, options);
    delays(test, options);
    innocents(test, options);
  });
}

function basics(test: TestFunctions, options: ConformanceOptions): void {
  const { it, expect } = test;
  it(
    "hands out what was sent, first in, first out, and null when nothing waits",
    withWorld(options, async (world) => {
      const { queue } = await world.process();
      expect(await queue.receive()).toBe(null);
      for (const id of ["a", "b", "c"]) await queue.send(`body ${id}`, id);
      const got = [];
      for (let i = 0; i < 3; i++) got.push(await arrival(options, queue));
      if (options.ordered === false) got.sort((x, y) => (x.id < y.id ? -1 : 1));
      expect(got.map(({ id, body, receiveCount }) => ({ id, body, receiveCount }))).toEqual(
        ["a", "b", "c"].map((id) => ({ id, body: `body ${id}`, receiveCount: 1 })),
      );
      expect(got.every((message) => Number.isFinite(message.firstReceivedAt))).toBe(true);
      expect(await queue.receive()).toBe(null);
      expect(await queue.pending()).toBe(3);
      for (const { id, receipt } of got) await ack(queue, id, receipt);
      expect(await soon(options, async () => (await queue.pending()) === 0)).toBe(true);
    }),
  );
  it(
    "gives a message without an id one of its own, which stays the same",
    withWorld(options, async (world) => {
      const { queue } = await world.process();
      await queue.send("one");
      await queue.send("two");
      const first = await arrival(options, queue);
      const second = await arrival(options, queue);
      expect(typeof first.id).toBe("string");
      expect(first.id !== "" && first.id !== second.id).toBe(true);
      await queue.retry(first.id, first.receipt);
      expect((await arrival(options, queue)).id).toBe(first.id);
    }),
  );
  it(
    "keeps bodies as they are",
    withWorld(options, async (world) => {
      const { queue } = await world.process();
      for (const body of options.bodies ?? BODIES) {
        await queue.send({ id: "same", body });
        const message = await arrival(options, queue);
        expect(message.body).toEqual(body);
        await ack(queue, message.id, message.receipt);
      }
    }),
  );
}

function retries(test: TestFunctions, options: ConformanceOptions): void {
  const { it, expect } = test;
  it(
    "sends a retried message to the back, counts it, and keeps when it was first received",
    withWorld(options, async (world) => {
      const own = await world.process();
      await own.queue.send("A", "a");
      await own.queue.send("B", "b");
      const seen: string[] = [];
      const firstReceived = new Set<number>();
      const handler = (message: { id: string; receiveCount: number; firstReceivedAt: number }) => {
        seen.push(`${message.id}${message.receiveCount}`);
        if (message.id !== "a") return;
        firstReceived.add(message.firstReceivedAt);
        if (message.receiveCount === 1) throw new Error("again");
      };
      const outcomes = [];
      for (let i = 0; i < 3; i++) {
        outcomes.push(await process(options, own, handler));
        await world.wait(2);
      }
      expect([...outcomes].sort()).toEqual(["ok", "ok", "retry"]);
      if (options.ordered !== false) expect(seen).toEqual(["a1", "b1", "a2"]);
      expect(firstReceived.size).toBe(1);
    }),
  );
}

async function ack(
  queue: { ack(id: string, receipt?: Receipt): unknown },
  id: string,
  receipt: Receipt | undefined,
): Promise<void> {
  await (receipt === undefined ? queue.ack(id) : queue.ack(id, receipt));
}

function rules(test: TestFunctions, options: ConformanceOptions): void {
  const { it, expect } = test;
  it(
    "loses nothing and doubles no letter when the process dies at any point of a dead-lettering",
    withWorld(options, async (world) => {
      for (const need of ["has", "put", "ack"] as const) {
        for (const side of ["before", "after"] as const) {
          const own = await world.process();
          await own.queue.send("x", `${need}-${side}`);
          await dies(options, own, fails(new PermanentError("no")), { need, side });
          const next = await world.process();
          await next.queue.recover();
          for (let i = 0; i < 4 && (await next.queue.pending()) > 0; i++) {
            await process(options, next, fails(new PermanentError("no")));
          }
        }
      }
      const { queue, deadLetters } = await world.process();
      expect(await soon(options, async () => (await queue.pending()) === 0)).toBe(true);
      const ids = (await deadLetters.list()).map((entry) => entry.id).sort();
      const all = ["has", "put", "ack"].flatMap((need) => [`${need}-after`, `${need}-before`]);
      expect(ids).toEqual(all.sort());
    }),
  );
  itWhen(
    test,
    lacks(options, "countsCrashes"),
    "counts a start that the process did not survive, and gives a pill up after three",
    withWorld(options, async (world) => {
      await (await world.process()).queue.send("pill", "pill");
      const counts: number[] = [];
      const handler = (message: { receiveCount: number }) => counts.push(message.receiveCount);
      for (let start = 0; start < 3; start++) {
        const own = await world.process();
        await own.queue.recover();
        expect(await dies(options, own, handler, { need: "run", side: "after" })).toBe(true);
      }
      const last = await world.process();
      await last.queue.recover();
      expect(await process(options, last, handler)).toBe("dead");
      expect(counts).toEqual([1, 2, 3]);
      const entries = await last.deadLetters.list();
      expect(entries.map(({ id, reason, error, attempts }) => ({ id, reason, error, attempts }))).toEqual([
        { id: "pill", reason: "poison", error: null, attempts: 3 },
      ]);
    }),
  );
}

function starts(test: TestFunctions, options: ConformanceOptions): void {
  const { expect } = test;
  itWhen(
    test,
    lacks(options, "countsStarts"),
    "counts starts, not what was only taken into a window, and marks what was started as suspect",
    withWorld(options, async (world) => {
      const own = await world.process();
      await own.queue.send("1", "started");
      await own.queue.send("2", "taken");
      const first = await arrival(options, own.queue);
      await arrival(options, own.queue);
      const begun = await own.queue.begin?.(first.id, first.receipt);
      expect(begun?.receiveCount).toBe(1);
      await own.crash();
      const next = await world.process();
      await next.queue.recover();
      const back = new Map<string, { receiveCount: number; suspect: boolean }>();
      for (let i = 0; i < 2; i++) {
        const { id, receipt, receiveCount, suspect } = await arrival(options, next.queue);
        back.set(id, { receiveCount, suspect: suspect === true });
        await ack(next.queue, id, receipt);
      }
      expect(back.get("started")).toEqual({ receiveCount: 2, suspect: true });
      expect(back.get("taken")).toEqual({ receiveCount: 1, suspect: false });
    }),
  );
  itWhen(
    test,
    lacks(options, "countsStarts"),
    "takes a start back that was interrupted from outside",
    withWorld(options, async (world) => {
      const { queue } = await world.process();
      await queue.send("x", "a");
      const message = await arrival(options, queue);
      await queue.begin?.(message.id, message.receipt);
      await queue.release?.(message.id, message.receipt);
      const again = await arrival(options, queue);
      expect(again.receiveCount).toBe(1);
      expect(again.suspect === true).toBe(false);
    }),
  );
  itWhen(
    test,
    lacks(options, "countsStarts"),
    "hands out one suspect at a time",
    withWorld(options, async (world) => {
      const own = await world.process();
      for (const id of ["a", "b"]) {
        await own.queue.send("x", id);
        const message = await arrival(options, own.queue);
        await own.queue.begin?.(message.id, message.receipt);
      }
      await own.crash();
      const next = await world.process();
      const other = await world.process();
      await next.queue.recover();
      const suspect = await arrival(options, next.queue);
      expect(suspect.suspect).toBe(true);
      expect(await other.queue.receive()).toBe(null);
      await ack(next.queue, suspect.id, suspect.receipt);
      expect((await arrival(options, other.queue)).suspect).toBe(true);
    }),
  );
}

function fences(test: TestFunctions, options: ConformanceOptions): void {
  const { expect } = test;
  itWhen(
    test,
    lacks(options, "countsStarts"),
    "refuses the settlement of a delivery that was taken over",
    withWorld(options, async (world) => {
      const frozen = await world.process();
      await frozen.queue.send("x", "a");
      const old = await arrival(options, frozen.queue);
      await frozen.crash();
      const next = await world.process();
      await next.queue.recover();
      const taken = await arrival(options, next.queue);
      let refused = false;
      try {
        await frozen.queue.ack(old.id, old.receipt);
      } catch {
        refused = true;
      }
      expect(refused).toBe(true);
      expect(await next.queue.pending()).toBe(1);
      await ack(next.queue, taken.id, taken.receipt);
      expect(await soon(options, async () => (await next.queue.pending()) === 0)).toBe(true);
    }),
  );
}

function delays(test: TestFunctions, options: ConformanceOptions): void {
  const { expect } = test;
  itWhen(
    test,
    lacks(options, "delays"),
    "keeps a delayed retry back without holding up what is behind it",
    withWorld(options, async (world) => {
      const { queue } = await world.process();
      await queue.send("1", "slow");
      await queue.send("2", "next");
      const slow = await arrival(options, queue);
      if (queue.begin) await queue.begin(slow.id, slow.receipt);
      await queue.retry(slow.id, slow.receipt, { delayMs: 300, error: "Error: not yet" });
      const next = await arrival(options, queue);
      expect(next.id).toBe("next");
      await ack(queue, next.id, next.receipt);
      expect(await queue.receive()).toBe(null);
      expect(await queue.pending()).toBe(1);
      await world.wait(310);
      const back = await arrival(options, queue);
      expect([back.id, back.receiveCount]).toEqual(["slow", 2]);
    }),
  );
}

function innocents(test: TestFunctions, options: ConformanceOptions): void {
  const { expect } = test;
  for (const window of [1, 20]) {
    for (const concurrency of [1, 20]) {
      for (const pills of [1, 4]) {
        if (concurrency > window) continue;
        const missing = window > 1 ? lacks(options, "countsStarts") : lacks(options, "countsCrashes");
        itWhen(
          test,
          missing,
          `blames no innocent: 100 messages, ${pills} of them killing, window ${window}, ${concurrency} at a time`,
          withWorld(options, async (world) => {
            const found = await runExperiment(world, { messages: 100, window, concurrency, pills });
            expect(found.unhandled).toEqual([]);
            expect(found.deadInnocents).toEqual([]);
            expect(found.deadPills).toEqual(found.pills);
            expect(found.mostPillStarts <= 3).toBe(true);
            expect(found.left).toBe(0);
          }),
        );
      }
    }
  }
}
