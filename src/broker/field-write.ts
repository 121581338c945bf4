import { DloError, utf8Length, writeUtf8 } from "../core/index.ts";
import { MAX_DEPTH } from "./fields.ts";
import type { FieldValue, HeaderTable } from "./table.ts";

/** Big-endian unsigned 32 bits; answers where it ends. */
export function writeU32(target: Uint8Array, at: number, value: number): number {
  target[at] = value >>> 24;
  target[at + 1] = value >>> 16;
  target[at + 2] = value >>> 8;
  target[at + 3] = value;
  return at + 4;
}

/** Big-endian 64 bits of a bigint (two's complement). */
export function writeI64(target: Uint8Array, at: number, value: bigint): number {
  writeU32(target, at, Number(BigInt.asUintN(32, value >> 32n)));
  return writeU32(target, at + 4, Number(BigInt.asUintN(32, value)));
}

/** Bytes of a value with its type letter. */
export function valueLength(value: FieldValue): number {
  switch (value.t) {
    case "S":
      return 5 + utf8Length(value.v);
    case "x":
      return 5 + value.v.length;
    case "F":
      return 5 + value.v.bytes.length;
    case "A":
      return value.v.reduce((sum, item) => sum + valueLength(item), 5);
    case "V":
      return 1;
    case "t":
    case "b":
    case "B":
      return 2;
    case "s":
    case "u":
      return 3;
    case "D":
      return 6;
    case "I":
    case "i":
    case "f":
      return 5;
    default:
      return 9;
  }
}

/** Writes a value with its type letter; answers where it ends. The room must be there ({@link valueLength}). */
export function encodeValue(target: Uint8Array, at: number, value: FieldValue): number {
  target[at] = value.t.charCodeAt(0);
  const from = at + 1;
  switch (value.t) {
    case "S": {
      const end = writeUtf8(target, from + 4, value.v);
      writeU32(target, from, end - from - 4);
      return end;
    }
    case "x":
    case "F": {
      const bytes = value.t === "x" ? value.v : value.v.bytes;
      target.set(bytes, writeU32(target, from, bytes.length));
      return from + 4 + bytes.length;
    }
    case "A": {
      let end = from + 4;
      for (const item of value.v) end = encodeValue(target, end, item);
      writeU32(target, from, end - from - 4);
      return end;
    }
    case "V":
      return from;
    case "t":
      target[from] = value.v ? 1 : 0;
      return from + 1;
    case "l":
      return writeI64(target, from, value.v);
    case "T":
      return writeI64(target, from, BigInt(Math.trunc(value.v)));
    case "D":
      target[from] = value.v.scale;
      return writeU32(target, from + 1, value.v.value);
    default:
      return writeNumber(target, from, value.t, value.v);
  }
}

function writeNumber(target: Uint8Array, at: number, type: string, value: number): number {
  switch (type) {
    case "b":
    case "B":
      target[at] = value;
      return at + 1;
    case "s":
    case "u":
      target[at] = value >> 8;
      target[at + 1] = value;
      return at + 2;
    case "I":
    case "i":
      return writeU32(target, at, value);
    default: {
      const view = new DataView(target.buffer, target.byteOffset + at);
      if (type === "f") view.setFloat32(0, value);
      else view.setFloat64(0, value);
      return at + (type === "f" ? 4 : 8);
    }
  }
}

/** Makes the nested table of a plain object; hands a HeaderTable back as it is. */
type TableOf = (object: Readonly<Record<string, unknown>>, depth: number) => HeaderTable;

/** A plain JavaScript value with the wire's type; `key` only names it in errors. */
export function fieldValueOf(key: string, value: unknown, depth: number, tableOf: TableOf): FieldValue {
  switch (typeof value) {
    case "string":
      return { t: "S", v: value };
    case "boolean":
      return { t: "t", v: value };
    case "bigint":
      if (BigInt.asIntN(64, value) !== value) {
        throw new DloError(
          "BAD_ARGUMENT",
          `header '${key}' is ${value}; a 64-bit signed integer was expected`,
        );
      }
      return { t: "l", v: value };
    case "number":
      if (!Number.isSafeInteger(value) || Object.is(value, -0)) return { t: "d", v: value };
      return value === (value | 0) ? { t: "I", v: value } : { t: "l", v: BigInt(value) };
    case "object":
      return objectValue(key, value, depth, tableOf);
    default:
      throw new DloError("BAD_ARGUMENT", `header '${key}' is a ${typeof value}, which AMQP cannot carry`);
  }
}

function objectValue(key: string, value: object | null, depth: number, tableOf: TableOf): FieldValue {
  if (value === null) return { t: "V", v: null };
  if (value instanceof Uint8Array) return { t: "x", v: value };
  if (depth >= MAX_DEPTH && !(value instanceof Date)) {
    throw new DloError("BAD_ARGUMENT", `header '${key}' is nested deeper than ${MAX_DEPTH}`);
  }
  if (Array.isArray(value)) {
    const items = value.map((item) => fieldValueOf(key, item ?? null, depth + 1, tableOf));
    return { t: "A", v: items };
  }
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime()))
      throw new DloError("BAD_ARGUMENT", `header '${key}' is an invalid date`);
    return { t: "T", v: Math.floor(value.getTime() / 1000) };
  }
  return { t: "F", v: tableOf(value as Record<string, unknown>, depth + 1) };
}
