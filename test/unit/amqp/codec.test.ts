import { createRequire } from "node:module";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  AmqpError,
  decodeProperties,
  encodeProperties,
  type FieldValue,
  HeaderTable,
  type Properties,
} from "../../../src/broker/index.ts";
import { decodeUtf8, encodeUtf8, utf8Length } from "../../../src/core/index.ts";
import { type Entries, fields, key, properties, tableOf, text } from "./tables.ts";

const require = createRequire(import.meta.url);
const amqplib = require("../../../node_modules/amqplib/lib/codec.js") as {
  encodeTable(target: Buffer, table: object, at: number): number;
  decodeFields(bytes: Buffer): Record<string, unknown>;
};
const amqplibDefs = require("../../../node_modules/amqplib/lib/defs.js") as {
  encodeProperties(id: number, channel: number, size: number, fields: object): Buffer;
  decode(id: number, bytes: Buffer): Record<string, unknown>;
};
const rabbitmqClient = require("../../../node_modules/rabbitmq-client/lib/codec.js") as {
  decodeFrame(read: (length: number) => Promise<Buffer>): Promise<{ fields: Record<string, unknown> }>;
};

const BASIC = 60;
const check = (property: fc.IProperty<never> | fc.IRawProperty<never>) => fc.assert(property as never);

describe("UTF-8 of our own", () => {
  it("is an exact inverse for any bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(encodeUtf8(decodeUtf8(bytes))).toEqual(bytes);
      }),
    );
  });

  it("reads and writes valid text as Buffer does, at any offset", () => {
    fc.assert(
      fc.property(text, fc.nat(9), (value, pad) => {
        const bytes = Buffer.concat([Buffer.alloc(pad, 0xff), Buffer.from(value), Buffer.alloc(3, 0xff)]);
        const well = Buffer.from(value).toString();
        expect(decodeUtf8(bytes, pad, bytes.length - 3)).toBe(well);
        expect(Buffer.from(encodeUtf8(well))).toEqual(Buffer.from(well));
        expect(utf8Length(well)).toBe(Buffer.byteLength(well));
      }),
    );
  });

  it("keeps overlong, surrogate and out-of-range sequences as bytes", () => {
    for (const hex of ["c080", "eda080", "f4908080", "f8888080", "e28280e282", "80", "ff41c3"]) {
      const bytes = new Uint8Array(Buffer.from(hex, "hex"));
      expect(encodeUtf8(decodeUtf8(bytes)), hex).toEqual(bytes);
    }
    expect(encodeUtf8("\ud800x")).toEqual(new Uint8Array(Buffer.from("\ufffdx")));
  });
});

/** The value as amqplib's typed notation writes it, and as its decoder reads it back. */
function amqplibForm(value: FieldValue): unknown {
  const names = { b: "int8", B: "uint8", s: "int16", u: "uint16", I: "int32", i: "uint32", l: "int64" };
  switch (value.t) {
    case "x":
      return Buffer.from(value.v);
    case "f":
      return { "!": "float", value: value.v };
    case "d":
      return { "!": "float64", value: value.v };
    case "D":
      return { "!": "decimal", value: { places: value.v.scale, digits: value.v.value } };
    case "S":
    case "t":
    case "V":
      return value.v;
    case "A":
      return value.v.map(amqplibForm);
    case "F":
      throw new Error("not generated here");
    case "T":
      return { "!": "timestamp", value: value.v };
    default:
      return { "!": names[value.t], value: value.v };
  }
}

