import type { DeadLetter } from "../core/index.ts";
import { arrival, process, replayAll, sevenOf, soon } from "./help.ts";
import { type ConformanceOptions, itWhen, lacks, type TestFunctions, withWorld } from "./world.ts";

function letter(id: string, more: Partial<DeadLetter> = {}): DeadLetter {
  return {
    id,
    body: { of: id },
    reason: "exhausted",
    error: "Error: no",
    attempts: 3,
    firstAttemptAt: 1_000,
    failedAt: 2_000,
    ...more,
  };
}

const failing = (): never => {
  throw new Error("no");
};

/**
 * The dead-letter store's half of the conformance suite: the contract's four methods, replay by the consumer's
 * rules with crash points, and lives (generations) where `supports` declares them.
 */
export function deadLettersConformance(test: TestFunctions, options: ConformanceOptions): void {
  test.describe(`${options.name}: dead letters by the contract`, () => {
    basics(test, options);
    replays(test, options);
    lives(test, options);
    marks(test, options);
  });
}

function basics(test: TestFunctions, options: ConformanceOptions): void {
  const { it, expect } = test;
  it(
    "keeps entries whole and in order of death, each once",
    withWorld(options, async (world) => {
      const { deadLetters } = await world.process();
      expect([...(await deadLetters.list())]).toEqual([]);
      expect(await deadLetters.has("a")).toBe(false);
      const entries = [
        letter("a"),
        letter("b", { reason: "poison", error: null }),
        letter("c", { body: "text" }),
      ];
      for (const entry of [...entries, ...entries]) await deadLetters.put(entry);
      expect(await deadLetters.has("b")).toBe(true);
      expect((await deadLetters.list()).map(sevenOf)).toEqual(entries);
    }),
  );
  it(
    "removes an entry, and says nothing about one it does not have",
    withWorld(options, async (world) => {
      const { deadLetters } = await world.process();
      for (const id of ["a", "b"]) await deadLetters.put(letter(id));
      await deadLetters.remove("a");
      await deadLetters.remove("nobody");
      expect((await deadLetters.list()).map((entry) => entry.id)).toEqual(["b"]);
    }),
  );
}

function replays(test: TestFunctions, options: ConformanceOptions): void {
  const { it, expect } = test;
  it(
    "sends letters back under their ids, once each, to start again at count 1",
    withWorld(options, async (world) => {
      const own = await world.process();
      for (const id of ["a", "b", "c"]) {
        await own.queue.send(`body ${id}`, id);
        for (let i = 0; i < 3; i++) await process(options, own, failing);
      }
      const died = (await own.deadLetters.list()).map((entry) => entry.id);
      expect(died).toEqual(["a", "b", "c"]);
      expect(await replayAll(own, ["b", "nobody", "b"])).toEqual(["b"]);
      expect(await replayAll(own)).toEqual(["a", "c"]);
      expect([...(await own.deadLetters.list())]).toEqual([]);
      const seen: string[] = [];
      const handler = (message: { id: string; body: unknown; receiveCount: number }) =>
        void seen.push(`${message.id} ${String(message.body)} ${message.receiveCount}`);
      for (let i = 0; i < 3; i++) expect(await process(options, own, handler)).toBe("ok");
      expect(seen.sort()).toEqual(["a body a 1", "b body b 1", "c body c 1"]);
      expect(await soon(options, async () => (await own.queue.pending()) === 0)).toBe(true);
    }),
  );
}

