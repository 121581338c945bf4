import { Entry, isPlain } from "./entry.ts";

const PERSISTENT = 1;
const DIED = 2;
const REDELIVERED = 4;
/** The entry has more to it than the columns; it stands in the side map. */
const EXTRA = 8;

/** Chunks double from the first size to the last: idle queues stay small, long ones have few chunks. */
const FIRST_CHUNK = 16;
const LAST_CHUNK = 4096;

class Chunk {
  readonly seq: Float64Array;
  readonly position: Float64Array;
  readonly expiresAt: Float64Array;
  readonly size: Uint32Array;
  readonly flags: Uint8Array;
  readonly capacity: number;
  head = 0;
  tail = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.seq = new Float64Array(capacity);
    this.position = new Float64Array(capacity);
    this.expiresAt = new Float64Array(capacity);
    this.size = new Uint32Array(capacity);
    this.flags = new Uint8Array(capacity);
  }
}

/**
 * First in, first out, 29 bytes a message: a million waiting messages are columns of numbers, not objects.
 * Entries with a history keep their object in a side map until they are taken.
 */
export class PackedFifo {
  readonly #priority: number;
  #chunks: Chunk[] = [];
  #first = 0;
  readonly #extra: Map<number, Entry> = new Map();
  length = 0;

  constructor(priority: number) {
    this.#priority = priority;
  }

  push(e: Entry): void {
    let chunk = this.#chunks[this.#chunks.length - 1];
    if (chunk === undefined || chunk.tail === chunk.capacity) {
      chunk = new Chunk(chunk === undefined ? FIRST_CHUNK : Math.min(LAST_CHUNK, chunk.capacity * 2));
      this.#chunks.push(chunk);
    }
    const i = chunk.tail++;
    chunk.seq[i] = e.seq;
    chunk.position[i] = e.position;
    chunk.expiresAt[i] = e.expiresAt;
    chunk.size[i] = e.size;
    let flags = (e.persistent ? PERSISTENT : 0) | (e.died ? DIED : 0) | (e.redelivered ? REDELIVERED : 0);
    if (!isPlain(e)) {
      flags |= EXTRA;
      this.#extra.set(e.seq, e);
    }
    chunk.flags[i] = flags;
    this.length++;
  }

  /** Deadline of the first message; 0 when it has none or there is no message. */
  headExpiresAt(): number {
    if (this.length === 0) return 0;
    const chunk = this.#chunks[this.#first] as Chunk;
    return chunk.expiresAt[chunk.head] as number;
  }

  /** Place of the first message; Infinity when there is none. */
  headPosition(): number {
    if (this.length === 0) return Infinity;
    const chunk = this.#chunks[this.#first] as Chunk;
    return chunk.position[chunk.head] as number;
  }

  shift(): Entry | undefined {
    if (this.length === 0) return undefined;
    const chunk = this.#chunks[this.#first] as Chunk;
    const e = this.#entryAt(chunk, chunk.head, true);
    chunk.head++;
    this.length--;
    if (chunk.head === chunk.tail) this.#leave(chunk);
    return e;
  }

  /** Takes the last message out, if it is this one and nothing has happened to it. */
  popIf(seq: number): Entry | undefined {
    const chunk = this.#chunks.at(-1);
    if (this.length === 0 || chunk === undefined) return undefined;
    const i = chunk.tail - 1;
    if (chunk.seq[i] !== seq || ((chunk.flags[i] as number) & (REDELIVERED | EXTRA)) !== 0) return undefined;
    const e = this.#entryAt(chunk, i, true);
    chunk.tail--;
    this.length--;
    if (chunk.head === chunk.tail) {
      if (this.length === 0) this.#leave(chunk);
      else this.#chunks.pop();
    }
    return e;
  }

  *entries(): Generator<Entry> {
    for (let c = this.#first; c < this.#chunks.length; c++) {
      const chunk = this.#chunks[c] as Chunk;
      for (let i = chunk.head; i < chunk.tail; i++) yield this.#entryAt(chunk, i, false);
    }
  }

  #leave(chunk: Chunk): void {
    if (this.length === 0) {
      // The steady state of a queue that keeps up: one chunk, used again and again.
      chunk.head = 0;
      chunk.tail = 0;
      this.#chunks = [chunk];
      this.#first = 0;
      return;
    }
    (this.#chunks as (Chunk | undefined)[])[this.#first] = undefined;
    this.#first++;
    if (this.#first > 64 && this.#first * 2 > this.#chunks.length) {
      this.#chunks = this.#chunks.slice(this.#first);
      this.#first = 0;
    }
  }

  #entryAt(chunk: Chunk, i: number, take: boolean): Entry {
    const seq = chunk.seq[i] as number;
    const flags = chunk.flags[i] as number;
    if (flags & EXTRA) {
      const e = this.#extra.get(seq) as Entry;
      if (take) this.#extra.delete(seq);
      return e;
    }
    const e = new Entry(
      seq,
      chunk.position[i] as number,
      chunk.size[i] as number,
      chunk.expiresAt[i] as number,
      (flags & PERSISTENT) !== 0,
    );
    e.died = (flags & DIED) !== 0;
    e.redelivered = (flags & REDELIVERED) !== 0;
    e.priority = this.#priority;
    return e;
  }
}

/** A binary heap; the smallest by `before` comes out first. */
export class Heap<T> {
  readonly #before: (a: T, b: T) => boolean;
  #items: T[] = [];

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  get length(): number {
    return this.#items.length;
  }

  peek(): T | undefined {
    return this.#items[0];
  }

  /** In no particular order. */
  items(): readonly T[] {
    return this.#items;
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#before(item, items[parent] as T)) break;
      items[at] = items[parent] as T;
      at = parent;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    if (items.length === 0 || last === undefined) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.#before(items[child + 1] as T, items[child] as T)) child++;
      if (!this.#before(items[child] as T, last)) break;
      items[at] = items[child] as T;
      at = child;
    }
    items[at] = last;
    return top;
  }
}

/** Messages that came back, each to its own place in the queue. */
export function returnedHeap(): Heap<Entry> {
  return new Heap((a, b) => a.position < b.position);
}
