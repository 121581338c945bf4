const PER_CHUNK = 64;

interface Chunk<T> {
  readonly slots: (T | undefined)[];
  count: number;
}

/**
 * A map from numbers that are given out in rising order (delivery tags, message numbers) to what goes again soon. A
 * plain Map whose entries come and go makes itself anew every few hundred of them, and each table it has left keeps
 * what was in it until the next full garbage collection; here a slot is emptied in its place.
 */
export class SeqMap<T> {
  readonly #chunks: Map<number, Chunk<T>> = new Map();
  #lastId = -1;
  #last: Chunk<T> | undefined;
  size = 0;

  get(key: number): T | undefined {
    return this.#chunk(Math.floor(key / PER_CHUNK))?.slots[key % PER_CHUNK];
  }

  set(key: number, value: T): void {
    const id = Math.floor(key / PER_CHUNK);
    let chunk = this.#chunk(id);
    if (chunk === undefined) {
      chunk = { slots: Array<T | undefined>(PER_CHUNK).fill(undefined), count: 0 };
      this.#chunks.set(id, chunk);
      this.#lastId = id;
      this.#last = chunk;
    }
    const slot = key % PER_CHUNK;
    if (chunk.slots[slot] === undefined) {
      chunk.count++;
      this.size++;
    }
    chunk.slots[slot] = value;
  }

  /** Answers what it held. */
  delete(key: number): T | undefined {
    const id = Math.floor(key / PER_CHUNK);
    const chunk = this.#chunk(id);
    const value = chunk?.slots[key % PER_CHUNK];
    if (chunk === undefined || value === undefined) return undefined;
    chunk.slots[key % PER_CHUNK] = undefined;
    this.size--;
    if (--chunk.count === 0) {
      this.#chunks.delete(id);
      this.#lastId = -1;
      this.#last = undefined;
    }
    return value;
  }

  clear(): void {
    this.#chunks.clear();
    this.#lastId = -1;
    this.#last = undefined;
    this.size = 0;
  }

  /** In rising order of the keys, where they were set in rising order. What is set meanwhile may or may not be seen. */
  *values(): IterableIterator<T> {
    for (const { slots } of this.#chunks.values())
      for (const value of slots) if (value !== undefined) yield value;
  }

  #chunk(id: number): Chunk<T> | undefined {
    if (id === this.#lastId) return this.#last;
    const chunk = this.#chunks.get(id);
    if (chunk !== undefined) {
      this.#lastId = id;
      this.#last = chunk;
    }
    return chunk;
  }
}
