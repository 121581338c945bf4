/** Time of the broker: monotonic while it is up, and timers for any distance. */
import { performance } from "node:perf_hooks";
import { DloError } from "../../core/index.ts";
import type { Clock } from "../../ports/index.ts";

/** The longest delay or TTL, ms: ten years, as RabbitMQ's. */
export const MAX_DELAY_MS = 315_360_000_000;

/**
 * The wall clock at opening, carried on by the monotonic clock: when the wall clock is set while the broker is up,
 * nothing fires early or stalls. After a restart deadlines are off by what the wall clock was moved meanwhile.
 */
export function steadyClock(): Clock {
  const openedAt = Date.now();
  const origin = performance.now();
  return { now: () => Math.floor(openedAt + performance.now() - origin) };
}

// Node's timers overflow at 2^31 ms; an hour also bounds what a suspended machine can oversleep.
const LONGEST_SLEEP_MS = 3_600_000;
// A clock that is not ours may be moved at any time: look often.
const FOREIGN_CLOCK_SLEEP_MS = 20;

/** One timer that is set to the earliest of many times. */
export class Alarm {
  readonly #clock: Clock;
  readonly #longest: number;
  readonly #ring: () => void;
  #at: number = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(clock: Clock, isForeign: boolean, ring: () => void) {
    this.#clock = clock;
    this.#longest = isForeign ? FOREIGN_CLOCK_SLEEP_MS : LONGEST_SLEEP_MS;
    this.#ring = ring;
  }

  /** Rings at this time, or earlier where it was set earlier. */
  atLatest(at: number): void {
    if (at >= this.#at) return;
    this.#at = at;
    clearTimeout(this.#timer);
    this.#sleep();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#at = Number.POSITIVE_INFINITY;
  }

  #sleep(): void {
    const left = Math.min(this.#longest, Math.max(0, this.#at - this.#clock.now()));
    this.#timer = setTimeout(() => {
      if (this.#clock.now() < this.#at) return this.#sleep();
      this.#at = Number.POSITIVE_INFINITY;
      this.#ring();
    }, left);
    this.#timer.unref();
  }
}

/** A distance in ms as it must be: whole, from 0 to ten years. Anything else is refused by name. */
export function checkDelay(name: string, ms: number): number {
  if (Number.isFinite(ms) && ms >= 0 && ms <= MAX_DELAY_MS) return Math.ceil(ms);
  const most = `${MAX_DELAY_MS} (ten years)`;
  throw new DloError("BAD_ARGUMENT", `${name} is ${ms}; expected milliseconds from 0 to ${most}`);
}
