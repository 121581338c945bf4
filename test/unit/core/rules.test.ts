import { describe, expect, it } from "vitest";
import {
  checkBackoff,
  copyBody,
  fingerprintOf,
  type Message,
  mayReceive,
  mayStart,
  nextAt,
  ownFrame,
  parseJson,
  perform,
  template,
  type World,
  waitAfter,
  waitAfterCrash,
} from "../../../src/core/index.ts";

describe("the look into the dead letters", () => {
  const message: Message = { id: "a", body: { n: 1 }, receiveCount: 1, firstReceivedAt: 5, generation: 1 };
  const asked = (known: (body: unknown) => unknown, of = message) => {
    const calls: unknown[][] = [];
    const has = (...args: unknown[]) => {
      calls.push(args);
      return known(args[2]);
    };
    const world = { queue: { name: "q" }, deadLetters: { has } } as unknown as World;
    const answer = perform({ type: "has", message: of }, world);
    return { calls, answer };
  };

  it("shows body and queue only where something is known of the id", () => {
    expect(asked(() => false)).toEqual({ calls: [["a", 1]], answer: false });
    expect(asked((body) => body === undefined)).toEqual({
      calls: [
        ["a", 1],
        ["a", 1, message.body, "q"],
      ],
      answer: false,
    });
    expect(asked(() => true).answer).toBe(true);
    const { generation, ...plain } = message;
    expect(asked(() => true, plain)).toEqual({ calls: [["a"]], answer: true });
  });

  it("does so with promises too", async () => {
    const { calls, answer } = asked(async (body) => body === undefined || body === message.body);
    expect(await answer).toBe(true);
    expect(calls).toHaveLength(2);
    expect(await asked(async () => false).answer).toBe(false);
  });
});

describe("waits between tries", () => {
  it("grow, are spread, and end at the cap", () => {
    const backoff = { baseMs: 100, factor: 2, maxMs: 1_000 };
    expect([1, 2, 3, 4, 5, 50].map((n) => waitAfter(backoff, n, () => 0))).toEqual([
      100, 200, 400, 800, 1000, 1000,
    ]);
    expect(waitAfter({ ...backoff, jitter: 0.5 }, 1, () => 0.999)).toBe(150);
    expect(waitAfter(backoff, 1, () => 0, 700)).toBe(700);
    expect(waitAfter(backoff, 1, () => 0, 5_000)).toBe(1_000);
    expect(waitAfter({ baseMs: 0 }, 9, () => 0)).toBe(0);
    expect(waitAfter({ baseMs: 1 }, 5_000, () => 0)).toBe(3_600_000);
    // A fixed wait is what it says, however long; what an error asks for has a cap of its own.
    expect(waitAfter({ baseMs: 7_200_000, factor: 1 }, 3, () => 0)).toBe(7_200_000);
    expect(waitAfter({ baseMs: 1 }, 1, () => 0, 7_200_000)).toBe(7_200_000);
    expect(waitAfter({ baseMs: 1 }, 1, () => 0, 1e15)).toBe(86_400_000);
    expect(waitAfter({ ...backoff, maxAskedMs: 4_000 }, 9, () => 0, 5_000)).toBe(4_000);
    expect([1, 2, 3, 9].map(waitAfterCrash)).toEqual([1_000, 5_000, 25_000, 25_000]);
  });

  it("refuse what makes no sense, naming the field", () => {
    expect(() => checkBackoff({ baseMs: -1 })).toThrow(
      "backoff.baseMs is -1; expected a number of at least 0",
    );
    expect(() => checkBackoff({ baseMs: 1, maxMs: 1e12 })).toThrow(
      "backoff.maxMs is 1000000000000; expected at most 315360000000 (ten years)",
    );
    expect(() => checkBackoff({ baseMs: 1, jitter: 2 })).toThrow(
      "backoff.jitter is 2; expected a number from 0 to 1",
    );
  });
});

describe("a pace", () => {
  it("spaces evenly and never catches up in a burst", () => {
    let last: number | undefined;
    const times: number[] = [];
    for (let n = 0; n < 100; n++) times.push((last = nextAt(last, 50, 0)));
    expect([times[0], times[1], times[99]]).toEqual([0, 20, 1_980]);
    expect(nextAt(1_000, 50, 9_000)).toBe(9_000);
    expect(() => nextAt(0, 0, 0)).toThrow("rate is 0; expected more than 0 a second");
  });
});

