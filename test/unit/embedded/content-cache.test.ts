import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import type { Content } from "../../../src/broker/index.ts";
import { ContentCache } from "../../../src/engines/embedded/content.ts";

const content = (bytes: number): Content => ({
  exchange: "",
  routingKey: "q",
  properties: {},
  body: new Uint8Array(bytes),
});

function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
}

/** Messages that come, are written and go, a hundred at a time, as in a queue that keeps up. */
function passThrough(cache: ContentCache, count: number): WeakRef<Content>[] {
  const seen: WeakRef<Content>[] = [];
  for (let first = 0; first < count; first += 100) {
    for (let seq = first; seq < first + 100; seq++) cache.put(seq, content(1_000));
    for (let seq = first; seq < first + 100; seq++) cache.written(seq);
    for (let seq = first; seq < first + 100; seq++) seen.push(new WeakRef(cache.get(seq)));
    for (let seq = first; seq < first + 100; seq++) cache.delete(seq);
  }
  return seen;
}

test("messages that are gone are not kept in memory, however many have passed", async () => {
  const cache = new ContentCache(64 * 1024 * 1024, () => content(0));
  const seen = passThrough(cache, 5_000);
  // A WeakRef holds its target until the turn ends.
  await new Promise((done) => setImmediate(done));
  collectGarbage();
  expect(seen.filter((ref) => ref.deref() !== undefined)).toHaveLength(0);
  expect(cache.highest).toBe(4_999);
});

test("what waits stays within the cache's bytes, the newest longest, and is read again when it is asked for", () => {
  const read: number[] = [];
  const cache = new ContentCache(20_000, (seq) => {
    read.push(seq);
    return content(1_000);
  });
  for (let seq = 0; seq < 100; seq++) cache.put(seq, content(1_000));
  // Held whatever their number: they are nowhere else yet.
  for (let seq = 0; seq < 100; seq++) cache.get(seq);
  expect(read).toEqual([]);
  for (let seq = 0; seq < 100; seq++) cache.written(seq);
  const kept = Array.from({ length: 100 }, (_, seq) => seq).filter((seq) => {
    const before = read.length;
    cache.get(seq);
    return read.length === before;
  });
  // 1,600 bytes each in the books: never more than 20,000 of them.
  expect(kept.length).toBeLessThanOrEqual(12);
  cache.get(99);
  expect(read.at(-1)).toBe(99);
  cache.get(99);
  expect(read.filter((seq) => seq === 99)).toHaveLength(1);
});
