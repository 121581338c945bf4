import { utf8Length } from "../core/index.ts";
import { AmqpError } from "./errors.ts";
import type { FieldValue, HeaderTable } from "./table.ts";

/** RabbitMQ's names of the wire types, as they stand in its error texts. */
const TYPE_NAMES: Readonly<Record<FieldValue["t"], string>> = {
  S: "longstr",
  I: "signedint",
  D: "decimal",
  T: "timestamp",
  F: "table",
  b: "byte",
  B: "unsignedbyte",
  d: "double",
  f: "float",
  l: "long",
  s: "short",
  u: "unsignedshort",
  i: "unsignedint",
  t: "bool",
  x: "binary",
  V: "void",
  A: "array",
};

export function typeName(value: FieldValue): string {
  return TYPE_NAMES[value.t];
}

/** The number in an integer of any width; undefined for every other type. */
export function integerOf(value: FieldValue): number | undefined {
  switch (value.t) {
    case "b":
    case "B":
    case "s":
    case "u":
    case "I":
    case "i":
      return value.v;
    case "l":
      return Number(value.v);
    default:
      return undefined;
  }
}

/** A text that is the same for two values exactly when RabbitMQ takes them for equal: number width is ignored. */
export function canonicalValue(value: FieldValue): string {
  switch (value.t) {
    case "A":
      return `[${value.v.map(canonicalValue).join(",")}]`;
    case "F":
      return canonicalTable(value.v);
    case "D":
      return `D${value.v.value}e-${value.v.scale}`;
    case "x":
      return `x${value.v.join(",")}`;
    case "S":
      return JSON.stringify(value.v);
    case "t":
    case "V":
      return String(value.v);
    case "T":
      return `T${value.v}`;
    default:
      return `n${value.v}`;
  }
}

export function canonicalTable(table: HeaderTable | undefined): string {
  if (table === undefined || table.size === 0) return "{}";
  const parts = table
    .keys()
    .map((key) => `${JSON.stringify(key)}:${canonicalValue(table.get(key) as FieldValue)}`);
  return `{${parts.sort().join(",")}}`;
}

/** AMQP's short strings. The wire cannot carry longer ones; a caller in process can. */
const MAX_NAME_BYTES = 255;

/** Refuses names that no AMQP client could ever say. */
export function checkName(what: string, name: string): void {
  if (name.length <= 85) return;
  const bytes = utf8Length(name);
  if (bytes > MAX_NAME_BYTES) {
    const shown = `${name.slice(0, 32)}...`;
    throw new AmqpError(
      406,
      `${what} '${shown}' is ${bytes} bytes long, at most ${MAX_NAME_BYTES} are allowed`,
    );
  }
}