describe("a header table", () => {
  it("keeps its bytes, whatever they mean", () => {
    fc.assert(
      fc.property(fields.entries, (entries) => {
        const table = tableOf(entries);
        const again = HeaderTable.fromBytes(table.bytes);
        expect(again.bytes).toEqual(table.bytes);
        expect(again.size).toBe(entries.length);
        expect(again.keys().map((k) => encodeUtf8(k))).toEqual(entries.map(([k]) => encodeUtf8(k)));
      }),
    );
  });

  it("gives back every value as it was written", () => {
    fc.assert(
      fc.property(fields.value, key, (value, name) => {
        expect(HeaderTable.empty.with({ [name]: value }).get(name)).toEqual(value);
      }),
    );
  });

  it("writes what amqplib writes, type by type", () => {
    const flat = fields.value.filter(
      (v) => !JSON.stringify(v, (_, x) => (typeof x === "bigint" ? 0 : x)).includes('"F"'),
    );
    fc.assert(
      fc.property(flat, (value) => {
        const target = Buffer.alloc(65536);
        const length = amqplib.encodeTable(target, { k: amqplibForm(value) }, 0);
        expect(Buffer.from(HeaderTable.empty.with({ k: value }).bytes)).toEqual(target.subarray(4, length));
      }),
    );
  });

  it("is read by amqplib as it reads itself, where amqplib is right", () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.stringMatching(/^[a-z]{1,9}$/), fc.oneof(fc.string(), fc.boolean(), fc.nat())),
        (o) => {
          expect(amqplib.decodeFields(Buffer.from(HeaderTable.fromObject(o).bytes))).toEqual({ ...o });
          expect(HeaderTable.fromObject(o).toObject()).toEqual({ ...o });
        },
      ),
    );
  });

  it("changes only what is changed", () => {
    fc.assert(
      fc.property(fields.entries, fields.value, fc.nat(), (entries, value, pick) => {
        const usable = entries;
        const table = tableOf(usable);
        const name = usable.length === 0 ? "new" : (usable[pick % usable.length] as Entries[0])[0];
        const first = usable.findIndex(([k]) => k === name);
        const wanted: Entries = usable.filter(([k], i) => k !== name || i === first);
        const rest = wanted.filter(([k]) => k !== name);
        if (first < 0) wanted.push([name, value]);
        const replaced = wanted.map(([k, v]): [string, FieldValue] => [k, k === name ? value : v]);
        expect(table.with({ [name]: value }).bytes).toEqual(tableOf(replaced).bytes);
        expect(table.without([name]).bytes).toEqual(tableOf(rest).bytes);
      }),
    );
  });

  it("does not copy when there is nothing to take out", () => {
    const table = HeaderTable.fromObject({ a: 1 });
    expect(table.without(["b", "aa"])).toBe(table);
    expect(HeaderTable.fromBytes(new Uint8Array(0))).toBe(HeaderTable.empty);
  });

  it("takes plain values by their obvious type", () => {
    const table = HeaderTable.fromObject({
      s: "ü",
      i: -1,
      l: 2 ** 40,
      d: 1.5,
      z: -0,
      big: 2n ** 62n,
      t: true,
      n: null,
      gone: undefined,
      at: new Date(1500),
      x: new Uint8Array([1]),
      a: [1, "b", undefined],
      f: { f: {} },
    });
    const typed = Object.fromEntries(table.keys().map((k) => [k, table.get(k)?.t]));
    expect(typed).toEqual({
      s: "S",
      i: "I",
      l: "l",
      d: "d",
      z: "d",
      big: "l",
      t: "t",
      n: "V",
      at: "T",
      x: "x",
      a: "A",
      f: "F",
    });
    expect(table.toObject()).toMatchObject({
      l: 2 ** 40,
      big: 2n ** 62n,
      at: new Date(1000),
      a: [1, "b", null],
    });
    expect(() => HeaderTable.fromObject({ f: () => 0 })).toThrow("header 'f' is a function");
    expect(() => HeaderTable.fromObject({ ["k".repeat(256)]: 1 })).toThrow("256 bytes");
    expect(() => HeaderTable.fromObject({ l: 2n ** 63n })).toThrow("64-bit");
  });

  it("refuses malformed bytes at once, naming the place", () => {
    const good = HeaderTable.fromObject({ a: "text", b: [1, { c: true }] }).bytes;
    const starts = new Set([0]);
    for (let cut = 1; cut < good.length; cut++) {
      try {
        HeaderTable.fromBytes(good.subarray(0, cut));
        starts.add(cut);
      } catch (error) {
        expect(error).toBeInstanceOf(AmqpError);
        expect((error as AmqpError).code).toBe(502);
        expect((error as Error).message).toMatch(/^SYNTAX_ERROR - malformed field table at byte \d+: /);
      }
    }
    expect([...starts]).toEqual([0, 11]); // only whole entries pass
    expect(() => HeaderTable.fromBytes(new Uint8Array([1, 0x61, 0x5a, 0]))).toThrow(
      "at byte 2: unknown type 0x5a",
    );
  });

  it("never throws anything but a syntax error, whatever the bytes, and what it takes it can read", () => {
    fc.assert(
      fc.property(
        fields.entries,
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
        (entries, edits) => {
          const bytes = Uint8Array.from(tableOf(entries).bytes);
          for (const [at, value] of edits) if (bytes.length > 0) bytes[at % bytes.length] = value;
          try {
            const table = HeaderTable.fromBytes(bytes);
            table.toObject();
            for (const name of table.keys()) table.get(name);
          } catch (error) {
            expect((error as AmqpError).code).toBe(502);
          }
        },
      ),
    );
  });

  it("bounds nesting", () => {
    const nest = (depth: number): Record<string, unknown> => (depth === 0 ? {} : { f: nest(depth - 1) });
    expect(HeaderTable.fromBytes(HeaderTable.fromObject(nest(63)).bytes).size).toBe(1);
    expect(() => HeaderTable.fromObject(nest(64))).toThrow("nested deeper than 64");
    let bytes: Uint8Array = new Uint8Array(0);
    for (let i = 0; i < 64; i++)
      bytes = HeaderTable.empty.with({ f: { t: "x", v: bytes } }).bytes.map((b, at) => (at === 2 ? 0x46 : b));
    expect(() => HeaderTable.fromBytes(bytes)).toThrow("nested deeper than 64");
  });
});