function lives(test: TestFunctions, options: ConformanceOptions): void {
  const { expect } = test;
  itWhen(
    test,
    lacks(options, "generations"),
    "knows a life by its tombstone, and puts a later life in the place of an earlier one",
    withWorld(options, async (world) => {
      const { deadLetters } = await world.process();
      await deadLetters.put(letter("a", { generation: 1 }));
      expect([await deadLetters.has("a", 1), await deadLetters.has("a", 2)]).toEqual([true, false]);
      await deadLetters.remove("a", 2);
      expect(await deadLetters.has("a", 1)).toBe(true);
      await deadLetters.put(letter("a", { generation: 2, failedAt: 3_000 }));
      expect((await deadLetters.list()).map((entry) => [entry.id, entry.generation, entry.failedAt])).toEqual(
        [["a", 2, 3_000]],
      );
      await deadLetters.put(letter("a", { generation: 1 }));
      await deadLetters.remove("a", 1);
      expect((await deadLetters.list()).length).toBe(1);
      await deadLetters.remove("a", 2);
      await deadLetters.put(letter("a", { generation: 2 }));
      expect([(await deadLetters.list()).length, await deadLetters.has("a", 2)]).toEqual([0, true]);
      expect(await deadLetters.has("a", 3)).toBe(false);
    }),
  );
  itWhen(
    test,
    lacks(options, "generations"),
    "keeps letters of one id apart by the queue they died in",
    withWorld(options, async (world) => {
      const { deadLetters } = await world.process();
      const [first, second] = ["one", "two"].map((sourceQueue) =>
        letter("a", { generation: 1, sourceQueue }),
      ) as [DeadLetter, DeadLetter];
      await deadLetters.put(first);
      const has = async (queue: string): Promise<boolean> => deadLetters.has("a", 1, first.body, queue);
      expect([await has("one"), await has("two")]).toEqual([true, false]);
      await deadLetters.put(second);
      await deadLetters.put(second);
      expect((await deadLetters.list()).map((entry) => entry.sourceQueue)).toEqual(["one", "two"]);
      await deadLetters.remove("a", 1, first.body, "one");
      expect((await deadLetters.list()).map((entry) => entry.sourceQueue)).toEqual(["two"]);
      expect([await has("one"), await has("two")]).toEqual([true, true]);
    }),
  );
  itWhen(
    test,
    lacks(options, "generations"),
    "tells of earlier lives when a replayed message dies again",
    withWorld(options, async (world) => {
      const own = await world.process();
      await own.queue.send("x", "a");
      for (let life = 1; life <= 2; life++) {
        for (let i = 0; i < 3; i++) await process(options, own, failing);
        if (life === 1) expect(await replayAll(own)).toEqual(["a"]);
      }
      const [entry, ...more] = await own.deadLetters.list();
      expect(more).toEqual([]);
      expect([entry?.generation, entry?.attempts, entry?.lives]).toEqual([2, 3, 2]);
      expect((entry?.earlier ?? []).map((life) => [life.generation, life.attempts])).toEqual([[1, 3]]);
    }),
  );
}

function marks(test: TestFunctions, options: ConformanceOptions): void {
  const { expect } = test;
  itWhen(
    test,
    lacks(options, "generations"),
    "neither loses nor doubles a message when a replayer dies at any point",
    withWorld(options, async (world) => {
      for (const need of ["resend", "mark", "send", "remove"] as const) {
        for (const side of ["before", "after"] as const) {
          const id = `${need}-${side}`;
          const own = await world.process();
          await own.queue.send("x", id);
          for (let i = 0; i < 3; i++) await process(options, own, failing);
          const replayer = await world.process();
          const died = await replayAll(replayer, undefined, { need, side }).then(
            () => false,
            () => true,
          );
          if (died) await replayer.crash();
          await replayAll(await world.process());
          const seen: number[] = [];
          const handler = (message: { receiveCount: number }) => void seen.push(message.receiveCount);
          expect(await process(options, own, handler)).toBe("ok");
          expect(await soon(options, async () => (await own.queue.pending()) === 0)).toBe(true);
          expect(seen).toEqual([1]);
          expect([...(await own.deadLetters.list())]).toEqual([]);
        }
      }
    }),
  );
  itWhen(
    test,
    lacks(options, "atomicBury"),
    "dead-letters in one transaction with the queue",
    withWorld(options, async (world) => {
      const own = await world.process();
      await own.queue.send("x", "a");
      const message = await arrival(options, own.queue);
      const { queue, deadLetters } = own;
      const entry = letter("a", { body: "x", generation: message.generation ?? 1 });
      expect(await queue.bury?.(message.id, message.receipt, entry, deadLetters)).toBe(true);
      expect(await queue.pending()).toBe(0);
      expect((await deadLetters.list()).map((one) => one.id)).toEqual(["a"]);
    }),
  );
}