describe("a window", () => {
  const suspect: Message = { id: "s", body: 1, receiveCount: 2, firstReceivedAt: 1, suspect: true };
  const other: Message = { id: "o", body: 1, receiveCount: 1, firstReceivedAt: 1 };
  it("is closed to everybody while a suspect waits or runs", () => {
    expect(mayReceive({ running: 1, suspect: null }, 2)).toBe(true);
    expect(mayReceive({ running: 2, suspect: null }, 2)).toBe(false);
    expect(mayReceive({ running: 0, suspect }, 2)).toBe(false);
    expect(mayStart({ running: 1, suspect }, suspect)).toBe(false);
    expect(mayStart({ running: 0, suspect }, suspect)).toBe(true);
    expect(mayStart({ running: 0, suspect }, other)).toBe(false);
    expect(mayStart({ running: 1, suspect: null }, suspect)).toBe(false);
    expect(mayStart({ running: 1, suspect: null }, other)).toBe(true);
  });
});

describe("a copy of a body", () => {
  it("shares nothing with it and is the same data", () => {
    const body = {
      text: "x",
      list: [1, { deep: [2] }],
      when: new Date(5),
      map: new Map([["k", { v: 1 }]]),
      set: new Set([[1]]),
      bytes: Uint8Array.of(1, 2),
      buffer: Buffer.from("ab"),
      wide: Float64Array.of(1.5),
      view: new DataView(new ArrayBuffer(2)),
      memory: new ArrayBuffer(3),
      nothing: null,
      big: 7n,
    };
    const copy = copyBody(body);
    expect(copy).toEqual(body);
    expect(Buffer.isBuffer(copy.buffer)).toBe(true);
    const walk = (a: unknown, b: unknown): void => {
      if (typeof a !== "object" || a === null) return;
      expect(a).not.toBe(b);
      for (const key of Object.keys(a)) walk((a as never)[key], (b as never)[key]);
    };
    walk(copy, body);
    expect(
      copy.buffer.buffer === body.buffer.buffer && copy.buffer.byteOffset === body.buffer.byteOffset,
    ).toBe(false);
    copy.buffer[0] = 0;
    copy.bytes[0] = 9;
    expect([body.buffer.toString(), body.bytes[0]]).toEqual(["ab", 1]);
  });

  it("keeps cycles, shared parts, classes and a field named __proto__", () => {
    const round: { self?: unknown; n: number } = { n: 1 };
    round.self = round;
    const copy = copyBody(round);
    expect(copy.self).toBe(copy);
    // Every level twice in the next: a walk without memory would never end.
    let shared: unknown = { leaf: 1 };
    for (let i = 0; i < 100; i++) shared = [shared, shared];
    const pair = copyBody(shared) as unknown[];
    expect(pair[0]).toBe(pair[1]);
    class Money {
      readonly cents: number;
      constructor(cents: number) {
        this.cents = cents;
      }
      double() {
        return this.cents * 2;
      }
    }
    expect(copyBody({ price: new Money(3) }).price.double()).toBe(6);
    const sly = JSON.parse('{"__proto__":{"admin":true},"a":{"b":1}}');
    const clean = copyBody(sly);
    expect(Object.getPrototypeOf(clean)).toBe(Object.prototype);
    expect(JSON.stringify(clean)).toBe(JSON.stringify(sly));
    expect(copyBody(Object.assign(Object.create(null), { a: 1 }))).toEqual({ a: 1 });
    const error = copyBody({ of: new TypeError("x") }).of;
    expect([error instanceof TypeError, error.message]).toEqual([true, "x"]);
  });
});

