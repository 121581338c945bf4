import type { Plan } from "./options.ts";
import { Change, type Waits } from "./waits.ts";

/** What a wait for a queue's call needs of its consumer. */
export interface Waiter {
  readonly queue: Plan["queue"];
  readonly waits: Waits;
  readonly pollMs: number;
  /** Aborted when the consumer stops. */
  readonly signal: AbortSignal;
  failed(error: unknown): void;
}

/**
 * Waiting for an empty queue to call (`ready`). One call is asked for at a time and stays asked for while the loop is
 * woken by something else; only what may have put a message there (or ends the run) wakes it.
 */
export class Calls {
  readonly #waiter: Waiter;
  readonly #wake = new Change();
  #asked: Promise<void> | null = null;
  #look = false;
  #inVain = 0;

  constructor(waiter: Waiter) {
    this.#waiter = waiter;
  }

  /** The queue may have something although it has not called, or the loop must see to something else. */
  look(): void {
    this.#look = true;
    this.#wake.tell();
  }

  /** The queue is asked now: what is told from here on counts. */
  looking(): void {
    this.#look = false;
  }

  /** A message came: the calls were worth it. */
  got(): void {
    this.#inVain = 0;
  }

  /** Until the queue calls, or `look`. */
  async next(): Promise<void> {
    const { waits, pollMs, signal } = this.#waiter;
    // A queue that calls and then has nothing (for us) must not make us spin.
    if (this.#inVain > 0) await waits.pause(Math.min(this.#inVain + 1, pollMs));
    if (this.#look || signal.aborted) return;
    this.#asked ??= this.#ask();
    await this.#wake.next();
    if (this.#asked === null) this.#inVain++;
  }

  async #ask(): Promise<void> {
    const { queue, waits, pollMs, signal } = this.#waiter;
    try {
      await queue.ready?.(signal);
    } catch (error) {
      if (!signal.aborted) {
        this.#waiter.failed(error);
        await waits.pause(pollMs);
      }
    }
    this.#asked = null;
    this.#wake.tell();
  }
}
