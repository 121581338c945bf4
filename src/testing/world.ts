/** What the suites ask of an engine, and of the test runner. */
import type { DeadLetters, Maybe, Queue, QueueSupports } from "../ports/index.ts";

/** The test runner's own functions: those of vitest, jest or any other with the same meaning. */
export interface TestFunctions {
  describe(name: string, body: () => void): unknown;
  it(name: string, body: (context?: unknown) => unknown): unknown;
  expect(value: unknown): { toBe(expected: unknown): unknown; toEqual(expected: unknown): unknown };
}

/** One process's view of the queue and its dead letters. */
export interface ConformanceProcess {
  readonly queue: Queue;
  readonly deadLetters: DeadLetters;
  /**
   * The process dies: nothing more is settled, its connection or handle is gone without a goodbye. After it (and a
   * `recover()` by another process) what it held must be deliverable again. Its ports are not used any more.
   */
  crash(): Maybe<void>;
}

/** A fresh, empty queue with its dead letters. */
export interface ConformanceWorld {
  /** One more process on the same queue and store. */
  process(): Maybe<ConformanceProcess>;
  /** Lets `ms` pass for the engine: a fake clock set forward, or a real wait. */
  wait(ms: number): Maybe<void>;
  close(): Maybe<void>;
}

/**
 * An engine under test.
 *
 * @example
 * queueConformance({ describe, it, expect }, {
 *   name: "my queue",
 *   supports: { countsCrashes: true, countsStarts: false, delays: false, atomicBury: false, generations: false },
 *   open: () => {
 *     const queue = new MyQueue();
 *     const deadLetters = new MyLetters();
 *     return {
 *       process: () => ({ queue, deadLetters, crash: () => queue.recover() }),
 *       wait: (ms) => new Promise((done) => setTimeout(done, ms)),
 *       close: () => {},
 *     };
 *   },
 * });
 */
export interface ConformanceOptions {
  readonly name: string;
  /** What the engine can; what it cannot is skipped, and its test says so in its name. */
  readonly supports: QueueSupports;
  open(): Maybe<ConformanceWorld>;
  /** Bodies that must come back unchanged; default: values that JSON can carry, and a long text. */
  readonly bodies?: readonly unknown[];
  /** How far `send` keeps the order; false for queues that may hand out in another one. Default true. */
  readonly ordered?: boolean;
  /** How long to wait for a message that was sent but is not there yet, ms; default 2,000. */
  readonly patienceMs?: number;
}

/** A test with a fresh world, which is closed whatever happens. */
export function withWorld(
  options: ConformanceOptions,
  body: (world: ConformanceWorld) => Promise<void>,
): () => Promise<void> {
  return async () => {
    const world = await options.open();
    try {
      await body(world);
    } finally {
      await world.close();
    }
  };
}

/** A test that is skipped, in its name and, where the runner can, in its report, when a capability is missing. */
export function itWhen(
  test: TestFunctions,
  missing: string | undefined,
  name: string,
  body: () => Promise<void>,
): void {
  if (missing === undefined) {
    test.it(name, body);
    return;
  }
  test.it(`${name} [skipped: ${missing}]`, (context) => {
    const skip = (context as { skip?: (reason: string) => void } | undefined)?.skip;
    if (typeof skip === "function") skip.call(context, missing);
  });
}

/** Why a capability's tests are skipped; undefined where they are not. */
export function lacks(options: ConformanceOptions, ...needed: (keyof QueueSupports)[]): string | undefined {
  const missing = needed.filter((one) => !options.supports[one]);
  return missing.length === 0 ? undefined : `not supported: ${missing.join(", ")}`;
}