describe("JSON that is none", () => {
  it.each([
    ['{"a":1', 6, /expected ',' or '}'; the text ends there/],
    ["{'a':1}", 1, /expected a field name in quotes/],
    ['{"a" 1}', 5, /expected ':'/],
    ["[1,]", 3, /expected a value/],
    ["[1 2]", 3, /expected ',' or ']'/],
    ['"ab', 3, /expected the end of the string/],
    ['"a\\x"', 2, /expected an escape/],
    ["nul", 0, /expected a value/],
    ["1 2", 2, /expected the end of the text/],
    ["secret", 0, /expected a value/],
    ["\n\n  oops", 4, /line 3, column 3/],
  ])("%j is named with its place (%i), and not quoted", (text, at, words) => {
    const found = parseJson(text) as { undecodable: string };
    expect(found.undecodable).toContain(`position ${at} `);
    expect(found.undecodable).toMatch(words);
    expect(found.undecodable).toMatch(/JSON/);
    expect(found.undecodable).not.toContain("secret");
  });

  it("is no JSON exactly where the engine says so too", () => {
    const texts = [
      "0",
      "-0.5e3",
      "[]",
      "{}",
      '{"a":[true,false,null]}',
      '"\\u00e9\\n"',
      " 1 ",
      "01",
      "+1",
      ".5",
      "1.",
      "NaN",
      '{"a":1,}',
      '"\t"',
      "[",
      "]",
      "{",
    ];
    for (const text of texts) {
      let value: unknown;
      try {
        value = { value: JSON.parse(text) };
      } catch {
        value = { undecodable: expect.stringContaining("position") };
      }
      expect(parseJson(text)).toEqual(value);
    }
    expect(parseJson("")).toEqual({ value: undefined });
    expect(parseJson("[".repeat(5_000))).toEqual({ undecodable: "the body is not JSON" });
  });
});

describe("fingerprints", () => {
  it.each([
    ["Order 17 not found", "Order <n> not found"],
    ["connect ECONNREFUSED 10.0.0.7:5432", "connect ECONNREFUSED <address>"],
    ["user a.b@example.com is unknown", "user <email> is unknown"],
    ["cannot read '/etc/x' or \"y\"", "cannot read <text> or <text>"],
    ["no such file /var/lib/app/17.json", "no such file <path>"],
    ["GET https://example.com/a?b=1 failed", "GET <url> failed"],
    ["job V1StGXR8_Z5jdHi6B failed", "job <id> failed"],
    ["at 2024-05-01T10:00:00.123Z and 10:11:12", "at <time> and <time>"],
    ["commit deadbeef01 and 0xFF", "commit <hex> and <hex>"],
    ["it's the customer's fault", "it's the customer's fault"],
    ["注文 42 が見つかりません「鍵」", "注文 <n> が見つかりません<text>"],
  ])("%s -> %s", (text, title) => {
    expect(template(text)).toBe(title);
  });

  it("take the top frame of one's own code, and tell causes apart by it", () => {
    const stack = `Error: x
    at readFileSync (node:fs:441:35)
    at load (file:///srv/app/node_modules/lib/index.js:1:1)
    at OrderService.find (file:///srv/app/src/orders.js:10:7)
    at main (file:///srv/app/src/main.js:1:1)`;
    expect(ownFrame(stack)).toBe("OrderService.find@src/orders.js");
    const one = fingerprintOf({ reason: "exhausted", error: "Error: x", stack });
    const moved = fingerprintOf({
      reason: "exhausted",
      error: "Error: x",
      stack: stack.replace(":10:7", ":99:1"),
    });
    const elsewhere = fingerprintOf({ reason: "exhausted", error: "Error: x" });
    expect(moved).toEqual(one);
    expect(elsewhere.fingerprint).not.toBe(one.fingerprint);
    expect(one.fingerprint).toMatch(/^[0-9a-f]{16}$/);
  });

  it("group letters without an error by reason, and go by the user's own rule where there is one", () => {
    expect(fingerprintOf({ reason: "poison", error: null }).title).toBe("poison");
    const by = (letter: { error: string | null }) => letter.error?.slice(0, 5);
    const [a, b] = ["Error: a", "Error: b"].map((error) => fingerprintOf({ reason: "permanent", error }, by));
    expect(a!.fingerprint).toBe(b!.fingerprint);
    const broken = () => {
      throw new Error("bug");
    };
    expect(fingerprintOf({ reason: "permanent", error: "Error: a" }, broken).title).toBe("Error: a");
  });
});
