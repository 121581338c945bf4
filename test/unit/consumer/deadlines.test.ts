import { describe, expect, it, vi } from "vitest";
import { Deadlines } from "../../../src/consumer/deadlines.ts";

/** Timers and the monotonic clock under our hand. */
function world(limitMs: number) {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const deadlines = new Deadlines(limitMs);
  const expired: string[] = [];
  const begin = (name: string) => {
    const one = { endsAt: 0, expire: () => void expired.push(name) };
    deadlines.add(one);
    return one;
  };
  return { deadlines, expired, begin };
}

describe("time limits of one length", () => {
  it("tell each whose time is up, once, and nobody who was done before", () => {
    try {
      const { deadlines, expired, begin } = world(100);
      const a = begin("a");
      vi.advanceTimersByTime(40);
      begin("b");
      const c = begin("c");
      vi.advanceTimersByTime(20);
      begin("d");
      deadlines.done(c);
      vi.advanceTimersByTime(39);
      expect(expired).toEqual([]);
      vi.advanceTimersByTime(1);
      expect(expired).toEqual(["a"]);
      deadlines.done(a);
      vi.advanceTimersByTime(40);
      expect(expired).toEqual(["a", "b"]);
      vi.advanceTimersByTime(20);
      expect(expired).toEqual(["a", "b", "d"]);
      expect(vi.getTimerCount()).toBe(0);
      begin("e");
      vi.advanceTimersByTime(100);
      expect(expired).toEqual(["a", "b", "d", "e"]);
    } finally {
      vi.useRealTimers();
    }
  });

  it("hold the process only while something is timed", () => {
    const holding = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
    const before = holding();
    const deadlines = new Deadlines(60_000);
    const one = { endsAt: 0, expire: () => {} };
    for (let round = 0; round < 2; round++) {
      deadlines.add(one);
      expect(holding()).toBe(before + 1);
      deadlines.done(one);
      expect(holding()).toBe(before);
    }
  });

  it("need one timer for all", () => {
    try {
      const { deadlines, expired, begin } = world(100);
      const many = Array.from({ length: 1_000 }, (_, n) => begin(`${n}`));
      expect(vi.getTimerCount()).toBe(1);
      for (const one of many) deadlines.done(one);
      vi.advanceTimersByTime(90);
      const late = begin("late");
      vi.advanceTimersByTime(10);
      expect([expired, vi.getTimerCount()]).toEqual([[], 1]);
      deadlines.done(late);
      vi.advanceTimersByTime(100);
      expect([expired, vi.getTimerCount()]).toEqual([[], 0]);
    } finally {
      vi.useRealTimers();
    }
  });
});