const bare = (p: Properties) => ({ ...p });

describe("a property list", () => {
  it("comes back as it went, and to the same bytes", () => {
    fc.assert(
      fc.property(properties, (given) => {
        const bytes = encodeProperties(given);
        const back = decodeProperties(bytes);
        expect(bare(back)).toEqual(given);
        expect(encodeProperties(back)).toBe(bytes);
        expect(encodeProperties({ ...back })).toEqual(bytes);
      }),
    );
  });

  it("is read by amqplib and rabbitmq-client as they should", async () => {
    await fc.assert(
      fc.asyncProperty(properties, async (given) => {
        const { headers: _, timestamp: at, ...simple } = given;
        const safe = Object.fromEntries(
          Object.entries(simple).map(([k, v]) => [k, typeof v === "string" ? Buffer.from(v).toString() : v]),
        ) as Properties;
        if (typeof at === "number") safe.timestamp = at;
        const theirs = amqplibDefs.encodeProperties(BASIC, 1, 7, safe);
        const ours = Buffer.from(encodeProperties(safe));
        expect(ours).toEqual(theirs.subarray(19, -1));
        let read = 0;
        const frame = await rabbitmqClient.decodeFrame(async (length) =>
          theirs.subarray(read, (read += length)),
        );
        expect(bare(decodeProperties(ours))).toEqual(frame.fields);
        const kept = Object.entries(amqplibDefs.decode(BASIC, ours)).filter(([, v]) => v !== undefined);
        expect(Object.fromEntries(kept)).toEqual(safe);
      }),
    );
  });

  it("keeps short strings that are not UTF-8, also next to changed headers", () => {
    const odd = Buffer.from([0x80, 0x10, 3, 0xff, 0x41, 0xc3, 2, 0x80, 0x80]);
    const bytes = new Uint8Array(odd);
    const back = decodeProperties(bytes);
    expect(encodeProperties(back)).toBe(bytes);
    expect(encodeProperties({ ...back })).toEqual(bytes);
  });

  it("refuses malformed bytes with a syntax error", () => {
    check(
      fc.property(properties, fc.nat(), (given, cut) => {
        const bytes = encodeProperties(given);
        expect(() => decodeProperties(bytes.subarray(0, cut % bytes.length))).toThrow("SYNTAX_ERROR");
      }) as never,
    );
    expect(() => decodeProperties(new Uint8Array([0, 0, 1]))).toThrow("1 bytes after the last property");
    expect(() => decodeProperties(new Uint8Array([0, 1]))).toThrow("unknown property flags");
  });

  it("refuses what the wire cannot carry", () => {
    expect(() => encodeProperties({ messageId: "x".repeat(256) })).toThrow(
      "property 'messageId' has 256 bytes",
    );
    expect(() => encodeProperties({ priority: 256 })).toThrow("property 'priority' is 256");
    expect(() => encodeProperties({ timestamp: 1.5 })).toThrow("property 'timestamp' is 1.5");
  });
});
