/** How long to wait before the next try. */
import { DloError } from "./errors.ts";

/** Exponential: `baseMs * factor^(attempt - 1)`, at most `maxMs`, spread by `jitter`. */
export interface Backoff {
  /** The first wait, ms. */
  readonly baseMs: number;
  /** Each further wait is this many times the one before; default 2. */
  readonly factor?: number;
  /** No wait is longer, ms, also where the error asks for one; default one hour (`baseMs`, where that is longer). */
  readonly maxMs?: number;
  /** The longest wait an error may ask for, ms, where that is another; default `maxMs`, and without it a day. */
  readonly maxAskedMs?: number;
  /** 0 to 1: the part of the wait that is left to chance, added on top, so that failures do not return in step. */
  readonly jitter?: number;
}

/** Node's timers hold no more ms (24.8 days), and fire at once beyond. */
export const LONGEST_TIMER_MS = 2_147_483_647;

/** A time in ms that a timer can hold. @throws DloError `BAD_ARGUMENT`, naming it */
export function checkTimer(name: string, value: unknown, least: number = 1): number {
  checkNumber(name, value, least, LONGEST_TIMER_MS);
  return value as number;
}

/** Without a cap a few failures would put a message away for days. */
export const DEFAULT_MAX_WAIT_MS = 3_600_000;

/** A receiver that says when to come again is believed, but a nonsense date must not put a message away for years. */
export const DEFAULT_MAX_ASKED_MS = 86_400_000;

/** Queues hold a message back for ten years at most; a longer wait would be refused at the first retry. */
export const MAX_WAIT_MS = 315_360_000_000;

/** Waits after the first, second and every later crash of a message that ran alone, ms. */
export const SOLO_CRASH_WAITS_MS: readonly number[] = [1_000, 5_000, 25_000];

function checkNumber(name: string, value: unknown, least: number, most: number): void {
  if (typeof value === "number" && value >= least && value <= most) return;
  const shown = typeof value === "number" ? String(value) : typeof value;
  const range = most === Number.MAX_VALUE ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new DloError("BAD_ARGUMENT", `${name} is ${shown}; expected a number ${range}`);
}

function checkWait(name: string, value: number): void {
  checkNumber(name, value, 0, Number.MAX_VALUE);
  if (value <= MAX_WAIT_MS) return;
  throw new DloError("BAD_ARGUMENT", `${name} is ${value}; expected at most ${MAX_WAIT_MS} (ten years)`);
}

/** Refuses a backoff that makes no sense, naming the field (`BAD_ARGUMENT`). */
export function checkBackoff(backoff: Backoff, name: string = "backoff"): Backoff {
  checkWait(`${name}.baseMs`, backoff.baseMs);
  if (backoff.factor !== undefined) checkNumber(`${name}.factor`, backoff.factor, 1, Number.MAX_VALUE);
  for (const limit of ["maxMs", "maxAskedMs"] as const) {
    const value = backoff[limit];
    if (value !== undefined) checkWait(`${name}.${limit}`, value);
  }
  if (backoff.jitter !== undefined) checkNumber(`${name}.jitter`, backoff.jitter, 0, 1);
  return backoff;
}

/**
 * The wait after the `attempt`-th failure (1, 2, ...), whole ms. What the error itself asked for (`retryAfterMs`)
 * is kept to where it is longer. Each has its cap.
 *
 * @example waitAfter({ baseMs: 100, factor: 2 }, 3, Math.random) // 400
 */
export function waitAfter(
  backoff: Backoff,
  attempt: number,
  random: () => number,
  retryAfterMs: number = 0,
): number {
  const { maxMs, maxAskedMs = maxMs ?? DEFAULT_MAX_ASKED_MS } = backoff;
  const most = maxMs ?? Math.max(DEFAULT_MAX_WAIT_MS, backoff.baseMs);
  const grown = backoff.baseMs * (backoff.factor ?? 2) ** Math.max(0, attempt - 1);
  const spread = grown * (1 + (backoff.jitter ?? 0) * random());
  return Math.ceil(Math.max(Math.min(most, spread), Math.min(maxAskedMs, retryAfterMs)));
}

/** The wait after the `crashes`-th crash (1, 2, ...) of a message that ran alone, ms. */
export function waitAfterCrash(crashes: number): number {
  const at = Math.min(Math.max(1, crashes), SOLO_CRASH_WAITS_MS.length) - 1;
  return SOLO_CRASH_WAITS_MS[at] ?? 0;
}
