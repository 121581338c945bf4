/** How long to wait before the next try. */
import { DloError } from "./errors.ts";

/** Exponential: `baseMs * factor^(attempt - 1)`, at most `maxMs`, spread by `jitter`. */
export interface Backoff {
  /** The first wait, ms. */
  readonly baseMs: number;
  /** Each further wait is this many times the one before; default 2. */
  readonly factor?: number;
  /** No wait is longer, ms; default one hour. */
  readonly maxMs?: number;
  /** 0 to 1: the part of the wait that is left to chance, added on top, so that failures do not return in step. */
  readonly jitter?: number;
}

/** Without a cap a few failures would put a message away for days. */
export const DEFAULT_MAX_WAIT_MS = 3_600_000;

/** Waits after the first, second and every later crash of a message that ran alone, ms. */
export const SOLO_CRASH_WAITS_MS: readonly number[] = [1_000, 5_000, 25_000];

function checkNumber(name: string, value: unknown, least: number, most: number): void {
  if (typeof value === "number" && value >= least && value <= most) return;
  const shown = typeof value === "number" ? String(value) : typeof value;
  const range = most === Number.MAX_VALUE ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new DloError("BAD_ARGUMENT", `${name} is ${shown}; expected a number ${range}`);
}

/** Refuses a backoff that makes no sense, naming the field (`BAD_ARGUMENT`). */
export function checkBackoff(backoff: Backoff, name: string = "backoff"): Backoff {
  checkNumber(`${name}.baseMs`, backoff.baseMs, 0, Number.MAX_VALUE);
  if (backoff.factor !== undefined) checkNumber(`${name}.factor`, backoff.factor, 1, Number.MAX_VALUE);
  if (backoff.maxMs !== undefined) checkNumber(`${name}.maxMs`, backoff.maxMs, 0, Number.MAX_VALUE);
  if (backoff.jitter !== undefined) checkNumber(`${name}.jitter`, backoff.jitter, 0, 1);
  return backoff;
}

/**
 * The wait after the `attempt`-th failure (1, 2, ...), whole ms. What the error itself asked for (`retryAfterMs`)
 * is kept to where it is longer; the cap holds for both.
 *
 * @example waitAfter({ baseMs: 100, factor: 2 }, 3, Math.random) // 400
 */
export function waitAfter(
  backoff: Backoff,
  attempt: number,
  random: () => number,
  retryAfterMs: number = 0,
): number {
  const most = backoff.maxMs ?? DEFAULT_MAX_WAIT_MS;
  const grown = backoff.baseMs * (backoff.factor ?? 2) ** Math.max(0, attempt - 1);
  const spread = grown * (1 + (backoff.jitter ?? 0) * random());
  return Math.ceil(Math.min(most, Math.max(spread, retryAfterMs)));
}

/** The wait after the `crashes`-th crash (1, 2, ...) of a message that ran alone, ms. */
export function waitAfterCrash(crashes: number): number {
  const at = Math.min(Math.max(1, crashes), SOLO_CRASH_WAITS_MS.length) - 1;
  return SOLO_CRASH_WAITS_MS[at] ?? 0;
}
