/** A steady pace: so many a second, evenly spaced, never in a burst to catch up. */
import { DloError } from "./errors.ts";

/**
 * When the next one may go, epoch ms, after one that went at `lastAt` (undefined: none yet).
 *
 * @example nextAt(10_000, 50, 10_001) // 10_020
 */
export function nextAt(lastAt: number | undefined, perSecond: number, now: number): number {
  if (!(perSecond > 0)) {
    throw new DloError("BAD_ARGUMENT", `rate is ${String(perSecond)}; expected more than 0 a second`);
  }
  return lastAt === undefined ? now : Math.max(now, lastAt + 1_000 / perSecond);
}
