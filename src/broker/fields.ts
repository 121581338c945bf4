import { decodeUtf8 } from "../core/index.ts";
import { AmqpError } from "./errors.ts";
import type { FieldValue, HeaderTable } from "./table.ts";

/** How deep tables and arrays may nest: enough for any header seen, far below the stack. */
export const MAX_DEPTH = 64;

/** Big-endian unsigned 32 bits. */
export function readU32(bytes: Uint8Array, at: number): number {
  return (
    (bytes[at] as number) * 0x1000000 +
    (((bytes[at + 1] as number) << 16) | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number))
  );
}

/** Big-endian signed 64 bits. */
export function readI64(bytes: Uint8Array, at: number): bigint {
  return (BigInt(readU32(bytes, at) | 0) << 32n) | BigInt(readU32(bytes, at + 4));
}

const malformed = (at: number, what: string): AmqpError =>
  new AmqpError(502, `malformed field table at byte ${at}: ${what}`);

/** Bytes of the types of fixed size, by type letter; 255: none such. */
const FIXED: Uint8Array = new Uint8Array(256).fill(255);
for (const [letter, size] of Object.entries({
  t: 1,
  b: 1,
  B: 1,
  s: 2,
  u: 2,
  I: 4,
  i: 4,
  f: 4,
  d: 8,
  D: 5,
  l: 8,
  T: 8,
  V: 0,
})) {
  FIXED[letter.charCodeAt(0)] = size;
}

const S = 0x53;
const X = 0x78;
const A = 0x41;
const F = 0x46;

/** Checks the entries in `[start, end)`; throws AmqpError 502 with the place. */
export function skipTable(bytes: Uint8Array, start: number, end: number, depth: number): void {
  if (depth > MAX_DEPTH) throw malformed(start, `nested deeper than ${MAX_DEPTH}`);
  let at = start;
  while (at < end) {
    const value = at + 1 + (bytes[at] as number);
    if (value >= end) throw malformed(at, "the table ends inside an entry's name");
    at = skipValue(bytes, value, end, depth);
  }
}

/** Checks the value (type letter first) at `at` and answers where the next thing begins. */
export function skipValue(bytes: Uint8Array, at: number, end: number, depth: number): number {
  const type = bytes[at] as number;
  const fixed = FIXED[type] as number;
  if (fixed !== 255) {
    const next = at + 1 + fixed;
    if (next > end) throw malformed(at, "the table ends inside a value");
    return next;
  }
  if (type !== S && type !== X && type !== A && type !== F) {
    throw malformed(at, `unknown type 0x${type.toString(16).padStart(2, "0")}`);
  }
  if (at + 5 > end) throw malformed(at, "the table ends inside a length");
  const next = at + 5 + readU32(bytes, at + 1);
  if (next > end) throw malformed(at, "a value is longer than the table");
  if (type === F) skipTable(bytes, at + 5, next, depth + 1);
  else if (type === A) skipArray(bytes, at + 5, next, depth + 1);
  return next;
}

function skipArray(bytes: Uint8Array, start: number, end: number, depth: number): void {
  if (depth > MAX_DEPTH) throw malformed(start, `nested deeper than ${MAX_DEPTH}`);
  let at = start;
  while (at < end) at = skipValue(bytes, at, end, depth);
}

type MakeTable = (bytes: Uint8Array, start: number, end: number) => HeaderTable;

/** Reads a checked value at `at` (its type letter). */
export function readValue(bytes: Uint8Array, at: number, makeTable: MakeTable): FieldValue {
  const letter = String.fromCharCode(bytes[at] as number) as FieldValue["t"];
  const from = at + 1;
  switch (letter) {
    case "S":
      return { t: letter, v: decodeUtf8(bytes, at + 5, at + 5 + readU32(bytes, from)) };
    case "x":
      return { t: letter, v: bytes.subarray(at + 5, at + 5 + readU32(bytes, from)) };
    case "F":
      return { t: letter, v: makeTable(bytes, at + 5, at + 5 + readU32(bytes, from)) };
    case "A":
      return { t: letter, v: readArray(bytes, at + 5, at + 5 + readU32(bytes, from), makeTable) };
    case "t":
      return { t: letter, v: bytes[from] !== 0 };
    case "V":
      return { t: letter, v: null };
    case "l":
      return { t: letter, v: readI64(bytes, from) };
    case "T":
      return { t: letter, v: Number(BigInt.asUintN(64, readI64(bytes, from))) };
    case "D":
      return { t: letter, v: { scale: bytes[from] as number, value: readU32(bytes, from + 1) } };
    default:
      return { t: letter, v: readNumber(bytes, from, letter) };
  }
}

function readNumber(
  bytes: Uint8Array,
  at: number,
  letter: "b" | "B" | "s" | "u" | "I" | "i" | "f" | "d",
): number {
  const byte = bytes[at] as number;
  switch (letter) {
    case "b":
      return (byte << 24) >> 24;
    case "B":
      return byte;
    case "s":
      return (((byte << 8) | (bytes[at + 1] as number)) << 16) >> 16;
    case "u":
      return (byte << 8) | (bytes[at + 1] as number);
    case "I":
      return readU32(bytes, at) | 0;
    case "i":
      return readU32(bytes, at);
    default: {
      const view = new DataView(bytes.buffer, bytes.byteOffset + at);
      return letter === "f" ? view.getFloat32(0) : view.getFloat64(0);
    }
  }
}

function readArray(bytes: Uint8Array, start: number, end: number, makeTable: MakeTable): FieldValue[] {
  const values: FieldValue[] = [];
  for (let at = start; at < end; at = skipValue(bytes, at, end, 1))
    values.push(readValue(bytes, at, makeTable));
  return values;
}
