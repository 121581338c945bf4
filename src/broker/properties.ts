import { DloError, decodeUtf8, utf8Length, writeUtf8 } from "../core/index.ts";
import { AmqpError } from "./errors.ts";
import { writeI64, writeU32 } from "./field-write.ts";
import { readI64, readU32 } from "./fields.ts";
import { HeaderTable } from "./table.ts";
import type { Properties } from "./types.ts";

/**
 * The property list of an AMQP content header: 16 flag bits, then the values of the set ones in this order. What
 * was decoded is encoded again to the very same bytes: {@link decodeProperties} remembers them, and in a copy
 * with other headers (a death) short strings that are not UTF-8 keep their bytes as lone surrogates
 * (core/utf8.ts), a timestamp above 2^53 as a bigint.
 */

type Text =
  | "contentType"
  | "contentEncoding"
  | "correlationId"
  | "replyTo"
  | "expiration"
  | "messageId"
  | "type"
  | "userId"
  | "appId"
  | "clusterId";

/** Property names by flag bit, 15 first. */
const ORDER = [
  "contentType",
  "contentEncoding",
  "headers",
  "deliveryMode",
  "priority",
  "correlationId",
  "replyTo",
  "expiration",
  "messageId",
  "timestamp",
  "type",
  "userId",
  "appId",
  "clusterId",
] as const satisfies readonly (keyof Properties)[];

const HEADERS = 13;
const DELIVERY_MODE = 12;
const PRIORITY = 11;
const TIMESTAMP = 6;

/** Decoded properties with their bytes. A private field is not copied by `{...properties}`, as it must not be. */
class DecodedProperties {
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  static bytesOf(properties: object): Uint8Array | undefined {
    return #bytes in properties ? properties.#bytes : undefined;
  }
}

const malformed = (what: string): AmqpError => new AmqpError(502, `malformed content header: ${what}`);

/**
 * Reads a property list (flags and values, without class, weight and body size). The bytes are kept, not copied,
 * and the result must be treated as frozen: change a property in a copy, `{ ...properties, headers }`.
 * @throws AmqpError 502 when malformed, or with bytes left over.
 */
export function decodeProperties(bytes: Uint8Array): Readonly<Properties> {
  if (bytes.length < 2) throw malformed("no property flags");
  const flags = ((bytes[0] as number) << 8) | (bytes[1] as number);
  if ((flags & 3) !== 0) throw malformed(`unknown property flags 0x${flags.toString(16)}`);
  const properties = new DecodedProperties(bytes) as Properties;
  let at = 2;
  for (let bit = 15; bit > 1; bit--) {
    if ((flags & (1 << bit)) !== 0) at = readProperty(bytes, at, bit, properties);
  }
  if (at !== bytes.length) throw malformed(`${bytes.length - at} bytes after the last property`);
  return properties;
}

function readProperty(bytes: Uint8Array, at: number, bit: number, into: Properties): number {
  const name = ORDER[15 - bit] as keyof Properties;
  const end = endOfProperty(bytes, at, bit);
  if (end > bytes.length) throw malformed(`it ends inside '${name}'`);
  switch (bit) {
    case HEADERS:
      into.headers = HeaderTable.fromBytes(bytes.subarray(at + 4, end));
      break;
    case DELIVERY_MODE:
      into.deliveryMode = bytes[at] as number;
      break;
    case PRIORITY:
      into.priority = bytes[at] as number;
      break;
    case TIMESTAMP: {
      const exact = BigInt.asUintN(64, readI64(bytes, at));
      const number = Number(exact);
      into.timestamp = Number.isSafeInteger(number) ? number : exact;
      break;
    }
    default:
      into[name as Text] = decodeUtf8(bytes, at + 1, end);
  }
  return end;
}

function endOfProperty(bytes: Uint8Array, at: number, bit: number): number {
  if (bit === DELIVERY_MODE || bit === PRIORITY) return at + 1;
  if (bit === TIMESTAMP) return at + 8;
  if (bit === HEADERS) return at + 4 > bytes.length ? at + 4 : at + 4 + readU32(bytes, at);
  return at >= bytes.length ? at + 1 : at + 1 + (bytes[at] as number);
}

