/**
 * An AMQP field table (headers, arguments), kept as the exact bytes it came in and parsed only when read.
 * Dead-lettering must hand headers on untouched, so every change makes a new table that copies the other
 * entries' bytes as they are, in their order, duplicates and odd types included.
 */

/** A typed field value; `t` is the wire's type letter. Text is UTF-8 decoded; `x` and undecodable `S` keep bytes. */
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

export declare class HeaderTable {
  /** The entries' bytes, without the 32-bit length in front. */
  readonly bytes: Uint8Array;
  static readonly empty: HeaderTable;
  /** Takes bytes as they are; a malformed table throws here, with the place, never later. */
  static fromBytes(bytes: Uint8Array): HeaderTable;
  /** Plain JavaScript values: string S, safe integer I or l, other number d, bigint l, boolean t, null V, Date T, Uint8Array x, array A, object F. */
  static fromObject(object: Readonly<Record<string, unknown>>): HeaderTable;
  get size(): number;
  has(key: string): boolean;
  /** The first entry of that key. */
  get(key: string): FieldValue | undefined;
  keys(): string[];
  /** Replaces (in place) or appends entries; everything else keeps its bytes. */
  with(entries: Readonly<Record<string, FieldValue>>): HeaderTable;
  without(keys: readonly string[]): HeaderTable;
  /** Lossy convenience for people: plain values; int64 above 2^53 as bigint. No prototype keys. */
  toObject(): Record<string, unknown>;
}
