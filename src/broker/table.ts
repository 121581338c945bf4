import { DloError, decodeUtf8, utf8Length, writeUtf8 } from "../core/index.ts";
import { encodeValue, fieldValueOf, valueLength } from "./field-write.ts";
import { readValue, skipTable, skipValue } from "./fields.ts";

/**
 * An AMQP field table (headers, arguments), kept as the exact bytes it came in and parsed only when read.
 * Dead-lettering must hand headers on untouched, so every change makes a new table that copies the other
 * entries' bytes as they are, in their order, duplicates and odd types included.
 */

/**
 * A typed field value; `t` is the wire's type letter. Text is UTF-8 decoded, and bytes that are not UTF-8 come as
 * lone surrogates (core/utf8.ts), so that writing the text back gives the same bytes. `T` is in seconds; above
 * 2^53 its number is an approximation (the table's own bytes stay exact).
 */
export type FieldValue =
  | { t: "S"; v: string }
  | { t: "x"; v: Uint8Array }
  | { t: "b" | "B" | "s" | "u" | "I" | "i" | "f" | "d"; v: number }
  | { t: "l"; v: bigint }
  | { t: "T"; v: number }
  | { t: "D"; v: { scale: number; value: number } }
  | { t: "t"; v: boolean }
  | { t: "V"; v: null }
  | { t: "A"; v: FieldValue[] }
  | { t: "F"; v: HeaderTable };

const NO_BYTES = new Uint8Array(0);

/**
 * @example
 * const table = HeaderTable.fromObject({ "x-message-ttl": 1000, "x-match": "all" });
 * table.get("x-message-ttl"); // { t: "I", v: 1000 }
 * table.with({ "x-death": { t: "A", v: [] } }).without(["x-match"]).keys(); // ["x-message-ttl", "x-death"]
 */
export class HeaderTable {
  /** The entries' bytes, without the 32-bit length in front. */
  readonly bytes: Uint8Array;

  static readonly empty: HeaderTable = new HeaderTable(NO_BYTES);

  /** Use {@link HeaderTable.fromBytes} or {@link HeaderTable.fromObject}: the constructor checks nothing. */
  constructor(checked: Uint8Array) {
    this.bytes = checked;
  }

  /**
   * Takes bytes as they are and does not copy them: they must not change afterwards.
   * @throws AmqpError 502 when malformed, here and never later, naming the byte where.
   */
  static fromBytes(bytes: Uint8Array): HeaderTable {
    if (bytes.length === 0) return HeaderTable.empty;
    skipTable(bytes, 0, bytes.length, 1);
    return new HeaderTable(bytes);
  }

  /**
   * From plain JavaScript values: string S, safe integer I or l, other number d, bigint l, boolean t, null V,
   * Date T, Uint8Array x, array A, object or HeaderTable F; `undefined` is left out.
   * @throws DloError BAD_ARGUMENT for anything else, a key over 255 bytes, or nesting deeper than 64.
   */
  static fromObject(object: Readonly<Record<string, unknown>>): HeaderTable {
    return tableOf(object, 1);
  }

