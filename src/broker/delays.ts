import { Entry, isPlain } from "./entry.ts";

const PERSISTENT = 1;
const DIED = 2;
const REDELIVERED = 4;
const EXTRA = 8;

/**
 * Messages that are not due yet, in a heap of columns (29 bytes each): whatever was sent before, the one that is
 * due first comes out first. A cancelled one is taken out of the index at once and of the heap when it comes up.
 */
export class DelayHeap {
  #dueAt = new Float64Array(16);
  #seq = new Float64Array(16);
  #position = new Float64Array(16);
  #size = new Uint32Array(16);
  #flags = new Uint8Array(16);
  #count = 0;
  readonly #extra: Map<number, Entry> = new Map();
  /** Built at the first cancel: most queues never need it. */
  #index: Map<number, number> | undefined;
  #cancelled: Set<number> = new Set();
  #bytes = 0;

  get length(): number {
    return this.#count - this.#cancelled.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** When the next one is due; Infinity when there is none. */
  nextDueAt(): number {
    while (this.#count > 0 && this.#cancelled.size > 0 && this.#cancelled.has(this.#seq[0] as number)) {
      this.#cancelled.delete(this.#seq[0] as number);
      this.#dropTop();
    }
    return this.#count === 0 ? Infinity : (this.#dueAt[0] as number);
  }

  push(e: Entry): void {
    if (this.#count === this.#seq.length) this.#grow();
    const dueAt = e.dueAt;
    e.dueAt = 0;
    const plain = isPlain(e);
    e.dueAt = dueAt;
    if (!plain) this.#extra.set(e.seq, e);
    const flags =
      (e.persistent ? PERSISTENT : 0) |
      (e.died ? DIED : 0) |
      (e.redelivered ? REDELIVERED : 0) |
      (plain ? 0 : EXTRA);
    let at = this.#count++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(dueAt, e.seq, parent)) break;
      this.#copy(parent, at);
      at = parent;
    }
    this.#dueAt[at] = dueAt;
    this.#seq[at] = e.seq;
    this.#position[at] = e.position;
    this.#size[at] = e.size;
    this.#flags[at] = flags;
    this.#bytes += e.size;
    this.#index?.set(e.seq, dueAt);
  }

  pop(): Entry | undefined {
    if (this.nextDueAt() === Infinity) return undefined;
    const e = this.#entryAt(0);
    this.#forget(e);
    this.#dropTop();
    return e;
  }

  /** Takes one out before it is due. */
  cancel(seq: number): Entry | undefined {
    if (this.#index === undefined) {
      this.#index = new Map();
      for (let i = 0; i < this.#count; i++) this.#index.set(this.#seq[i] as number, this.#dueAt[i] as number);
    }
    if (!this.#index.has(seq)) return undefined;
    // Finding the slot is a scan of one column; cancelling is rare next to sending.
    const at = this.#seq.subarray(0, this.#count).indexOf(seq);
    const e = this.#entryAt(at);
    this.#forget(e);
    this.#cancelled.add(seq);
    return e;
  }

  /** The earliest due first. */
  list(): Entry[] {
    const all: Entry[] = [];
    for (let i = 0; i < this.#count; i++) {
      if (!this.#cancelled.has(this.#seq[i] as number)) all.push(this.#entryAt(i));
    }
    return all.sort((a, b) => a.dueAt - b.dueAt || a.seq - b.seq);
  }

  #forget(e: Entry): void {
    this.#bytes -= e.size;
    this.#extra.delete(e.seq);
    this.#index?.delete(e.seq);
  }

  #entryAt(i: number): Entry {
    const seq = this.#seq[i] as number;
    const flags = this.#flags[i] as number;
    if (flags & EXTRA) return this.#extra.get(seq) as Entry;
    const e = new Entry(
      seq,
      this.#position[i] as number,
      this.#size[i] as number,
      0,
      (flags & PERSISTENT) !== 0,
    );
    e.died = (flags & DIED) !== 0;
    e.redelivered = (flags & REDELIVERED) !== 0;
    e.dueAt = this.#dueAt[i] as number;
    return e;
  }

  #dropTop(): void {
    const last = --this.#count;
    if (last === 0) return;
    const dueAt = this.#dueAt[last] as number;
    const seq = this.#seq[last] as number;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= last) break;
      if (
        child + 1 < last &&
        this.#isBefore(this.#dueAt[child + 1] as number, this.#seq[child + 1] as number, child)
      ) {
        child++;
      }
      if (!this.#isBefore(this.#dueAt[child] as number, this.#seq[child] as number, undefined, dueAt, seq))
        break;
      this.#copy(child, at);
      at = child;
    }
    this.#copy(last, at);
  }

  #isBefore(
    dueAt: number,
    seq: number,
    slot: number | undefined,
    otherDue?: number,
    otherSeq?: number,
  ): boolean {
    const due = slot === undefined ? (otherDue as number) : (this.#dueAt[slot] as number);
    if (dueAt !== due) return dueAt < due;
    return seq < (slot === undefined ? (otherSeq as number) : (this.#seq[slot] as number));
  }

  #copy(from: number, to: number): void {
    this.#dueAt[to] = this.#dueAt[from] as number;
    this.#seq[to] = this.#seq[from] as number;
    this.#position[to] = this.#position[from] as number;
    this.#size[to] = this.#size[from] as number;
    this.#flags[to] = this.#flags[from] as number;
  }

  #grow(): void {
    const length = this.#seq.length * 2;
    const wide = (old: Float64Array): Float64Array<ArrayBuffer> => {
      const wider = new Float64Array(length);
      wider.set(old);
      return wider;
    };
    this.#dueAt = wide(this.#dueAt);
    this.#seq = wide(this.#seq);
    this.#position = wide(this.#position);
    const size = new Uint32Array(length);
    size.set(this.#size);
    this.#size = size;
    const flags = new Uint8Array(length);
    flags.set(this.#flags);
    this.#flags = flags;
  }
}
