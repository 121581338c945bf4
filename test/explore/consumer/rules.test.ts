/**
 * The checker must be able to fail: each rule of the consumer, switched off alone, is found out by the promise it
 * keeps. The changed lines are shown, so that nobody has to guess what "off" means.
 */
import { describe, expect, it } from "vitest";
import type { processOne, replay } from "../../../src/core/index.ts";
import type { MemoryStore } from "../../../src/engines/memory/store.ts";
import { MemoryDLQ, MemoryQueue } from "../../../src/index.ts";
import { runExperiment } from "../../../src/testing/index.ts";
import { type Check, explore, type Setting } from "./explore.ts";
import { type Change, mutant } from "./mutant.ts";
import { plainScene, storeScene } from "./worlds.ts";

const consume = (...changes: Change[]) =>
  mutant<{ processOne: typeof processOne }>("core/consume.ts", changes);
const storeWith = (changes: Change[], others = {}) =>
  mutant<{ MemoryStore: typeof MemoryStore }>("engines/memory/store.ts", changes, others).MemoryStore;
/** A store whose letters follow other rules. */
const lettersWith = (...changes: Change[]) =>
  storeWith([], { "engines/memory/letters.ts": mutant<object>("engines/memory/letters.ts", changes) });

function finds<S>(setting: Setting<S>, check: Check) {
  const { broken, way, states } = explore(setting);
  expect(broken, `nothing found in ${states} states`).toEqual(expect.stringContaining(check));
  expect(way.length).toBeGreaterThan(0);
  // Breadth first: the shortest way there is short enough to be read.
  expect(way.length).toBeLessThanOrEqual(30);
}

const RECEIVED = "  if (message === null || message === undefined) return null;\n";
const HAS = `  if (yield { type: "has", message }) {
    yield { type: "ack", message };
    return "dead";
  }
`;
const POISON = `  if (isPoison(message, rules.maxAttempts)) {
    return yield* bury(rules, message, "poison", null, runsBefore(message, rules.maxAttempts));
  }
`;
const PUT = `  yield { type: "put", entry };\n`;
const ACK = `  yield { type: "ack", message };\n  return "dead";\n}`;
const SUPERSEDE =
  '  if (message.generation !== undefined && message.generation > 1) yield { type: "supersede", message };\n';

describe("each rule of the consumer, switched off, has its counterexample", () => {
  const plain = { scene: plainScene(), consumers: 1, maxAttempts: 2, kills: 1 };

  it("ack before put: the message is lost", () => {
    const rules = consume([PUT, ""], [ACK, ACK.replace(";\n", `;\n${PUT}`)]);
    finds({ ...plain, messages: { a: "permanent" }, rules }, "is lost");
  });

  it("no look into the dead letters: the handler runs again after its dead letter", () => {
    finds(
      { ...plain, messages: { a: "permanent" }, rules: consume([HAS, ""]) },
      "runs after its dead letter",
    );
  });

  it("a look only just before put: the handler runs again after its dead letter", () => {
    const rules = consume([HAS, ""], [PUT, HAS + PUT]);
    finds({ ...plain, messages: { a: "permanent" }, rules }, "runs after its dead letter");
  });

  it("poison before the look: two entries", () => {
    const rules = consume([HAS, POISON + HAS]);
    finds({ ...plain, messages: { pill: "pill" }, rules }, "has two entries");
  });

  it("a count in memory: starts without end", () => {
    const fresh = "  (message as { receiveCount: number }).receiveCount = 1;\n";
    const rules = consume([RECEIVED, RECEIVED + fresh]);
    finds({ ...plain, messages: { pill: "pill" }, rules }, "is started too often");
  });

  it("a limit that is one too high: one start too many", () => {
    const rules = consume([
      POISON,
      POISON.replace("isPoison(message, rules.", "isPoison(message, 1 + rules."),
    ]);
    finds({ ...plain, messages: { pill: "pill" }, rules }, "is started too often");
  });

  it("a recover of everything while two consumers live: two entries", () => {
    const scene = plainScene({ recoversAll: true });
    const messages = { a: "permanent" } as const;
    finds({ ...plain, scene, consumers: 2, messages }, "runs after its dead letter");
    finds(
      { ...plain, scene, consumers: 2, messages, without: ["runs after its dead letter"] },
      "has two entries",
    );
  });

  it("starts that are not counted before the handler: starts without end", () => {
    const rules = consume([
      'rules.begins ? ((yield { type: "begin", message }) as Message) : message',
      "message",
    ]);
    const messages = { pill: "pill" } as const;
    finds({ scene: storeScene(), consumers: 1, maxAttempts: 2, messages, rules }, "is started too often");
  });

  it("no fence: a consumer that was taken over starts what another one holds", () => {
    const fence = "one.id === id && one.holder === this.#process && fits(one, receipt)";
    const scene = storeScene({ Store: storeWith([[fence, "one.id === id && one.holder !== 0"]]) });
    const setting = { scene, consumers: 2, maxAttempts: 2, takeovers: 1, messages: { a: "any" } } as const;
    finds(setting, "is started too often");
  });
});

