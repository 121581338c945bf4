import { describe, expect, it } from "vitest";
import { groupsOf, makePlan, pageOf, runPlan } from "../../../src/office/index.ts";
import { StoreDouble } from "./store.ts";

const now = 10_000;

describe("a plan", () => {
  it("freezes the set in order of death, whatever order was asked for", async () => {
    const store = new StoreDouble().add({ id: "early" }).add({ id: "late", failedAt: 2001 });
    const plan = await makePlan(store, { ids: ["late", "early", "late"] }, { action: "replay", now });
    expect(plan.letterIds).toEqual(["L0001", "L0002"]);
    expect(plan.hash).toMatch(/^[0-9a-f]{64}$/);
    expect(plan.byQueue).toEqual([{ queue: "orders", count: 2, exists: true }]);
  });

  it("leaves out, with the reason, what is missing, on its way, gone back or worn out", async () => {
    const store = new StoreDouble()
      .add({ id: "ok" })
      .add({ id: "moving", state: "replaying" })
      .add({ id: "back", state: "replayed" })
      .add({ id: "worn", replays: 3 });
    const ids = ["ok", "nobody", "moving", "back", "worn"];
    const plan = await makePlan(store, { ids }, { action: "replay", now });
    expect(plan.letterIds).toEqual(["L0001"]);
    expect(plan.leftOut.map((left) => [left.id, left.kind])).toEqual([
      ["nobody", "missing"],
      ["moving", "settled"],
      ["back", "settled"],
      ["worn", "refused"],
    ]);
    const forced = await makePlan(store, { ids: ["worn"] }, { action: "replay", now, force: true });
    expect(forced.letterIds).toEqual(["L0004"]);
  });

  it("takes all dead letters of a message id: one event can have died in two queues", async () => {
    const store = new StoreDouble()
      .add({ id: "m", sourceQueue: "orders" })
      .add({ id: "m", sourceQueue: "bills" })
      .add({ id: "m", sourceQueue: "post", state: "replayed" });
    const plan = await makePlan(store, { ids: ["m"] }, { action: "replay", now });
    expect(plan.letterIds).toEqual(["L0001", "L0002"]);
    expect(plan.leftOut).toEqual([]);
    const one = await makePlan(store, { ids: ["L0002"] }, { action: "replay", now });
    expect(one.letterIds).toEqual(["L0002"]);
  });

  it("takes a group by the beginning of its id, only while that is unique", async () => {
    const store = new StoreDouble()
      .add({ id: "a", fingerprint: "abc1" })
      .add({ id: "b", fingerprint: "abd2" });
    const plan = await makePlan(store, { group: "abc" }, { action: "replay", now });
    expect(plan.letterIds).toEqual(["L0001"]);
    await expect(makePlan(store, { group: "ab" }, { action: "replay", now })).rejects.toThrow(
      'group "ab" could be any of 2',
    );
    await expect(makePlan(store, { group: "zz" }, { action: "replay", now })).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
  });

  it("names a destination that does not exist, and an unclear selection", async () => {
    const store = new StoreDouble().add({ id: "a", sourceQueue: "gone" });
    await expect(makePlan(store, { all: true }, { action: "replay", now, to: "ordres" })).rejects.toThrow(
      'there is no queue "ordres" to send to (queues here: orders)',
    );
    await expect(makePlan(store, {}, { action: "replay", now })).rejects.toThrow("which letters? 0 ways");
    await expect(makePlan(store, { all: true, where: "" }, { action: "replay", now })).rejects.toThrow(
      "which letters? 2 ways",
    );
    const plan = await makePlan(store, { all: true }, { action: "replay", now });
    expect(plan.byQueue).toEqual([{ queue: "gone", count: 1, exists: false }]);
  });
});

describe("a run", () => {
  const world = () => {
    let time = 0;
    return {
      now: () => time,
      sleep: async (ms: number) => {
        time += ms;
      },
    };
  };

  it("keeps the order and the rate: 100 letters at 50 a second take 1980 ms", async () => {
    const w = world();
    const calls: [number, string][] = [];
    const ids = Array.from({ length: 100 }, (_, i) => `n${i}`);
    const act = async (step: readonly string[]) => {
      for (const id of step) calls.push([w.now(), id]);
      return { done: step, failed: [] };
    };
    let last: unknown;
    for await (const progress of runPlan(ids, { act, ratePerSecond: 50, ...w })) last = progress;
    expect(calls.map(([, id]) => id)).toEqual(ids);
    for (const [n, [at]] of calls.entries()) expect(at).toBeGreaterThanOrEqual(n * 20);
    expect(w.now()).toBe(1980);
    expect(last).toMatchObject({ total: 100, done: 100, failed: [], stopped: false });
  });

  it("stops between two steps and says so", async () => {
    const stop = new AbortController();
    const seen: string[] = [];
    const act = async (step: readonly string[]) => {
      seen.push(...step);
      if (seen.length === 3) stop.abort();
      return { done: step, failed: [] };
    };
    let last: unknown;
    for await (const progress of runPlan(["a", "b", "c", "d"], {
      act,
      ratePerSecond: 1,
      signal: stop.signal,
      ...world(),
    })) {
      last = progress;
    }
    expect(seen).toEqual(["a", "b", "c"]);
    expect(last).toMatchObject({ total: 4, done: 3, stopped: true });
  });

  it("goes on past a failed letter and names it", async () => {
    const store = new StoreDouble().add({ id: "a" }).add({ id: "b", sourceQueue: "gone" }).add({ id: "c" });
    let last: unknown;
    for await (const progress of runPlan(["L0001", "L0002", "L0003"], {
      act: async (ids) => store.replay(ids),
      ...world(),
    })) {
      last = progress;
    }
    expect(last).toMatchObject({ done: 2, failed: [{ id: "b", why: 'queue "gone" does not exist' }] });
    expect(store.sent.map((s) => s.id)).toEqual(["a", "c"]);
  });
});

describe("looking", () => {
  it("pages through what matches and shows only the dead unless asked", async () => {
    const store = new StoreDouble();
    for (let i = 0; i < 1203; i += 1) store.add({ id: `m${i}`, state: i % 2 ? "dead" : "discarded" });
    const ids: string[] = [];
    let after: string | undefined;
    for (;;) {
      const page = await pageOf(store, "", { limit: 100, now, ...(after && { after }) });
      ids.push(...page.letters.map((l) => l.id));
      if (page.next === null) break;
      after = page.next;
    }
    expect(ids.length).toBe(601);
    expect(new Set(ids).size).toBe(601);
    expect((await pageOf(store, "state:any", { limit: 5000, now })).letters.length).toBe(1203);
  });

  it("groups what a query leaves, largest first", async () => {
    const store = new StoreDouble()
      .add({ id: "a", fingerprint: "x", error: "E: one", attempts: 1 })
      .add({ id: "b", fingerprint: "y", error: "E: two", attempts: 3 })
      .add({ id: "c", fingerprint: "y", error: "E: two", attempts: 3 });
    expect((await groupsOf(store, "", now)).map((g) => [g.title, g.count])).toEqual([
      ["E: two", 2],
      ["E: one", 1],
    ]);
    expect((await groupsOf(store, "attempts:1", now)).map((g) => [g.title, g.count])).toEqual([
      ["E: one", 1],
    ]);
  });
});
