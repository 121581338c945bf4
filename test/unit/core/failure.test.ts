import { createContext, runInContext } from "node:vm";
import { expect, it, describe as suite } from "vitest";
import {
  Crash,
  classify,
  cut,
  describe,
  MAX_ERROR_TEXT,
  PermanentError,
  retryAfterOf,
  serializeError,
  TransientError,
} from "../../../src/core/index.ts";

const other = createContext({});
const revoked = () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
};
const hostile = new Proxy(
  {},
  {
    get() {
      throw new Error("get");
    },
    has() {
      throw new Error("has");
    },
    ownKeys() {
      throw new Error("ownKeys");
    },
    getPrototypeOf() {
      throw new Error("getPrototypeOf");
    },
  },
);
const cyclicObject: Record<string, unknown> = { code: "E7" };
cyclicObject["self"] = cyclicObject;

suite("classify", () => {
  it("goes by brand, by name, and by the names of the classes above", () => {
    class BadPrice extends PermanentError {
      override readonly name = "BadPrice";
    }
    expect(classify(new BadPrice("x"))).toBe("permanent");
    expect(classify(new TransientError("x"))).toBe("transient");
    expect(classify(new Crash("x"))).toBe("crash");
    expect(classify({ name: "PermanentError" })).toBe("permanent");
    const theirs = runInContext(
      "class PermanentError extends Error {}; class Theirs extends PermanentError {}; new Theirs('x')",
      other,
    );
    expect(classify(theirs)).toBe("permanent");
  });

  it("takes anything else for transient, and never throws", () => {
    const values = [
      undefined,
      null,
      "PermanentError",
      1,
      Symbol("x"),
      () => {},
      new Error("x"),
      hostile,
      revoked(),
    ];
    expect(values.map((value) => classify(value))).toEqual(values.map(() => "transient"));
    expect(classify({ name: "toString" })).toBe("transient");
  });

  it("does not hear a classifier that answers nonsense", () => {
    expect(classify(new PermanentError("x"), (() => "maybe") as never)).toBe("permanent");
    expect(classify(new PermanentError("x"), () => "transient")).toBe("transient");
  });
});

suite("describe", () => {
  it.each<[string, unknown, string]>([
    ["an error", new TypeError("x is not a function"), "TypeError: x is not a function"],
    ["an error without a name", Object.assign(new Error("x"), { name: "" }), "Error: x"],
    ["an error from another realm", runInContext("new RangeError('far')", other), "RangeError: far"],
    ["an error like object", { name: "Odd", message: "one" }, "Odd: one"],
    ["undefined", undefined, "NonError: undefined"],
    ["null", null, "NonError: null"],
    ["a bigint", 7n, "NonError: 7"],
    ["a plain object", { code: "E1", n: 1n }, 'NonError: {"code":"E1","n":"1"}'],
    ["a cyclic object", cyclicObject, 'NonError: {"code":"E7","self":"(seen above)"}'],
    ["an array", ["a", 1], 'NonError: ["a",1]'],
    ["an object without a prototype", Object.create(null), "NonError: {}"],
  ])("says of %s: Name: message", (_name, thrown, text) => {
    expect(describe(thrown)).toBe(text);
  });

  it.each<[string, unknown]>([
    ["a hostile proxy", hostile],
    ["a revoked proxy", revoked()],
    ["a function", function thrown() {}],
    [
      "a message that is an object",
      {
        name: "X",
        message: {
          toString: () => {
            throw new Error("no");
          },
        },
      },
    ],
    [
      "toJSON that throws",
      {
        toJSON: () => {
          throw new Error("no");
        },
        code: "E9",
      },
    ],
    ["an AggregateError of itself", aggregateOfItself()],
  ])("has a text for %s", (_name, thrown) => {
    expect(describe(thrown)).toMatch(/^\w+: ./);
  });

  it("cuts what is too long, and says so", () => {
    const text = describe(new Error("y".repeat(100_000)));
    expect(text.length).toBe(MAX_ERROR_TEXT);
    expect(text).toMatch(/… \(cut, 100007 characters\)$/);
    expect(cut("short")).toBe("short");
  });

  function aggregateOfItself(): AggregateError {
    const error = new AggregateError([], "all");
    error.errors.push(error, error);
    return error;
  }
});

suite("retryAfterOf", () => {
  it("reads ms and dates, and nothing that makes no sense", () => {
    expect(retryAfterOf(new TransientError("x", { retryAfter: 50 }), 0)).toBe(50);
    expect(retryAfterOf({ retryAfter: new Date(1_500) }, 1_000)).toBe(500);
    expect(retryAfterOf({ retryAfter: new Date(500) }, 1_000)).toBe(0);
    for (const odd of [
      { retryAfter: -1 },
      { retryAfter: Number.NaN },
      { retryAfter: "soon" },
      null,
      hostile,
    ]) {
      expect(retryAfterOf(odd, 0)).toBe(undefined);
    }
  });
});

suite("serializeError", () => {
  it.each<[string, unknown]>([
    [
      "a permanent error with a name of its own",
      new (class Own extends PermanentError {
        override readonly name = "Own";
      })("x"),
    ],
    ["a crash", new Crash("x")],
    ["an aggregate", new AggregateError([new Error("in")], "all")],
    ["a string", "boom"],
    ["null", null],
    ["an object", { code: "E1" }],
    ["a hostile proxy", hostile],
  ])("keeps what is said of %s, and its class", (_name, thrown) => {
    const there = JSON.parse(JSON.stringify(serializeError(thrown)));
    expect(describe(there)).toBe(describe(thrown));
    expect(classify(there)).toBe(classify(thrown));
  });

  it("follows causes and ends where they go round", () => {
    const deep = new Error("a", { cause: new Error("b", { cause: "c" }) });
    expect(serializeError(deep)).toMatchObject({
      message: "a",
      cause: { message: "b", cause: { message: "c" } },
    });
    const round = new Error("r");
    round.cause = round;
    expect(serializeError(round).cause).toBe(undefined);
  });
});