describe("the rule that a lease is not a delivery, switched off", () => {
  const many = { messages: 100, window: 20, concurrency: 1, pills: 1 };
  const world = (queue: MemoryQueue, deadLetters: MemoryDLQ) => ({
    process: () => ({ queue, deadLetters, crash: () => void queue.recover() }),
    wait: () => {},
    close: () => {},
  });

  it("dead-letters innocents that were only in the window of a pill", async () => {
    const found = await runExperiment(world(new MemoryQueue(), new MemoryDLQ()), many);
    expect(found.deadPills).toEqual(found.pills);
    expect(found.deadInnocents.length).toBeGreaterThanOrEqual(9);
  });

  it("blames nobody at window 1, where a lease and a delivery are the same", async () => {
    const found = await runExperiment(world(new MemoryQueue(), new MemoryDLQ()), { ...many, window: 1 });
    expect([found.deadPills, found.deadInnocents]).toEqual([found.pills, []]);
  });

  it("dead-letters innocents when those that ran beside a pill are not tried alone", async () => {
    const Store = storeWith([["      row.suspect = true;\n", ""]]);
    const store = new Store();
    const open = () => store.open();
    const crowd = { messages: 100, window: 20, concurrency: 20, pills: 4 };
    const found = await runExperiment({ process: open, wait: () => {}, close: () => {} }, crowd);
    expect(found.deadInnocents.length).toBeGreaterThan(0);
  });
});

describe("each rule of replay, switched off, has its counterexample", () => {
  const one = { consumers: 1, maxAttempts: 1, replays: 1, kills: 1, messages: { a: "permanent" } } as const;

  it("remove before send: the message is lost when the replayer dies", () => {
    const send = `    yield { type: "send", entry };\n`;
    const remove = `    yield { type: "remove", entry };\n`;
    const rules = mutant<{ replay: typeof replay }>("core/replay.ts", [[send + remove, remove + send]]);
    finds({ ...one, scene: plainScene(), unbroken: true, rules }, "is lost");
  });

  it("something pending between send and remove, on plain stores: lost without any crash", () => {
    finds({ ...one, scene: plainScene(), kills: 0 }, "is lost");
  });

  const apart = { ...one, replays: 2, messages: { a: "any" } } as const;
  const withStore = (Store: typeof MemoryStore) => storeScene({ apart: true, Store });

  it("a look that does not ask for the life: the replayed message is swallowed", () => {
    const Store = lettersWith(["life >= generation && (", "("]);
    finds({ ...apart, kills: 0, scene: withStore(Store) }, "is lost");
  });

  it("a later life put beside the earlier entry: two entries", () => {
    const Store = lettersWith([
      "const before = this.#bury({ ...entry, generation: generation - 1 });",
      "const before = undefined;",
    ]);
    finds({ ...apart, scene: withStore(Store), rules: consume([SUPERSEDE, ""]) }, "has two entries");
  });

  it("a remove that does not ask for the life: a message that has died again is lost", () => {
    const Store = lettersWith(
      ["(generation === undefined || generationOf(entry) === generation) &&", "true &&"],
      // What is removed is buried by its own life, so the change needs nothing else.
    );
    finds({ ...apart, replayers: 2, scene: withStore(Store) }, "is lost");
  });

  it("no tombstone: a message runs again in a life that is over", () => {
    const Store = lettersWith(["if (tombs.length > 0) tombstones.set(id, tombs);", ""]);
    finds({ ...apart, maxAttempts: 2, scene: withStore(Store) }, "runs in a life that is over");
  });

  it("a life that may be sent twice: two messages", () => {
    const Store = storeWith([["      if ((sent.get(key) ?? 1) >= generation) return id;\n", ""]]);
    finds({ ...apart, scene: withStore(Store) }, "is in the queue twice");
  });

  it("a later life that leaves the earlier entry: a dead letter of what is handled", () => {
    const rules = consume([SUPERSEDE, ""]);
    const scene = storeScene({ apart: true });
    finds({ ...apart, replays: 1, scene, rules }, "is handled and still among the dead");
  });
});
