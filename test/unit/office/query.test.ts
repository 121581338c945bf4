import { describe, expect, it } from "vitest";
import { DloError } from "../../../src/core/index.ts";
import { parseDuration, parseQuery, parseRate } from "../../../src/office/index.ts";
import { StoreDouble } from "./store.ts";

const store = new StoreDouble()
  .add({
    id: "a",
    error: "TimeoutError: no answer after 5 s",
    reason: "exhausted",
    attempts: 3,
    fingerprint: "t1",
  })
  .add({ id: "b", text: '{"order":{"id":9007199254740993,"tags":["x"]}}', sourceQueue: "orders" })
  .add({ id: "c", reason: "poison", error: null, sourceQueue: "bills", replays: 2, state: "replayed" })
  .add({ id: "d d", text: "日本語", sourceQueue: "orders.eu", entry: { headers: { "x-tenant": "acme" } } });

const find = (text: string, now = 3_600_000 + 2000): string[] => {
  const query = parseQuery(text);
  return store.rows
    .map((row) => row.summary)
    .filter((s) => query.matches(s, store.get(s.letterId), now))
    .map((s) => s.id);
};

describe("a query", () => {
  it.each([
    ["", ["a", "b", "c", "d d"]],
    ["queue:orders", ["a", "b"]],
    ["queue:orders*", ["a", "b", "d d"]],
    ["queue:bills,orders.eu", ["c", "d d"]],
    ["-queue:orders", ["c", "d d"]],
    ["reason:poison", ["c"]],
    ["reason:poison,exhausted", ["a", "c"]],
    ['error:"no answer"', ["a"]],
    ["error:timeouterror", ["a"]],
    ["-error:TimeoutError", ["b", "c", "d d"]],
    ["attempts:>=3", ["a"]],
    ["attempts:<3 replays:0", ["b", "d d"]],
    ["attempts:3", ["a"]],
    ["age:<1h", ["a", "b", "c", "d d"]],
    ["age:>1h", []],
    ["group:t1", ["a"]],
    ["id:a", ["a"]],
    ['id:"d d"', ["d d"]],
    ["id:L0003", ["c"]],
    ["state:replayed", ["c"]],
    ["body.order.id:9007199254740993", ["b"]],
    ["body.order.id:9007199254740992", []],
    ["body.order.tags.0:x", ["b"]],
    ["header.x-tenant:acme", ["d d"]],
    ["日本", ["d d"]],
    ["negative reason:permanent", ["b", "d d"]],
    ["-negative", ["a", "c"]],
  ])("%s", (text, ids) => {
    expect(find(text)).toEqual(ids);
  });

  it("tells the store what it can look up by itself", () => {
    expect(parseQuery("queue:orders reason:poison state:dead attempts:>1").filter).toEqual({
      sourceQueue: "orders",
      reason: "poison",
      state: "dead",
    });
    expect(parseQuery("-queue:orders reason:poison,exhausted queue:a*").filter).toEqual({});
    expect(parseQuery("reason:poison").needsLetter).toBe(false);
    expect(parseQuery("free").needsLetter).toBe(true);
  });

  it.each([
    [
      "reason:typo",
      'query, at character 1: reason has no value "typo"; expected one of permanent, exhausted',
    ],
    ["queue:a colour:red", 'query, at character 9: there is no field "colour"; expected one of queue, dlq'],
    [
      "attempts:many",
      'query, at character 1: attempts cannot be "many"; expected a comparison with a whole number',
    ],
    ["age:>30", 'query, at character 1: age cannot be ">30"; expected a comparison with a duration'],
    ["queue:", "query, at character 7: queue has no value; expected a value"],
    ["queue:a,", "query, at character 9: queue has no value"],
    ['error:"half', 'query, at character 7: the quoted text never ends; expected a closing "'],
    ['error:"a"b', "query, at character 10: unexpected b; expected a space between terms"],
  ])("%s is refused with the place and what was expected", (text, message) => {
    expect(() => parseQuery(text)).toThrow(DloError);
    expect(() => parseQuery(text)).toThrow(message);
  });
});

describe("durations and rates", () => {
  it("need a unit and know the usual ones", () => {
    expect(["250ms", "30s", "1h30m", "2d", "0", "1.5s"].map(parseDuration)).toEqual([
      250, 30_000, 5_400_000, 172_800_000, 0, 1500,
    ]);
    expect(["30", "", "1x", "-1s", "s", "1h 30m"].map(parseDuration)).toEqual([
      null,
      null,
      null,
      null,
      null,
      null,
    ]);
  });
  it("are messages a second", () => {
    expect(["20/s", "60/m", "3600/h", "5", "0.5/s"].map(parseRate)).toEqual([20, 1, 1, 5, 0.5]);
    expect(["0/s", "fast", "20/x", "-1"].map(parseRate)).toEqual([null, null, null, null]);
  });
});
