import { describe, expect, test } from "vitest";
import {
  type ChildEvent,
  type ChildState,
  type Death,
  type Doom,
  judge,
  move,
  startBackoffMs,
  startsDue,
} from "../../../src/worker/policy.ts";

const death = (more: Partial<Death> = {}): Death => ({
  code: null,
  signal: "SIGKILL",
  stderr: "",
  doom: null,
  running: 7,
  runs: 3,
  flight: { started: 7 },
  idOf: (run) => (run === 5 ? "m5" : undefined),
  ...more,
});

const result = (more: Partial<Death>) => {
  const verdict = judge(death(more));
  return verdict.kind === "result" ? verdict.result : verdict.kind;
};

describe("the states of a child", () => {
  const states: ChildState[] = ["starting", "idle", "busy", "leaving", "doomed", "dead"];
  const events: ChildEvent[] = ["ready", "run", "outcome", "retire", "doom", "exit"];
  const legal = states.flatMap((state) =>
    events.flatMap((event) => {
      try {
        return [`${state} ${event} ${move(state, event)}`];
      } catch (error) {
        expect(error).toMatchObject({ code: "INTERNAL" });
        return [];
      }
    }),
  );

  test("only an idle child is given a run", () => {
    expect(legal.filter((line) => line.includes(" run "))).toEqual(["idle run busy"]);
  });

  test("every state but dead ends with the exit, and nothing comes after it", () => {
    expect(legal.filter((line) => line.includes(" exit "))).toHaveLength(5);
    expect(legal.filter((line) => line.startsWith("dead"))).toEqual([]);
  });

  test("nothing leads back from doomed or leaving to work", () => {
    for (const line of legal.filter((l) => l.startsWith("doomed") || l.startsWith("leaving"))) {
      expect(line).toMatch(/(doomed|leaving|dead)$/);
    }
  });
});

describe("who is blamed for a death", () => {
  test("nobody, when nothing was running", () => {
    for (const doom of [null, { why: "closing" } as Doom]) {
      expect(result({ running: null, doom, flight: { started: 6, exitRun: 6 } })).toBe("nobody");
    }
  });

  test("nobody, when the handler was never entered: the run goes to another child", () => {
    expect(result({ flight: { started: 6 } })).toBe("another");
    expect(result({ flight: { started: 0 }, code: 1, signal: null })).toBe("another");
    expect(result({ flight: { started: 6 }, doom: { why: "deadline", timeoutMs: 5 } })).toBe("another");
  });

  test("without a flight recorder the run it had been given", () => {
    expect(result({ flight: null })).toEqual({ outcome: "crashed", cause: "signal SIGKILL" });
  });

  test("not the message that was cut off by a close", () => {
    expect(result({ doom: { why: "closing" } })).toEqual({ outcome: "interrupted", cause: "closing" });
  });

  test("the run whose exit it was", () => {
    const exit = { code: 2, signal: null };
    expect(result({ ...exit, flight: { started: 7, exitRun: 7 } })).toMatchObject({
      outcome: "crashed",
      cause: "exit code 2",
    });
    expect(result({ ...exit, flight: { started: 7, exitRun: 5 } })).toEqual({
      outcome: "interrupted",
      cause: 'exit code 2 by message "m5"',
    });
  });

  test("where the context is lost, only a run that had the process to itself", () => {
    const exit = { code: 2, signal: null, flight: { started: 7, exitRun: 0 } };
    expect(result({ ...exit, runs: 1 })).toMatchObject({ outcome: "crashed" });
    expect(result({ ...exit, runs: 2 })).toEqual({
      outcome: "interrupted",
      cause: "exit code 2 by another message",
    });
    const fault = { run: 0, origin: "uncaught exception", text: "Error: x" } as const;
    expect(result({ doom: { why: "fault", fault }, runs: 1 })).toEqual({
      outcome: "crashed",
      cause: "uncaught exception",
      detail: "Error: x",
    });
    expect(result({ doom: { why: "fault", fault }, runs: 2 })).toMatchObject({ outcome: "interrupted" });
  });

  test("nobody, when a signal asked the process to end and it did", () => {
    expect(result({ code: 0, signal: null, flight: { started: 7, asked: true } })).toMatchObject({
      outcome: "interrupted",
    });
  });

  test("heap out of memory needs both V8's words and an abort", () => {
    const stderr = "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory";
    expect(result({ signal: "SIGABRT", stderr })).toMatchObject({ cause: "heap out of memory" });
    expect(result({ signal: "SIGABRT" })).toMatchObject({ cause: "signal SIGABRT" });
    expect(result({ code: 1, signal: null, stderr })).toMatchObject({ cause: "exit code 1" });
  });

  test("a deadline is a failure with the time in its words, not a crash", () => {
    const words = (doom: Doom) => {
      const one = result({ doom });
      return typeof one === "object" && one.outcome === "failed" ? one.error.message : one;
    };
    expect(words({ why: "deadline", timeoutMs: 200 })).toBe(
      "handler timed out after 200 ms; its process was killed",
    );
    expect(words({ why: "deadline", timeoutMs: 200, blocked: true })).toContain("event loop was blocked");
    expect(words({ why: "silent", silentMs: 3000 })).toContain("blocked for 3000 ms");
  });
});

describe("starting children", () => {
  test("waits double from 100 ms to 5 s", () => {
    expect([0, 1, 2, 3, 6, 7, 100].map(startBackoffMs)).toEqual([0, 100, 200, 400, 3200, 5000, 5000]);
  });

  test("one alone until one was ready and after a failure, then several at a time", () => {
    const now = { wanted: 5, alive: 0, starting: 0, failures: 0, everReady: false, parallel: 2 };
    expect(startsDue(now)).toBe(1);
    expect(startsDue({ ...now, alive: 1, starting: 1 })).toBe(0);
    expect(startsDue({ ...now, alive: 1, everReady: true })).toBe(2);
    expect(startsDue({ ...now, alive: 1, everReady: true, failures: 1 })).toBe(1);
    expect(startsDue({ ...now, alive: 5, everReady: true })).toBe(0);
  });
});
