import { Entry, isPlain } from "./entry.ts";

const PERSISTENT = 1;
const DIED = 2;
const REDELIVERED = 4;
/** The entry has more to it than the columns; it stands in the side map. */
const EXTRA = 8;

/**
 * Messages that are not due yet, in a heap of columns (29 bytes each): whatever was sent before, the one that is
 * due first comes out first.
 */
export class DelayHeap {
  #dueAt: Float64Array = new Float64Array(16);
  #seq: Float64Array = new Float64Array(16);
  #position: Float64Array = new Float64Array(16);
  #size: Uint32Array = new Uint32Array(16);
  #flags: Uint8Array = new Uint8Array(16);
  readonly #extra: Map<number, Entry> = new Map();
  /** Slot of each seq, kept from the first cancel on: most queues never need it. */
  #slots: Map<number, number> | undefined;
  length = 0;
  bytes = 0;

  /** When the next one is due; Infinity when there is none. */
  nextDueAt(): number {
    return this.length === 0 ? Infinity : (this.#dueAt[0] as number);
  }

  push(e: Entry): void {
    if (this.length === this.#seq.length) this.#grow();
    const { dueAt } = e;
    e.dueAt = 0;
    const extra = !isPlain(e);
    e.dueAt = dueAt;
    if (extra) this.#extra.set(e.seq, e);
    const at = this.length++;
    this.#dueAt[at] = dueAt;
    this.#seq[at] = e.seq;
    this.#position[at] = e.position;
    this.#size[at] = e.size;
    this.#flags[at] =
      (e.persistent ? PERSISTENT : 0) |
      (e.died ? DIED : 0) |
      (e.redelivered ? REDELIVERED : 0) |
      (extra ? EXTRA : 0);
    this.bytes += e.size;
    this.#slots?.set(e.seq, at);
    this.#up(at);
  }

  pop(): Entry | undefined {
    return this.length === 0 ? undefined : this.#take(0);
  }

  /** Takes one out before it is due. */
  cancel(seq: number): Entry | undefined {
    if (this.#slots === undefined) {
      this.#slots = new Map();
      for (let i = 0; i < this.length; i++) this.#slots.set(this.#seq[i] as number, i);
    }
    const at = this.#slots.get(seq);
    return at === undefined ? undefined : this.#take(at);
  }

  /** The earliest due first. */
  list(): Entry[] {
    const all: Entry[] = [];
    for (let i = 0; i < this.length; i++) all.push(this.#entryAt(i));
    return all.sort((a, b) => a.dueAt - b.dueAt || a.seq - b.seq);
  }

  #take(at: number): Entry {
    const e = this.#entryAt(at);
    this.bytes -= e.size;
    this.#extra.delete(e.seq);
    this.#slots?.delete(e.seq);
    const last = --this.length;
    if (at !== last) {
      this.#swap(at, last);
      this.#slots?.delete(e.seq);
      this.#up(at);
      this.#down(at);
    }
    return e;
  }

  #entryAt(i: number): Entry {
    const seq = this.#seq[i] as number;
    const flags = this.#flags[i] as number;
    if (flags & EXTRA) return this.#extra.get(seq) as Entry;
    const persistent = (flags & PERSISTENT) !== 0;
    const e = new Entry(seq, this.#position[i] as number, this.#size[i] as number, 0, persistent);
    e.died = (flags & DIED) !== 0;
    e.redelivered = (flags & REDELIVERED) !== 0;
    e.dueAt = this.#dueAt[i] as number;
    return e;
  }

  #up(start: number): void {
    for (let at = start; at > 0; ) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(at, parent)) return;
      this.#swap(at, parent);
      at = parent;
    }
  }

  #down(start: number): void {
    for (let at = start; ; ) {
      let child = 2 * at + 1;
      if (child >= this.length) return;
      if (child + 1 < this.length && this.#isBefore(child + 1, child)) child++;
      if (!this.#isBefore(child, at)) return;
      this.#swap(child, at);
      at = child;
    }
  }

  #isBefore(a: number, b: number): boolean {
    const due = (this.#dueAt[a] as number) - (this.#dueAt[b] as number);
    return due < 0 || (due === 0 && (this.#seq[a] as number) < (this.#seq[b] as number));
  }

  #swap(a: number, b: number): void {
    swap(this.#dueAt, a, b);
    swap(this.#seq, a, b);
    swap(this.#position, a, b);
    swap(this.#size, a, b);
    swap(this.#flags, a, b);
    this.#slots?.set(this.#seq[a] as number, a);
    this.#slots?.set(this.#seq[b] as number, b);
  }

  #grow(): void {
    const length = this.#seq.length * 2;
    this.#dueAt = wider(this.#dueAt, new Float64Array(length));
    this.#seq = wider(this.#seq, new Float64Array(length));
    this.#position = wider(this.#position, new Float64Array(length));
    this.#size = wider(this.#size, new Uint32Array(length));
    this.#flags = wider(this.#flags, new Uint8Array(length));
  }
}

type Column = Float64Array | Uint32Array | Uint8Array;

function swap(column: Column, a: number, b: number): void {
  const kept = column[a] as number;
  column[a] = column[b] as number;
  column[b] = kept;
}

function wider<T extends Column>(old: T, fresh: T): T {
  fresh.set(old);
  return fresh;
}
