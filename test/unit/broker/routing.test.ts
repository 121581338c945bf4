import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TopicTree } from "../../../src/broker/topic.ts";
import { args, World } from "./world.ts";

/** The rule in its plainest form: the tree is held against it. */
function matches(pattern: readonly string[], key: readonly string[]): boolean {
  const [p, ...rest] = pattern;
  if (p === undefined) return key.length === 0;
  if (p === "#") return key.some((_, i) => matches(rest, key.slice(i))) || matches(rest, []);
  const [k, ...keys] = key;
  return k !== undefined && (p === "*" || p === k) && matches(rest, keys);
}

const words = (text: string): string[] => (text === "" ? [] : text.split("."));
const word = fc.constantFrom("a", "b", "", "*", "#");
const pattern = fc.array(word, { maxLength: 5 }).map((w) => w.join("."));
const key = fc.array(fc.constantFrom("a", "b", "c", ""), { maxLength: 6 }).map((w) => w.join("."));

describe("topic bindings", () => {
  it("match what the plain rule matches, for any patterns and keys, also after some are removed", () => {
    fc.assert(
      fc.property(fc.uniqueArray(pattern, { maxLength: 12 }), key, fc.nat(), (patterns, k, seed) => {
        const tree = new TopicTree<string>();
        for (const p of patterns) tree.add(p, p);
        const gone = patterns.filter((_, i) => ((seed >> i) & 1) === 1);
        for (const p of gone) tree.remove(p, p);
        const left = patterns.filter((p) => !gone.includes(p));
        const found = new Set<string>();
        tree.match(k, found);
        expect([...found].sort()).toEqual(left.filter((p) => matches(words(p), words(k))).sort());
      }),
      { numRuns: 2000 },
    );
  });

  it("the plain rule can tell right from wrong", () => {
    expect(matches(words("a.#"), words("a"))).toBe(true);
    expect(matches(words("a.*"), words("a"))).toBe(false);
    expect(matches(words("*"), words(""))).toBe(false);
    expect(matches(words("*"), ["", ""])).toBe(false);
  });

  it("a key of many words meets many # in good time", () => {
    const tree = new TopicTree<number>();
    tree.add(Array(12).fill("#.a").join("."), 1);
    const found = new Set<number>();
    tree.match(Array(60).fill("a").join(".").concat(".b"), found);
    expect(found.size).toBe(0);
  });
});

