import { Entry, isPlain } from "./entry.ts";

const PERSISTENT = 1;
const DIED = 2;
const REDELIVERED = 4;
/** The entry has more to it than the columns; it stands in the side map. */
const EXTRA = 8;

/**
 * Messages that are not due yet, as columns (37 bytes each) under a heap of their slots: whatever was sent before, the
 * one that is due first comes out first.
 */
export class DelayHeap {
  #dueAt: Float64Array = new Float64Array(16);
  #seq: Float64Array = new Float64Array(16);
  #position: Float64Array = new Float64Array(16);
  #size: Uint32Array = new Uint32Array(16);
  #flags: Uint8Array = new Uint8Array(16);
  /** Slots, the earliest due first in the heap's order; those from `length` on are free. */
  #heap: Uint32Array = Uint32Array.from({ length: 16 }, (_, i) => i);
  /** Where in the heap each slot stands. */
  #place: Uint32Array = this.#heap.slice();
  readonly #extra: Map<number, Entry> = new Map();
  /** Slot of each seq, kept from the first cancel on: most queues never need it. */
  #slots: Map<number, number> | undefined;
  length = 0;
  bytes = 0;

  /** When the next one is due; Infinity when there is none. */
  nextDueAt(): number {
    return this.length === 0 ? Infinity : (this.#dueAt[this.#heap[0] as number] as number);
  }

  push(e: Entry): void {
    if (this.length === this.#seq.length) this.#grow();
    const { dueAt } = e;
    e.dueAt = 0;
    const extra = !isPlain(e);
    e.dueAt = dueAt;
    if (extra) this.#extra.set(e.seq, e);
    const at = this.length++;
    const slot = this.#heap[at] as number;
    this.#dueAt[slot] = dueAt;
    this.#seq[slot] = e.seq;
    this.#position[slot] = e.position;
    this.#size[slot] = e.size;
    this.#flags[slot] =
      (e.persistent ? PERSISTENT : 0) |
      (e.died ? DIED : 0) |
      (e.redelivered ? REDELIVERED : 0) |
      (extra ? EXTRA : 0);
    this.bytes += e.size;
    this.#slots?.set(e.seq, slot);
    this.#up(at);
  }

  pop(): Entry | undefined {
    return this.length === 0 ? undefined : this.#take(0);
  }

  /** Takes one out before it is due. */
  cancel(seq: number): Entry | undefined {
    if (this.#slots === undefined) {
      this.#slots = new Map();
      for (const slot of this.#used()) this.#slots.set(this.#seq[slot] as number, slot);
    }
    const slot = this.#slots.get(seq);
    return slot === undefined ? undefined : this.#take(this.#place[slot] as number);
  }

  /** The earliest due first. */
  list(): Entry[] {
    const all: Entry[] = [];
    for (const slot of this.#used()) all.push(this.#entryAt(slot));
    return all.sort((a, b) => a.dueAt - b.dueAt || a.seq - b.seq);
  }

  #used(): Uint32Array {
    return this.#heap.subarray(0, this.length);
  }

  #take(at: number): Entry {
    const slot = this.#heap[at] as number;
    const e = this.#entryAt(slot);
    this.bytes -= e.size;
    this.#extra.delete(e.seq);
    this.#slots?.delete(e.seq);
    const last = --this.length;
    if (at === last) return e;
    const moved = this.#heap[last] as number;
    this.#put(last, slot);
    this.#put(at, moved);
    this.#up(at);
    this.#down(this.#place[moved] as number);
    return e;
  }

  #entryAt(slot: number): Entry {
    const seq = this.#seq[slot] as number;
    const flags = this.#flags[slot] as number;
    if (flags & EXTRA) return this.#extra.get(seq) as Entry;
    const persistent = (flags & PERSISTENT) !== 0;
    const e = new Entry(seq, this.#position[slot] as number, this.#size[slot] as number, 0, persistent);
    e.died = (flags & DIED) !== 0;
    e.redelivered = (flags & REDELIVERED) !== 0;
    e.dueAt = this.#dueAt[slot] as number;
    return e;
  }

  #put(at: number, slot: number): void {
    this.#heap[at] = slot;
    this.#place[slot] = at;
  }

  #up(start: number): void {
    const slot = this.#heap[start] as number;
    let at = start;
    while (at > 0) {
      const above = this.#heap[(at - 1) >> 1] as number;
      if (!this.#isBefore(slot, above)) break;
      this.#put(at, above);
      at = (at - 1) >> 1;
    }
    this.#put(at, slot);
  }

  #down(start: number): void {
    const slot = this.#heap[start] as number;
    let at = start;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.length) break;
      if (
        child + 1 < this.length &&
        this.#isBefore(this.#heap[child + 1] as number, this.#heap[child] as number)
      )
        child++;
      const below = this.#heap[child] as number;
      if (!this.#isBefore(below, slot)) break;
      this.#put(at, below);
      at = child;
    }
    this.#put(at, slot);
  }

  #isBefore(a: number, b: number): boolean {
    const due = (this.#dueAt[a] as number) - (this.#dueAt[b] as number);
    return due < 0 || (due === 0 && (this.#seq[a] as number) < (this.#seq[b] as number));
  }

  #grow(): void {
    const { length } = this.#seq;
    this.#dueAt = wider(this.#dueAt, new Float64Array(length * 2));
    this.#seq = wider(this.#seq, new Float64Array(length * 2));
    this.#position = wider(this.#position, new Float64Array(length * 2));
    this.#size = wider(this.#size, new Uint32Array(length * 2));
    this.#flags = wider(this.#flags, new Uint8Array(length * 2));
    this.#heap = wider(this.#heap, new Uint32Array(length * 2));
    this.#place = wider(this.#place, new Uint32Array(length * 2));
    for (let slot = length; slot < length * 2; slot++) this.#put(slot, slot);
  }
}

type Column = Float64Array | Uint32Array | Uint8Array;

function wider<T extends Column>(old: T, fresh: T): T {
  fresh.set(old);
  return fresh;
}
