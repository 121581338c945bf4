import { type DeadLetter, type EarlierLife, isOfQueue, MAX_EARLIER_LIVES } from "../../core/index.ts";
import type { DeadLetters, Queue, Resend } from "../../ports/index.ts";
import { sameBody } from "./same.ts";
import type { MemoryState, Tombstone } from "./state.ts";
import type { MemoryStore } from "./store.ts";

const generationOf = (entry: DeadLetter): number => entry.generation ?? 1;

/** The dead letters of a {@link MemoryStore}, by the rules of generations. */
export class MemoryLetters<B> implements DeadLetters<B> {
  readonly #store: MemoryStore<B>;
  readonly #process: number;

  constructor(store: MemoryStore<B>, process: number) {
    this.#store = store;
    this.#process = process;
  }

  get name(): string {
    return `${this.#store.name}.dlq`;
  }

  /** @internal Whether the other store is a view on the same memory. */
  shares(other: unknown): boolean {
    return other instanceof MemoryLetters && other.#store === this.#store;
  }

  /** Nothing where this life (or a later one) is known; else it takes the place of an earlier life's entry. */
  put(entry: DeadLetter<B>): void {
    const generation = generationOf(entry);
    if (this.has(entry.id, generation, entry.body, entry.sourceQueue)) return;
    const before = this.#bury({ ...entry, generation: generation - 1 });
    this.#state.letters.push({
      entry: { ...entry, generation, ...livesOf(before) },
      marker: 0,
    });
  }

  has(id: string, generation: number = 1, body?: B, sourceQueue?: string): boolean {
    const known = (life: number, other: B, source: string | undefined): boolean =>
      life >= generation && (body === undefined || sameBody(other, body)) && isOfQueue(source, sourceQueue);
    return (
      this.#state.letters.some(
        ({ entry }) => entry.id === id && known(generationOf(entry), entry.body, entry.sourceQueue),
      ) ||
      (this.#state.tombstones.get(id) ?? []).some((tomb) => known(tomb.generation, tomb.body, tomb.source))
    );
  }

  /** Leaves a tombstone; without a generation, of whatever life the entry is. */
  remove(id: string, generation?: number, body?: B, sourceQueue?: string): void {
    const found = this.#state.letters.filter(
      ({ entry }) =>
        entry.id === id &&
        (generation === undefined || generationOf(entry) === generation) &&
        (body === undefined || sameBody(entry.body, body)) &&
        isOfQueue(entry.sourceQueue, sourceQueue),
    );
    for (const { entry } of found) this.#bury(entry, true);
  }

  list(): DeadLetter<B>[] {
    return this.#state.letters.map(({ entry }) => ({ ...entry }));
  }

  get(id: string): DeadLetter<B> | null {
    const found = this.#state.letters.findLast(({ entry }) => entry.id === id);
    return found ? { ...found.entry } : null;
  }

  markReplaying(id: string, generation: number, sourceQueue?: string): boolean {
    const row = this.#find(id, generation, sourceQueue);
    if (row === undefined) return false;
    if (row.marker !== 0 && row.marker !== this.#process && this.#state.alive.has(row.marker)) return false;
    row.marker = this.#process;
    return true;
  }

  resend(id: string, generation: number, queue: Queue<B>): boolean | null {
    if (!sharesQueue(queue, this.#store)) return false;
    const row = this.#find(id, generation, queue.name);
    if (row === undefined) return null;
    const { entry } = row;
    const resent: Resend<B> = {
      id,
      body: entry.body,
      generation: generation + 1,
      ...(entry.headers === undefined ? {} : { headers: entry.headers }),
      ...(entry.properties === undefined ? {} : { properties: entry.properties }),
      ...(entry.raw === undefined ? {} : { raw: entry.raw }),
    };
    this.#store.enqueue(resent);
    this.#bury(entry, true);
    return true;
  }

  get #state(): MemoryState<B> {
    return this.#store.state;
  }

  #find(id: string, generation: number, source: string | undefined) {
    return this.#state.letters.find(
      ({ entry }) =>
        entry.id === id && generationOf(entry) === generation && isOfQueue(entry.sourceQueue, source),
    );
  }

  /**
   * Turns the entries of a message up to a life into tombstones (`exact`: that life alone) and answers the newest
   * tombstone. One tombstone a message is enough: a later life covers the earlier ones.
   */
  #bury(of: DeadLetter<B>, exact: boolean = false): Tombstone<B> | undefined {
    const { letters, tombstones } = this.#state;
    const { id, body, sourceQueue } = of;
    const generation = generationOf(of);
    const goes = (entry: DeadLetter<B>): boolean =>
      entry.id === id &&
      (exact ? generationOf(entry) === generation : generationOf(entry) <= generation) &&
      sameBody(entry.body, body) &&
      isOfQueue(entry.sourceQueue, sourceQueue);
    const isSame = (a: Tombstone<B>, b: Pick<Tombstone<B>, "body" | "source">): boolean =>
      sameBody(a.body, b.body) && a.source === b.source;
    let tombs = tombstones.get(id) ?? [];
    for (const { entry } of letters) {
      if (!goes(entry)) continue;
      const tomb = tombOf(entry);
      tombs = [...tombs.filter((one) => !isSame(one, tomb)), tomb];
    }
    this.#state.letters = letters.filter(({ entry }) => !goes(entry));
    if (tombs.length > 0) tombstones.set(id, tombs);
    return tombs.find((one) => isSame(one, { body, source: sourceQueue })) ?? tombs.at(-1);
  }
}

function sharesQueue<B>(queue: Queue<B>, store: MemoryStore<B>): boolean {
  return queue.name === store.name && queue.supports?.atomicBury === true && owners.get(queue) === store;
}

/** Which store a queue belongs to. */
export const owners: WeakMap<object, object> = new WeakMap();

function tombOf<B>(entry: DeadLetter<B>): Tombstone<B> {
  const life: EarlierLife = {
    generation: generationOf(entry),
    reason: entry.reason,
    error: entry.error,
    attempts: entry.attempts,
    firstAttemptAt: entry.firstAttemptAt,
    failedAt: entry.failedAt,
  };
  return {
    generation: life.generation,
    body: entry.body,
    source: entry.sourceQueue,
    earlier: [...(entry.earlier ?? []), life].slice(-MAX_EARLIER_LIVES),
    lives: entry.lives ?? 1,
  };
}

function livesOf(before: Tombstone<unknown> | undefined): {
  earlier?: readonly EarlierLife[];
  lives: number;
} {
  return before ? { earlier: before.earlier, lives: before.lives + 1 } : { lives: 1 };
}