describe("exchanges", () => {
  it("direct, fanout and topic give each queue one copy, however many bindings match", () => {
    const w = new World();
    w.queue("q");
    w.queue("r");
    for (const [name, type] of [
      ["d", "direct"],
      ["f", "fanout"],
      ["t", "topic"],
    ] as const) {
      w.exchange(name, type);
      w.bind("q", name, "a.b");
      w.bind("q", name, "a.#");
      w.bind("r", name, "*.b");
    }
    w.publish("d", "a.b", "direct");
    w.publish("f", "zzz", "fanout");
    w.publish("t", "a.b", "topic");
    expect(w.waiting("q")).toEqual(["direct", "fanout", "topic"]);
    expect(w.waiting("r")).toEqual(["fanout", "topic"]);
  });

  it("headers: all, any, with and without x- keys, void asks only for the key (rule B6)", () => {
    const w = new World();
    w.exchange("h", "headers");
    const bindings: Record<string, Record<string, unknown>> = {
      all: { "x-match": "all", a: 1, b: "x" },
      any: { "x-match": "any", a: 1, b: "x" },
      none: { a: 1, b: "x" },
      key: { "x-match": "all", a: null },
      xall: { "x-match": "all", "x-q": 1 },
      xany: { "x-match": "any", "x-q": 1 },
      xallx: { "x-match": "all-with-x", "x-q": 1 },
      xanyx: { "x-match": "any-with-x", "x-q": 1, a: 9 },
    };
    for (const [name, table] of Object.entries(bindings)) {
      w.queue(name);
      w.bind(name, "h", "", table);
    }
    const reached = (headers: Record<string, unknown>): string[] => {
      for (const name of Object.keys(bindings)) w.do({ type: "queue-purge", channel: 1, queue: name });
      w.publish("h", "", "m", { headers: args(headers) });
      return Object.keys(bindings).filter((name) => w.waiting(name).length > 0);
    };
    expect(reached({ a: 1, b: "x" })).toEqual(["all", "any", "none", "key", "xall"]);
    expect(reached({ a: 2 })).toEqual(["key", "xall"]);
    expect(reached({ b: "x" })).toEqual(["any", "xall"]);
    expect(reached({ "x-q": 1 })).toEqual(["xall", "xallx", "xanyx"]);
    expect(reached({ a: 9 })).toEqual(["key", "xall", "xanyx"]);
  });

  it("an alternate exchange takes what found no binding, also over several steps and in a circle", () => {
    const w = new World();
    w.queue("q");
    w.exchange("e1", "direct", { arguments: args({ "alternate-exchange": "e2" }) });
    w.exchange("e2", "direct", { arguments: args({ "alternate-exchange": "e3" }) });
    w.exchange("e3", "direct", { arguments: args({ "alternate-exchange": "e1" }) });
    w.publish("e1", "k", "nowhere");
    w.bind("q", "e3", "k");
    w.publish("e1", "k", "third");
    w.bind("q", "e1", "k");
    w.publish("e1", "k", "first");
    expect(w.waiting("q")).toEqual(["third", "first"]);
  });

  it("bindings between exchanges may form a circle; each queue still gets one copy", () => {
    const w = new World();
    w.queue("q");
    w.exchange("a", "fanout");
    w.exchange("b", "topic");
    const bind = (source: string, destination: string, routingKey: string): void => {
      w.do({ type: "exchange-bind", channel: 1, source, destination, routingKey });
    };
    bind("a", "b", "");
    bind("b", "a", "#");
    bind("a", "a", "");
    w.bind("q", "a");
    w.bind("q", "b", "x.*");
    w.publish("b", "x.y", "m");
    expect(w.waiting("q")).toEqual(["m"]);
    w.do({ type: "exchange-unbind", channel: 1, source: "b", destination: "a", routingKey: "#" });
    w.publish("b", "z", "n");
    expect(w.waiting("q")).toEqual(["m"]);
  });

  it("CC and BCC are keys like the first; BCC is not shown, and non-text members are passed over (rule B2)", () => {
    const w = new World();
    for (const name of ["q", "c", "b"]) w.queue(name);
    const headers = args({ CC: ["c", 7], BCC: ["b"] });
    w.publish("", "q", "m", { headers });
    expect(["q", "c", "b"].map((name) => w.waiting(name))).toEqual([["m"], ["m"], ["m"]]);
    const { content } = w.get("b");
    expect(content.routingKey).toBe("q");
    expect(content.properties.headers?.keys()).toEqual(["CC"]);
    const publish = (table: Record<string, unknown>): string =>
      w.refusal({
        type: "publish",
        channel: 1,
        exchange: "",
        routingKey: "q",
        properties: { headers: args(table) },
        body: new Uint8Array(0),
      });
    expect(publish({ CC: "c" })).toContain(
      '406 PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC"',
    );
    expect(publish({ BCC: 5 })).toContain("406");
  });

  it("mandatory: what no queue takes comes back with 312, and is confirmed all the same", () => {
    const w = new World();
    w.exchange("e", "direct");
    w.do({ type: "confirm-select", channel: 1 });
    w.publish("e", "k", "m", {}, { mandatory: true });
    expect(w.effects.map((e) => e.type)).toEqual(["return", "confirm"]);
    expect(w.effects[0]).toMatchObject({ code: 312, text: "NO_ROUTE", channel: 1 });
    expect(w.effects[1]).toMatchObject({ publishTag: 1, ok: true });
    w.publish("e", "k", "m");
    expect(w.effects).toEqual([{ type: "confirm", channel: 1, publishTag: 2, ok: true }]);
  });
});

