import type { OperationResult } from "../ports/index.ts";

/** How a run goes on: after each step, what has become of the letters so far. */
export interface Progress {
  readonly total: number;
  readonly done: number;
  readonly failed: readonly { readonly id: string; readonly why: string }[];
  /** True when the signal ended the run before all letters had their turn; the rest is untouched. */
  readonly stopped: boolean;
}

export interface RunOptions {
  /** Does one step; called with ids in order, never two calls at once. */
  readonly act: (letterIds: readonly string[]) => Promise<OperationResult>;
  /** At most this many letters a second, evenly; absent: as fast as it goes. */
  readonly ratePerSecond?: number;
  /** Ends the run between two steps. */
  readonly signal?: AbortSignal;
  /** Monotonic ms. */
  readonly now: () => number;
  /** Resolves after `ms`, or early when the signal aborts. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** One transaction of the store; small enough that a Ctrl-C is obeyed at once. */
const STEP = 100;

/**
 * Runs an operation over a frozen set in its order, at a rate. With `ratePerSecond` r, letter n (from 0) goes not
 * before n / r seconds after the first. Each step is whole or not at all in the store; a stop or a crash between
 * steps leaves the rest as it was, and running the same selection again does just the rest.
 */
export async function* runPlan(letterIds: readonly string[], options: RunOptions): AsyncGenerator<Progress> {
  const { ratePerSecond, signal } = options;
  const failed: { id: string; why: string }[] = [];
  let done = 0;
  let next = 0;
  const startedAt = options.now();
  while (next < letterIds.length && !signal?.aborted) {
    let step = STEP;
    if (ratePerSecond !== undefined) {
      const due = Math.floor(((options.now() - startedAt) * ratePerSecond) / 1000) + 1 - next;
      if (due < 1) {
        await options.sleep(Math.ceil((next * 1000) / ratePerSecond - (options.now() - startedAt)), signal);
        continue;
      }
      step = Math.min(STEP, due);
    }
    const ids = letterIds.slice(next, next + step);
    const result = await options.act(ids);
    next += ids.length;
    done += result.done.length;
    failed.push(...result.failed);
    yield { total: letterIds.length, done, failed, stopped: false };
  }
  if (next < letterIds.length) yield { total: letterIds.length, done, failed, stopped: true };
}
