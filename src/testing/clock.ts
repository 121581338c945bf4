import type { Clock } from "../ports/index.ts";

/**
 * A clock that stands still until it is moved, epoch ms.
 *
 * @example
 * const clock = new FakeClock(1_000);
 * clock.advance(250);
 * clock.now(); // 1250
 */
export class FakeClock implements Clock {
  #now: number;

  constructor(now: number = 0) {
    this.#now = now;
  }

  now(): number {
    return this.#now;
  }

  /** Moves it forward by `ms`. */
  advance(ms: number): void {
    this.#now += ms;
  }
}
