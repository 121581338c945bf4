// Arbitraries for header tables and properties, shared by the codec's tests.
import fc from "fast-check";
import { type FieldValue, HeaderTable, type Properties } from "../../../src/broker/index.ts";
import { decodeUtf8, encodeUtf8 } from "../../../src/core/index.ts";

const uint = (bits: number) => fc.integer({ min: 0, max: 2 ** bits - 1 });
const int = (bits: number) => fc.integer({ min: -(2 ** (bits - 1)), max: 2 ** (bits - 1) - 1 });
export const key: fc.Arbitrary<string> = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.string({ unit: "grapheme", maxLength: 12 }).filter((k) => encodeUtf8(k).length <= 255),
  fc.uint8Array({ maxLength: 8 }).map((bytes) => decodeUtf8(bytes)),
  fc.constantFrom("__proto__", "1", "0", "x-death", "constructor", ""),
);
/** Any bytes, as the text that stands for them. */
export const text = fc.oneof(fc.string(), fc.string({ unit: "grapheme" }));

const scalars: fc.Arbitrary<FieldValue>[] = [
  text.map((v) => ({ t: "S", v })),
  fc.uint8Array({ maxLength: 20 }).map((v) => ({ t: "x", v })),
  int(8).map((v) => ({ t: "b", v })),
  uint(8).map((v) => ({ t: "B", v })),
  int(16).map((v) => ({ t: "s", v })),
  uint(16).map((v) => ({ t: "u", v })),
  int(32).map((v) => ({ t: "I", v })),
  uint(32).map((v) => ({ t: "i", v })),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((v) => ({ t: "l", v })),
  fc.float({ noNaN: true }).map((v) => ({ t: "f", v })),
  fc.double({ noNaN: true }).map((v) => ({ t: "d", v })),
  fc.record({ scale: uint(8), value: uint(32) }).map((v) => ({ t: "D", v })),
  fc.boolean().map((v) => ({ t: "t", v })),
  fc.constant({ t: "V", v: null }),
  fc.maxSafeNat().map((v) => ({ t: "T", v })),
];

/** Entries as pairs, so that duplicates and integer-like keys keep their place. */
export type Entries = [string, FieldValue][];

export const fields = fc.letrec<{ value: FieldValue; entries: Entries }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, depthIdentifier: "v" },
    ...scalars,
    fc.array(tie("value"), { maxLength: 4 }).map((v): FieldValue => ({ t: "A", v })),
    tie("entries").map((entries): FieldValue => ({ t: "F", v: tableOf(entries) })),
  ),
  entries: fc.array(fc.tuple(key, tie("value")), { maxLength: 4, depthIdentifier: "v" }),
}));

/** A table with these entries in this order, duplicates included, written without the table's own `with`. */
export function tableOf(entries: Entries): HeaderTable {
  const parts = entries.map(([name, value]) => {
    const one = HeaderTable.empty.with({ k: value }).bytes;
    const keyBytes = encodeUtf8(name).slice(0, 255);
    return Buffer.concat([Buffer.from([keyBytes.length]), keyBytes, one.subarray(2)]);
  });
  return HeaderTable.fromBytes(new Uint8Array(Buffer.concat(parts)));
}

const short = text.filter((v) => encodeUtf8(v).length <= 255);

export const properties: fc.Arbitrary<Properties> = fc.record(
  {
    contentType: short,
    contentEncoding: short,
    headers: fields.entries.map(tableOf),
    deliveryMode: uint(8),
    priority: uint(8),
    correlationId: short,
    replyTo: short,
    expiration: short,
    messageId: short,
    timestamp: fc.oneof(fc.maxSafeNat(), fc.bigInt({ min: 2n ** 53n, max: 2n ** 64n - 1n })),
    type: short,
    userId: short,
    appId: short,
    clusterId: short,
  },
  { requiredKeys: [] },
);
