/** What the queues of one broker share. */
import { DeadLetterStore } from "./dead-letters.ts";
import type { Evidence } from "./evidence.ts";
import type { Host } from "./host.ts";
import type { Resends } from "./resends.ts";

export class QueueServices {
  readonly maxBodyBytes: number;
  readonly evidence: Evidence;
  readonly resends: Resends;
  readonly #host: Host;
  readonly #waiting = new Set<() => void>();
  #turn = 0;

  constructor(host: Host, evidence: Evidence, resends: Resends, maxBodyBytes: number) {
    this.#host = host;
    this.evidence = evidence;
    this.resends = resends;
    this.maxBodyBytes = maxBodyBytes;
    host.onTurn.add(() => {
      this.#turn++;
      for (const look of this.#waiting) look();
    });
  }

  /** How many turns the broker has seen. */
  turn(): number {
    return this.#turn;
  }

  /** Resolves to the value once everything done so far is committed; for `takeBack` see `Committer.after`. */
  committed<T>(value: T, takeBack?: () => boolean): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#host.committer.after((error) => (error === null ? resolve(value) : reject(error)), takeBack);
    });
  }

  /** Resolves after the first turn in which `holds` is true, or when the signal aborts, or the broker closes. */
  waitFor(holds: () => boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(look);
        signal.removeEventListener("abort", done);
        this.#host.holdOpen(-1);
        resolve();
      };
      const look = (): void => {
        if (this.#host.isClosed || holds()) done();
      };
      this.#waiting.add(look);
      signal.addEventListener("abort", done);
      this.#host.holdOpen(1);
    });
  }

  /** The store behind a port, when it is one of this broker's. */
  storeOf(store: unknown): DeadLetterStore | undefined {
    return store instanceof DeadLetterStore && store.host === this.#host ? store : undefined;
  }
}
