/**
 * What is known of waiting messages besides their content, as fixed records in blocks of neighbouring messages.
 * A start reads blocks only (64 bytes a message, no bodies), and a batch that puts, begins or settles a hundred
 * messages in a row writes two rows instead of a hundred. Numbers are little-endian on every machine Node runs on
 * that people use; a file does not move to a big-endian one.
 */
import type { DeathReason, MessageState } from "../../broker/index.ts";

/** Records of one block: two blocks of 60 * 64 bytes fit one 8 KB page. */
export const PER_BLOCK = 60;
const RECORD = 64;
const WORDS = RECORD / 4;
const DOUBLES = RECORD / 8;

const LIVE = 1;
const REDELIVERED = 2;
const SUSPECT = 4;
const DIED = 8;
const HOLD_SHIFT = 4; // two bits
const IN_COMPANY = 64;
const RETAINED_SHIFT = 8; // three bits
const PRIORITY_SHIFT = 16; // eight bits

const REASONS: readonly (DeathReason | null)[] = [null, "rejected", "expired", "maxlen", "delivery_limit"];

// Words: 0 flags, 1 queue, 2 size, 3 starts, 4 deliveryCount, 5 failures; doubles: 3 position, 4 expiresAt,
// 5 firstReceivedAt, 6 dueAt, 7 row that holds the body (0: the message's own).

/** One block in memory. */
export class Block {
  readonly id: number;
  live = 0;
  dirty = false;
  /** A row of it lies in the file. */
  stored = false;
  readonly #bytes: Uint8Array;
  readonly #words: Uint32Array;
  readonly #doubles: Float64Array;

  constructor(id: number, stored?: Uint8Array) {
    this.id = id;
    const buffer = new ArrayBuffer(PER_BLOCK * RECORD);
    this.#bytes = new Uint8Array(buffer);
    this.#words = new Uint32Array(buffer);
    this.#doubles = new Float64Array(buffer);
    if (stored === undefined) return;
    this.stored = true;
    this.#bytes.set(stored);
    for (let slot = 0; slot < PER_BLOCK; slot++) if (this.isLive(slot)) this.live++;
  }

  /** The bytes up to the last live record. */
  get bytes(): Uint8Array {
    let last = PER_BLOCK - 1;
    while (last > 0 && !this.isLive(last)) last--;
    return this.#bytes.subarray(0, (last + 1) * RECORD);
  }

  isLive(slot: number): boolean {
    return ((this.#words[slot * WORDS] as number) & LIVE) !== 0;
  }

  queueOf(slot: number): number {
    return this.#words[slot * WORDS + 1] as number;
  }

  /** The row that holds the body; 0: the message's own. Readable until the slot is used again, which is never. */
  bodyOf(slot: number): number {
    return this.#doubles[slot * DOUBLES + 7] as number;
  }

  setBody(slot: number, row: number): void {
    this.#doubles[slot * DOUBLES + 7] = row;
    this.dirty = true;
  }

  write(slot: number, queueId: number, state: MessageState): void {
    const word = slot * WORDS;
    if (!this.isLive(slot)) this.live++;
    this.#words[word] =
      LIVE |
      (state.redelivered ? REDELIVERED : 0) |
      (state.suspect ? SUSPECT : 0) |
      (state.inCompany ? IN_COMPANY : 0) |
      (state.died ? DIED : 0) |
      (state.hold << HOLD_SHIFT) |
      (REASONS.indexOf(state.retained) << RETAINED_SHIFT) |
      (state.priority << PRIORITY_SHIFT);
    this.#words[word + 1] = queueId;
    this.#words[word + 2] = state.size;
    this.#words[word + 3] = state.starts;
    this.#words[word + 4] = state.deliveryCount;
    this.#words[word + 5] = state.failures;
    const double = slot * DOUBLES;
    this.#doubles[double + 3] = state.position;
    this.#doubles[double + 4] = state.expiresAt;
    this.#doubles[double + 5] = state.firstReceivedAt;
    this.#doubles[double + 6] = state.dueAt;
    this.dirty = true;
  }

  /** A live record: its message was handed out. */
  hold(slot: number): void {
    const word = slot * WORDS;
    this.#words[word] = (this.#words[word] as number) | (1 << HOLD_SHIFT);
    this.dirty = true;
  }

  kill(slot: number): void {
    if (!this.isLive(slot)) return;
    this.#words[slot * WORDS] = 0;
    this.live--;
    this.dirty = true;
  }

  /** The state of a live record; `seq` is its message's. */
  read(slot: number, seq: number): MessageState {
    const word = slot * WORDS;
    const flags = this.#words[word] as number;
    const double = slot * DOUBLES;
    return {
      seq,
      position: this.#doubles[double + 3] as number,
      size: this.#words[word + 2] as number,
      expiresAt: this.#doubles[double + 4] as number,
      priority: (flags >> PRIORITY_SHIFT) & 0xff,
      redelivered: (flags & REDELIVERED) !== 0,
      deliveryCount: this.#words[word + 4] as number,
      starts: this.#words[word + 3] as number,
      firstReceivedAt: this.#doubles[double + 5] as number,
      dueAt: this.#doubles[double + 6] as number,
      suspect: (flags & SUSPECT) !== 0,
      inCompany: (flags & IN_COMPANY) !== 0,
      hold: ((flags >> HOLD_SHIFT) & 3) as 0 | 1 | 2,
      failures: this.#words[word + 5] as number,
      died: (flags & DIED) !== 0,
      retained: REASONS[(flags >> RETAINED_SHIFT) & 7] ?? null,
    };
  }

  positionOf(slot: number): number {
    return this.#doubles[slot * DOUBLES + 3] as number;
  }
}