describe("declaring exchanges and bindings", () => {
  it("built-in exchanges are there; amq.*, the default and internal ones are guarded", () => {
    const w = new World();
    w.queue("q");
    for (const name of ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"])
      w.bind("q", name, "k");
    const declare = (exchange: string, exchangeType = "direct"): string =>
      w.refusal({ type: "exchange-declare", channel: 1, exchange, exchangeType, durable: true });
    expect(declare("amq.mine")).toBe(
      "403 ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    );
    expect(declare("")).toBe("403 ACCESS_REFUSED - operation not permitted on the default exchange");
    expect(declare("x", "x-delayed-message")).toBe(
      "503 COMMAND_INVALID - unknown exchange type 'x-delayed-message'",
    );
    expect(declare("amq.direct")).toBe("accepted");
    expect(w.refusal({ type: "exchange-delete", channel: 1, exchange: "amq.topic" })).toContain(
      "403 ACCESS_REFUSED",
    );
    w.exchange("in", "fanout", { internal: true } as object);
    const publish = {
      type: "publish",
      channel: 1,
      routingKey: "",
      properties: {},
      body: new Uint8Array(0),
    } as const;
    expect(w.refusal({ ...publish, exchange: "in" })).toBe(
      "403 ACCESS_REFUSED - cannot publish to internal exchange 'in' in vhost '/'",
    );
    expect(w.refusal({ ...publish, exchange: "nope" })).toBe(
      "404 NOT_FOUND - no exchange 'nope' in vhost '/'",
    );
  });

  it("again with other properties: 406 naming the argument", () => {
    const w = new World();
    w.exchange("e", "direct");
    const again = (more: object): string =>
      w.refusal({
        type: "exchange-declare",
        channel: 1,
        exchange: "e",
        exchangeType: "direct",
        durable: true,
        ...more,
      });
    expect(again({})).toBe("accepted");
    expect(again({ exchangeType: "topic" })).toBe(
      "406 PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': received 'topic' but current is 'direct'",
    );
    expect(again({ durable: false })).toContain("inequivalent arg 'durable'");
    expect(again({ autoDelete: true })).toContain("inequivalent arg 'auto_delete'");
    expect(again({ internal: true })).toContain("inequivalent arg 'internal'");
    expect(again({ arguments: args({ "alternate-exchange": "x" }) })).toContain(
      "inequivalent arg 'alternate-exchange'",
    );
  });

  it("auto-delete goes with its last binding, in a chain; if-unused keeps one that is bound", () => {
    const w = new World();
    w.queue("q");
    w.exchange("a", "fanout", { autoDelete: true } as object);
    w.exchange("b", "fanout", { autoDelete: true } as object);
    w.do({ type: "exchange-bind", channel: 1, source: "a", destination: "b", routingKey: "" });
    w.bind("q", "b");
    expect(w.refusal({ type: "exchange-delete", channel: 1, exchange: "b", ifUnused: true })).toBe(
      "406 PRECONDITION_FAILED - exchange 'b' in vhost '/' in use",
    );
    w.do({ type: "queue-delete", channel: 1, queue: "q" });
    const names = w.broker.exchanges().map((x) => x.record.name);
    expect(names).not.toContain("a");
    expect(names).not.toContain("b");
    expect(w.broker.bindings()).toEqual([]);
    expect([...w.journal.exchanges.keys(), ...w.journal.bindings.keys()]).toEqual([]);
    expect(w.refusal({ type: "exchange-delete", channel: 1, exchange: "b" })).toBe("accepted");
  });

  it("refuses names that AMQP could not carry, naming the thing", () => {
    const w = new World();
    const long = "ü".repeat(128);
    expect(w.refusal({ type: "queue-declare", channel: 1, queue: long })).toMatch(
      /^406 .*queue name 'üü.* is 256 bytes long/,
    );
    expect(
      w.refusal({ type: "exchange-declare", channel: 1, exchange: long, exchangeType: "direct" }),
    ).toContain("exchange name");
    const publish = {
      type: "publish",
      channel: 1,
      exchange: "",
      properties: {},
      body: new Uint8Array(0),
    } as const;
    expect(w.refusal({ ...publish, routingKey: long })).toContain("routing key");
    expect(w.refusal({ type: "queue-declare", channel: 1, queue: "q".repeat(255) })).toBe("accepted");
    expect(
      w.refusal({ type: "queue-bind", channel: 1, queue: "gone", exchange: "amq.direct", routingKey: "" }),
    ).toBe("404 NOT_FOUND - no queue 'gone' in vhost '/'");
  });

  it("x-match must be one of four", () => {
    const w = new World();
    w.queue("q");
    const bind = (table: Record<string, unknown>): string =>
      w.refusal({
        type: "queue-bind",
        channel: 1,
        queue: "q",
        exchange: "amq.headers",
        routingKey: "",
        arguments: args(table),
      });
    expect(bind({ "x-match": "some" })).toContain(
      "406 PRECONDITION_FAILED - Invalid x-match field value 'some'",
    );
    expect(bind({ "x-match": true })).toContain("Invalid x-match field type");
    expect(w.broker.bindings()).toEqual([]);
  });
});