/**
 * The property list as bytes: exactly those it was decoded from, where it was. Answers shared bytes: do not
 * change them.
 * @throws DloError BAD_ARGUMENT for a text over 255 bytes, or a number out of its range.
 */
export function encodeProperties(properties: Readonly<Properties>): Uint8Array {
  const known = DecodedProperties.bytesOf(properties);
  if (known !== undefined) return known;
  const bytes = new Uint8Array(propertiesLength(properties));
  writeProperties(bytes, 0, properties);
  return bytes;
}

/** How many bytes {@link writeProperties} writes; throws as {@link encodeProperties} does. */
export function propertiesLength(properties: Readonly<Properties>): number {
  const known = DecodedProperties.bytesOf(properties);
  if (known !== undefined) return known.length;
  const p = properties;
  // Named one by one: looked up by a variable name this costs as much as writing the message to the file.
  return (
    2 +
    textLength("contentType", p.contentType) +
    textLength("contentEncoding", p.contentEncoding) +
    (p.headers === undefined ? 0 : 4 + p.headers.bytes.length) +
    byteLength("deliveryMode", p.deliveryMode) +
    byteLength("priority", p.priority) +
    textLength("correlationId", p.correlationId) +
    textLength("replyTo", p.replyTo) +
    textLength("expiration", p.expiration) +
    textLength("messageId", p.messageId) +
    timestampLength(p.timestamp) +
    textLength("type", p.type) +
    textLength("userId", p.userId) +
    textLength("appId", p.appId) +
    textLength("clusterId", p.clusterId)
  );
}

/**
 * Writes what {@link encodeProperties} answers at `start`: values in the order of their flag bits, and the flags in
 * front of them. The room must be there ({@link propertiesLength}).
 */
export function writeProperties(bytes: Uint8Array, start: number, p: Readonly<Properties>): void {
  const known = DecodedProperties.bytesOf(p);
  if (known !== undefined) {
    bytes.set(known, start);
    return;
  }
  let flags = 0;
  let at = start + 2;
  const text = (bit: number, value: string | undefined): void => {
    if (value === undefined) return;
    flags |= 1 << bit;
    const end = writeUtf8(bytes, at + 1, value);
    bytes[at] = end - at - 1;
    at = end;
  };
  const byte = (bit: number, value: number | undefined): void => {
    if (value === undefined) return;
    flags |= 1 << bit;
    bytes[at++] = value;
  };
  text(15, p.contentType);
  text(14, p.contentEncoding);
  if (p.headers !== undefined) {
    flags |= 1 << HEADERS;
    const table = p.headers.bytes;
    bytes.set(table, writeU32(bytes, at, table.length));
    at += 4 + table.length;
  }
  byte(DELIVERY_MODE, p.deliveryMode);
  byte(PRIORITY, p.priority);
  text(10, p.correlationId);
  text(9, p.replyTo);
  text(8, p.expiration);
  text(7, p.messageId);
  if (p.timestamp !== undefined) {
    flags |= 1 << TIMESTAMP;
    at = writeI64(bytes, at, BigInt(p.timestamp));
  }
  text(5, p.type);
  text(4, p.userId);
  text(3, p.appId);
  text(2, p.clusterId);
  bytes[start] = flags >> 8;
  bytes[start + 1] = flags;
}

const bad = (name: string, what: string): DloError =>
  new DloError("BAD_ARGUMENT", `property '${name}' ${what}`);

function textLength(name: Text, value: string | undefined): number {
  if (value === undefined) return 0;
  const length = utf8Length(value);
  if (length > 255) throw bad(name, `has ${length} bytes; AMQP allows up to 255`);
  return 1 + length;
}

function byteLength(name: "deliveryMode" | "priority", value: number | undefined): number {
  if (value === undefined) return 0;
  if (!Number.isInteger(value) || value < 0 || value > 255)
    throw bad(name, `is ${value}; a whole number from 0 to 255 was expected`);
  return 1;
}

function timestampLength(value: number | bigint | undefined): number {
  if (value === undefined) return 0;
  if ((typeof value !== "bigint" && !Number.isSafeInteger(value)) || value < 0)
    throw bad("timestamp", `is ${value}; whole seconds were expected`);
  return 8;
}
