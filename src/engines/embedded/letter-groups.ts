/**
 * Counters of letters by (store, queue, fingerprint, reason, state), kept in memory and written with the
 * transaction that changes them, so that a million letters are grouped and counted in no time.
 */
import type { LetterReason } from "../../core/index.ts";
import type { LetterFilter, LetterState } from "../../ports/index.ts";
import type { Database, Row } from "./sqlite.ts";

export interface Counter {
  readonly store: string;
  readonly queue: string;
  readonly fingerprint: string;
  readonly reason: LetterReason;
  readonly state: LetterState;
  readonly title: string;
  count: number;
  firstSeenAt: number;
  lastSeenAt: number;
  /** Number of the newest letter counted here. */
  sample: number;
}

export type CounterKey = Pick<Counter, "store" | "queue" | "fingerprint" | "reason" | "state">;

const keyOf = (k: CounterKey): string => `${k.store}\0${k.queue}\0${k.fingerprint}\0${k.reason}\0${k.state}`;

export class LetterGroups {
  readonly #counters = new Map<string, Counter>();

  constructor(db: Database) {
    for (const row of db.prepare("SELECT * FROM letter_groups").all() as Row[]) {
      const counter: Counter = {
        store: row.store as string,
        queue: row.queue as string,
        fingerprint: row.fingerprint as string,
        reason: row.reason as LetterReason,
        state: row.state as LetterState,
        title: row.title as string,
        count: row.count as number,
        firstSeenAt: row.first_seen_at as number,
        lastSeenAt: row.last_seen_at as number,
        sample: row.sample as number,
      };
      this.#counters.set(keyOf(counter), counter);
    }
  }

  /** Counts one letter in. Answers the counter as it is now, to be written. */
  add(key: CounterKey, title: string, n: number, at: number): Counter {
    const id = keyOf(key);
    let counter = this.#counters.get(id);
    if (counter === undefined) {
      counter = { ...key, title, count: 0, firstSeenAt: at, lastSeenAt: at, sample: n };
      this.#counters.set(id, counter);
    }
    counter.count++;
    counter.sample = n;
    counter.firstSeenAt = Math.min(counter.firstSeenAt, at);
    counter.lastSeenAt = Math.max(counter.lastSeenAt, at);
    return counter;
  }

  /** Counts one letter out. */
  remove(key: CounterKey): Counter | undefined {
    const id = keyOf(key);
    const counter = this.#counters.get(id);
    if (counter === undefined) return undefined;
    counter.count--;
    if (counter.count <= 0) this.#counters.delete(id);
    return counter;
  }

  titleOf(key: CounterKey): string {
    return this.#counters.get(keyOf(key))?.title ?? key.fingerprint;
  }

  /** Counters that match; `ids` of the filter are not looked at. */
  *matching(filter: LetterFilter): IterableIterator<Counter> {
    for (const counter of this.#counters.values()) {
      if (filter.deadLetters !== undefined && filter.deadLetters !== counter.store) continue;
      if (filter.sourceQueue !== undefined && filter.sourceQueue !== counter.queue) continue;
      if (filter.fingerprint !== undefined && filter.fingerprint !== counter.fingerprint) continue;
      if (filter.reason !== undefined && filter.reason !== counter.reason) continue;
      if (filter.state !== undefined && filter.state !== counter.state) continue;
      yield counter;
    }
  }

  count(filter: LetterFilter): number {
    let count = 0;
    for (const counter of this.matching(filter)) count += counter.count;
    return count;
  }
}
