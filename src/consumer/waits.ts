/** Waiting in a consumer: pauses that a stop cuts short, and being told that something has changed. */

import { LONGEST_TIMER_MS } from "../core/index.ts";

/** Pauses that can all be ended at once. */
export class Waits {
  readonly #ends = new Set<() => void>();
  #over = false;

  /** Resolves after `ms`, however long, or at once when the waiting is over. */
  pause(ms: number): Promise<void> {
    if (this.#over || ms <= 0) return Promise.resolve();
    return new Promise((done) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#ends.delete(end);
        done();
      };
      let left = ms;
      let timer: NodeJS.Timeout;
      const sleep = (): void => {
        const step = Math.min(left, LONGEST_TIMER_MS);
        left -= step;
        timer = setTimeout(left > 0 ? sleep : end, step);
      };
      sleep();
      this.#ends.add(end);
    });
  }

  /** Ends every pause, running and to come. */
  end(): void {
    this.#over = true;
    for (const end of [...this.#ends]) end();
  }
}

/** Something has changed: everybody who waits looks again. */
export class Change {
  #next: Promise<void> | undefined;
  #wake: (() => void) | undefined;

  /** Wakes everybody. */
  tell(): void {
    this.#wake?.();
    this.#next = undefined;
    this.#wake = undefined;
  }

  /** Resolves at the next change after this call. */
  next(): Promise<void> {
    this.#next ??= new Promise((done) => {
      this.#wake = done;
    });
    return this.#next;
  }
}