  /** Number of entries, duplicates included. */
  get size(): number {
    let count = 0;
    for (let at = 0; at < this.bytes.length; at = this.#next(at)) count++;
    return count;
  }

  has(key: string): boolean {
    return this.#find(key) >= 0;
  }

  /** The first entry of that key. */
  get(key: string): FieldValue | undefined {
    const at = this.#find(key);
    return at < 0 ? undefined : readValue(this.bytes, this.#valueAt(at), tableAt);
  }

  /** In their order, duplicates included. */
  keys(): string[] {
    const keys: string[] = [];
    for (let at = 0; at < this.bytes.length; at = this.#next(at)) keys.push(this.#keyAt(at));
    return keys;
  }

  /**
   * Replaces entries where they stand, or appends; later duplicates of a replaced key go. Everything else keeps
   * its bytes and its order.
   */
  with(entries: Readonly<Record<string, FieldValue>>): HeaderTable {
    // Measured first and written once: dead-lettering does this for every message, and allocations are its cost.
    const pieces: (string | readonly [number, number])[] = [];
    const placed = new Set<string>();
    let kept = 0;
    let length = 0;
    const keep = (from: number, to: number): void => {
      if (to <= from) return;
      pieces.push([from, to]);
      length += to - from;
    };
    const place = (key: string): void => {
      placed.add(key);
      pieces.push(key);
      length += entryLength(key, entries[key] as FieldValue);
    };
    for (let at = 0; at < this.bytes.length; ) {
      const next = this.#next(at);
      const key = this.#keyAt(at);
      if (Object.hasOwn(entries, key)) {
        keep(kept, at);
        if (!placed.has(key)) place(key);
        kept = next;
      }
      at = next;
    }
    keep(kept, this.bytes.length);
    for (const key of Object.keys(entries)) if (!placed.has(key)) place(key);
    const whole = new Uint8Array(length);
    let at = 0;
    for (const piece of pieces) {
      if (typeof piece === "string") at = writeEntry(whole, at, piece, entries[piece] as FieldValue);
      else {
        whole.set(this.bytes.subarray(piece[0], piece[1]), at);
        at += piece[1] - piece[0];
      }
    }
    return new HeaderTable(whole);
  }

  /** Without any entry of those keys; itself when it has none of them. */
  without(keys: readonly string[]): HeaderTable {
    const pieces: Uint8Array[] = [];
    let kept = 0;
    for (let at = 0; at < this.bytes.length; ) {
      const next = this.#next(at);
      if (keys.some((key) => this.#keyIs(at, key))) {
        if (at > kept) pieces.push(this.bytes.subarray(kept, at));
        kept = next;
      }
      at = next;
    }
    if (kept === 0) return this;
    if (kept < this.bytes.length) pieces.push(this.bytes.subarray(kept));
    return pieces.length === 0 ? HeaderTable.empty : new HeaderTable(join(pieces));
  }

  /**
   * Plain values for people, with losses: types are gone, a key given twice has its first value, int64 above
   * 2^53 is a bigint, a timestamp a Date. Has no prototype, so `__proto__` is a key like any other.
   */
  toObject(): Record<string, unknown> {
    const object: Record<string, unknown> = Object.create(null);
    for (let at = 0; at < this.bytes.length; at = this.#next(at)) {
      const key = this.#keyAt(at);
      if (!(key in object)) object[key] = plain(readValue(this.bytes, this.#valueAt(at), tableAt));
    }
    return object;
  }

  /** True when both have the same bytes. */
  equals(other: HeaderTable): boolean {
    if (this.bytes.length !== other.bytes.length) return false;
    for (let i = 0; i < this.bytes.length; i++) if (this.bytes[i] !== other.bytes[i]) return false;
    return true;
  }

  #valueAt(at: number): number {
    return at + 1 + (this.bytes[at] as number);
  }

  #next(at: number): number {
    return skipValue(this.bytes, this.#valueAt(at), this.bytes.length, 1);
  }

  #keyAt(at: number): string {
    return decodeUtf8(this.bytes, at + 1, at + 1 + (this.bytes[at] as number));
  }

  #keyIs(at: number, key: string): boolean {
    const length = this.bytes[at] as number;
    if (length === key.length) {
      let i = 0;
      while (i < length && this.bytes[at + 1 + i] === key.charCodeAt(i)) i++;
      if (i === length) return true;
      if ((this.bytes[at + 1 + i] as number) < 0x80 && key.charCodeAt(i) < 0x80) return false;
    } else if (length < key.length) return false;
    // Beyond ASCII: lengths may differ, and are the same for bytes that are not UTF-8.
    return length === utf8Length(key) && this.#keyAt(at) === key;
  }

  #find(key: string): number {
    for (let at = 0; at < this.bytes.length; at = this.#next(at)) if (this.#keyIs(at, key)) return at;
    return -1;
  }
}

/** A nested table over bytes that were checked with their parent. */
function tableAt(bytes: Uint8Array, start: number, end: number): HeaderTable {
  return start === end ? HeaderTable.empty : new HeaderTable(bytes.subarray(start, end));
}

function entryLength(key: string, value: FieldValue): number {
  const keyLength = utf8Length(key);
  if (keyLength > 255) {
    throw new DloError("BAD_ARGUMENT", `a header's name has ${keyLength} bytes; AMQP allows up to 255`);
  }
  return 1 + keyLength + valueLength(value);
}

/** Answers where it ends. */
function writeEntry(target: Uint8Array, at: number, key: string, value: FieldValue): number {
  const end = writeUtf8(target, at + 1, key);
  target[at] = end - at - 1;
  return encodeValue(target, end, value);
}

function entryBytes(key: string, value: FieldValue): Uint8Array {
  const bytes = new Uint8Array(entryLength(key, value));
  writeEntry(bytes, 0, key, value);
  return bytes;
}

function join(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 1) return pieces[0] as Uint8Array;
  let length = 0;
  for (const piece of pieces) length += piece.length;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function tableOf(object: Readonly<Record<string, unknown>>, depth: number): HeaderTable {
  if (object instanceof HeaderTable) return object;
  const pieces: Uint8Array[] = [];
  for (const key of Object.keys(object)) {
    const value = object[key];
    if (value !== undefined) pieces.push(entryBytes(key, fieldValueOf(key, value, depth, tableOf)));
  }
  return pieces.length === 0 ? HeaderTable.empty : new HeaderTable(join(pieces));
}

function plain(value: FieldValue): unknown {
  switch (value.t) {
    case "l": {
      const small = Number(value.v);
      return Number.isSafeInteger(small) ? small : value.v;
    }
    case "T":
      return new Date(value.v * 1000);
    case "D":
      return value.v.value / 10 ** value.v.scale;
    case "A":
      return value.v.map(plain);
    case "F":
      return value.v.toObject();
    default:
      return value.v;
  }
}
