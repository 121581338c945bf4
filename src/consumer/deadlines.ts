/** What is to be told when its time is up. */
export interface Limited {
  /** When its time is up, ms of the monotonic clock; set by {@link Deadlines.add}. */
  endsAt: number;
  expire(): void;
}

/**
 * Time limits that are all equally long: what begins first ends first, so that one timer serves them all. It keeps the
 * process alive only while something is timed.
 */
export class Deadlines {
  readonly limitMs: number;
  /** In the order they came in, which is the order their time is up. */
  readonly #running = new Set<Limited>();
  #timer: NodeJS.Timeout | undefined;

  constructor(limitMs: number) {
    this.limitMs = limitMs;
  }

  /** Its time begins now. It expires once, unless it is done before. */
  add(one: Limited): void {
    one.endsAt = performance.now() + this.limitMs;
    this.#running.add(one);
    if (this.#timer === undefined) this.#timer = setTimeout(this.#look, this.limitMs);
    else if (this.#running.size === 1) this.#timer.ref();
  }

  /** It has ended in time. */
  done(one: Limited): void {
    if (this.#running.delete(one) && this.#running.size === 0) this.#timer?.unref();
  }

  readonly #look = (): void => {
    this.#timer = undefined;
    const now = performance.now();
    for (const one of this.#running) {
      if (one.endsAt > now) {
        this.#timer = setTimeout(this.#look, Math.max(1, Math.ceil(one.endsAt - now)));
        return;
      }
      this.#running.delete(one);
      one.expire();
    }
  };
}
