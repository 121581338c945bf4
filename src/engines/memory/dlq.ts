import type { DeadLetter } from "../../core/index.ts";
import type { DeadLetters } from "../../ports/index.ts";
import { sameBody } from "./same.ts";

/**
 * Dead letters in memory by the contract, for tests and examples. `put` keeps what is there already: the same
 * message again changes nothing; the same id with another body is kept beside it.
 */
export class MemoryDLQ<B = unknown> implements DeadLetters<B> {
  /** In order of death. */
  readonly #entries = new Map<number, DeadLetter<B>>();
  readonly #byId = new Map<string, number[]>();
  #next = 1;

  put(entry: DeadLetter<B>): void {
    const known = this.#byId.get(entry.id) ?? [];
    if (known.some((at) => sameBody(this.#entries.get(at)?.body, entry.body))) return;
    this.#entries.set(this.#next, { ...entry });
    this.#byId.set(entry.id, [...known, this.#next++]);
  }

  has(id: string): boolean {
    return this.#byId.has(id);
  }

  /** Removes the entry; where one id has several (other bodies), the oldest, as a replay sends them one by one. */
  remove(id: string): void {
    const [oldest, ...rest] = this.#byId.get(id) ?? [];
    if (oldest === undefined) return;
    this.#entries.delete(oldest);
    if (rest.length > 0) this.#byId.set(id, rest);
    else this.#byId.delete(id);
  }

  /** The entry of this id, the newest of several. */
  get(id: string): DeadLetter<B> | null {
    const at = this.#byId.get(id)?.at(-1);
    const entry = at === undefined ? undefined : this.#entries.get(at);
    return entry ? { ...entry } : null;
  }

  /** All entries, in order of death: a new array of copies. */
  list(): DeadLetter<B>[] {
    return [...this.#entries.values()].map((entry) => ({ ...entry }));
  }
}
