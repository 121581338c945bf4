/** Cases met in other people's issue trackers, by their ids; B3, B4 and B1 in a running Consumer are in consumer.test.ts. */
import { describe, expect, it } from "vitest";
import {
  DLQConsumer,
  fingerprintOf,
  MAX_EARLIER_LIVES,
  MemoryDLQ,
  MemoryQueue,
  MemoryStore,
  type Message,
  TransientError,
} from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";

/** A store that knows lives, and a consumer on it that is thrown away after every call, as a killed process is. */
function world(handler: (message: Message) => unknown, maxAttempts = 3) {
  const clock = new FakeClock(1_000);
  const store = new MemoryStore({ clock });
  const runs: { id: string; receiveCount: number }[] = [];
  const { queue, deadLetters } = store.open();
  const make = () =>
    new DLQConsumer(
      queue,
      deadLetters,
      (message) => {
        clock.advance(10);
        runs.push({ id: message.id, receiveCount: message.receiveCount });
        return handler(message as Message);
      },
      clock,
      maxAttempts,
    );
  const process = () => make().processOne();
  const drain = async () => {
    const outcomes: unknown[] = [];
    for (let one = await process(); one !== null; one = await process()) outcomes.push(one);
    return outcomes;
  };
  return { clock, store, queue, deadLetters, runs, make, process, drain };
}

const failing = () => {
  throw new TransientError("no");
};

describe("A1: attempts survive the consumer", () => {
  it.each([
    ["MemoryQueue", () => ({ queue: new MemoryQueue(), dlq: new MemoryDLQ() })],
    [
      "MemoryStore",
      () => {
        const { queue, deadLetters } = new MemoryStore().open();
        return { queue, dlq: deadLetters };
      },
    ],
  ])("a new consumer for every message counts on: %s", async (_name, open) => {
    const { queue, dlq } = open();
    await queue.send("x", "m1");
    let runs = 0;
    const outcomes = [];
    for (let i = 0; i < 3; i++) {
      const handler = () => {
        runs++;
        failing();
      };
      outcomes.push(await new DLQConsumer(queue, dlq, handler, { now: Date.now }).processOne());
    }
    expect(outcomes).toEqual(["retry", "retry", "dead"]);
    expect(runs).toBe(3);
    expect(await dlq.list()).toMatchObject([{ id: "m1", reason: "exhausted", attempts: 3 }]);
    expect([await queue.receive(), await queue.pending()]).toEqual([null, 0]);
  });
});

describe("A3: the count never rests on x-death", () => {
  it("is three runs, whatever a message's own headers say", async () => {
    for (const headers of [{ "x-death": [{ count: 99 }] }, { "x-death": "not a table" }, {}]) {
      const w = world(failing);
      await w.queue.send({ id: "m1", body: "x", headers });
      expect(await w.drain()).toEqual(["retry", "retry", "dead"]);
      expect(w.runs.map((run) => run.receiveCount)).toEqual([1, 2, 3]);
    }
  });
});

describe("A5: a replayed message starts afresh", () => {
  it("runs once when the handler is mended, and sees receiveCount 1", async () => {
    let broken = true;
    const w = world(() => {
      if (broken) failing();
    });
    await w.queue.send("x", "m1");
    await w.drain();
    broken = false;
    expect(await w.make().replay(["m1"])).toEqual(["m1"]);
    expect(await w.drain()).toEqual(["ok"]);
    expect(w.runs.map((run) => run.receiveCount)).toEqual([1, 2, 3, 1]);
  });

  it("runs three times more when it is not, and keeps when the first life began", async () => {
    const w = world(failing);
    await w.queue.send("x", "m1");
    await w.drain();
    const [first] = await w.deadLetters.list();
    await w.make().replay(["m1"]);
    expect(await w.drain()).toEqual(["retry", "retry", "dead"]);
    expect(w.runs).toHaveLength(6);
    const letters = await w.deadLetters.list();
    expect(letters).toMatchObject([{ id: "m1", attempts: 3, lives: 2 }]);
    expect(letters[0]!.firstAttemptAt).toBeGreaterThan(first!.firstAttemptAt);
    expect(letters[0]!.earlier).toMatchObject([{ firstAttemptAt: first!.firstAttemptAt, attempts: 3 }]);
  });

  it("holds on plain stores too", () => {
    let broken = true;
    const queue = new MemoryQueue();
    const dlq = new MemoryDLQ();
    const counts: number[] = [];
    const handler = (message: { receiveCount: number }) => {
      counts.push(message.receiveCount);
      if (broken) failing();
    };
    const consumer = new DLQConsumer(queue, dlq, handler, { now: () => 1 });
    queue.send("x", "m1");
    for (let i = 0; i < 3; i++) consumer.processOne();
    broken = false;
    expect(consumer.replay(["m1"])).toEqual(["m1"]);
    expect([consumer.processOne(), consumer.processOne()]).toEqual(["ok", null]);
    expect(counts).toEqual([1, 2, 3, 1]);
  });
});

describe("B1: a message that kills its process", () => {
  it("is dead after exactly three deaths, and those behind it are handled once", async () => {
    const store = new MemoryStore();
    const first = store.open();
    for (const id of ["kill", "a", "b"]) await first.queue.send(id, id);
    const handled: string[] = [];
    let deaths = 0;
    const outcomes: unknown[] = [];
    for (let own = store.open(); deaths < 10; ) {
      const handler = (message: Message) => {
        if (message.id === "kill") throw Object.assign(new Error("SIGKILL"), { name: "Crash" });
        handled.push(message.id);
      };
      const consumer = new DLQConsumer(own.queue, own.deadLetters, handler as never, { now: () => 1 });
      try {
        const outcome = await consumer.processOne();
        if (outcome === null) break;
        outcomes.push(outcome);
      } catch {
        deaths++;
        own.crash();
        own = store.open();
      }
    }
    expect(deaths).toBe(3);
    expect(outcomes.sort()).toEqual(["dead", "ok", "ok"]);
    expect(handled).toEqual(["a", "b"]);
    const letters = await store.open().deadLetters.list();
    expect(letters).toMatchObject([{ id: "kill", reason: "poison", error: null, attempts: 3 }]);
    expect(letters[0]!.history?.map((attempt) => attempt.outcome)).toEqual(["crashed", "crashed", "crashed"]);
  });
});

describe("E2: a replay asked for twice", () => {
  it("sends one message, from two processes at once, with a doubled id, and again after success", async () => {
    let broken = true;
    const w = world(() => {
      if (broken) failing();
    });
    await w.queue.send("x", "m1");
    await w.drain();
    broken = false;
    const other = w.store.open();
    const console = new DLQConsumer(other.queue, other.deadLetters, () => {}, w.clock);
    const both = await Promise.all([
      w.make().replay(),
      console.replay(["m1"]),
      w.make().replay(["m1", "m1"]),
    ]);
    expect(both.flat()).toEqual(["m1"]);
    expect(await w.queue.pending()).toBe(1);
    expect(await w.drain()).toEqual(["ok"]);
    expect(w.runs).toHaveLength(4);
    expect(await w.make().replay(["m1"])).toEqual([]);
    expect(await w.make().replay(["m1", "m1"])).toEqual([]);
  });
});

describe("E3: dead again after a replay", () => {
  it("is one open letter with the new time and one earlier life, and can be replayed again", async () => {
    let broken = true;
    const w = world(() => {
      if (broken) failing();
    });
    await w.queue.send("x", "m1");
    await w.drain();
    const [first] = await w.deadLetters.list();
    await w.make().replay();
    expect(await w.deadLetters.list()).toEqual([]);
    expect(await w.drain()).toEqual(["retry", "retry", "dead"]);
    const [second, ...more] = await w.deadLetters.list();
    expect(more).toEqual([]);
    expect(second!.failedAt).toBeGreaterThan(first!.failedAt);
    expect(second!.earlier).toHaveLength(1);
    broken = false;
    expect(await w.make().replay()).toEqual(["m1"]);
    expect(await w.drain()).toEqual(["ok"]);
    expect(await w.deadLetters.list()).toEqual([]);
  });

  it("is the same with an edit each time: the edited body is the next life's", async () => {
    const w = world((message) => {
      if (message.body !== "good") failing();
    });
    await w.queue.send("bad", "m1");
    await w.drain();
    for (const [life, body] of [
      [1, "still bad"],
      [2, "good"],
    ] as const) {
      // What an edit is: the next life under the same id with another body, and the letter removed.
      await w.queue.send({ id: "m1", body, generation: life + 1 });
      await w.deadLetters.remove("m1", life);
      await w.drain();
      expect(await w.deadLetters.list()).toHaveLength(life === 1 ? 1 : 0);
    }
    expect(w.runs).toHaveLength(7);
  });
});

describe("E5: order", () => {
  it("is that of death, also where ten share one millisecond", async () => {
    let broken = true;
    const order: string[] = [];
    const clock = new FakeClock(1_000);
    const { queue, deadLetters } = new MemoryStore({ clock }).open();
    const handler = (message: { id: string }) => {
      if (broken) failing();
      order.push(message.id);
    };
    const consumer = new DLQConsumer(queue, deadLetters, handler, clock, 1);
    const ids = Array.from({ length: 100 }, (_, n) => `${n + 1}`);
    for (const id of ids) await queue.send("x", id);
    for (let n = 0; n < 100; n++) {
      if (n < 40 || n > 50) clock.advance(1);
      await consumer.processOne();
    }
    broken = false;
    expect(await consumer.replay()).toEqual(ids);
    while ((await consumer.processOne()) !== null);
    expect(order).toEqual(ids);
  });
});

describe("G2: fifty replays", () => {
  it("add one earlier life each, up to a stated number, and never grow the message", async () => {
    const w = world(() => {
      throw new Error("x".repeat(2_048));
    });
    await w.queue.send({ id: "m1", body: "x", headers: { app: 1 } });
    const sizes: number[] = [];
    for (let round = 1; round <= 50; round++) {
      if (round > 1) await w.make().replay();
      sizes.push(JSON.stringify({ ...w.store.state.rows[0], attempts: [] }).length);
      expect(await w.drain()).toEqual(["retry", "retry", "dead"]);
    }
    expect(sizes.at(-1)! - sizes[0]!).toBeLessThanOrEqual(300);
    const [letter, ...more] = await w.deadLetters.list();
    expect(more).toEqual([]);
    expect(letter).toMatchObject({ lives: 50, headers: { app: 1 } });
    expect(letter!.earlier).toHaveLength(MAX_EARLIER_LIVES);
    expect(letter!.earlier!.at(-1)!.generation).toBe(49);
    expect(letter!.history).toHaveLength(3);
  });
});

describe("G3: a replayed message is the message", () => {
  it("keeps bytes, properties and headers, with no failure written on it", async () => {
    const raw = Uint8Array.of(0xff, 0x00, 0xfe, 0x80);
    const properties = {
      messageId: "m1",
      correlationId: "c1",
      type: "t",
      contentType: "application/octet-stream",
      contentEncoding: "gzip",
      replyTo: "r",
      timestamp: 1_700_000_000,
      priority: 3,
      deliveryMode: 2,
      appId: "app",
    };
    const headers = { n: 1, long: 9_007_199_254_740_991n, nul: null, nested: { a: [1, "x"] } };
    const seen: Message[] = [];
    const w = world((message) => {
      seen.push(message);
      // Whatever a handler does to what it was given stays its own.
      (message.raw as Uint8Array)[0] = 0;
      (message.headers as { nested: { a: unknown[] } }).nested.a.push("dirt");
      if (seen.length === 1) failing();
    }, 1);
    await w.queue.send({ id: "m1", body: raw, raw, properties, headers });
    const look = async () => {
      const kept = w.store.state.rows[0]!;
      return structuredClone({
        raw: kept.raw,
        body: kept.body,
        properties: kept.properties,
        headers: kept.headers,
      });
    };
    const before = await look();
    expect(await w.process()).toBe("dead");
    expect(await w.make().replay()).toEqual(["m1"]);
    expect(await look()).toEqual(before);
    expect(before).toEqual({ raw, body: raw, properties, headers });
    expect(await w.process()).toBe("ok");
    expect(Object.keys(seen[1]!).sort()).toEqual(Object.keys(seen[0]!).sort());
    expect(seen[1]).toMatchObject({ properties, generation: 2, receiveCount: 1 });
  });
});

describe("G4: whatever is thrown", () => {
  const cyclic = new Error("round");
  cyclic.cause = cyclic;
  const evil = {
    get message(): string {
      throw new Error("no reading");
    },
  };
  it.each<[string, unknown, RegExp]>([
    ["undefined", undefined, /undefined/],
    ["null", null, /null/],
    ["a string", "boom", /boom/],
    ["a number", 42, /42/],
    ["an object with a code", { code: "E1" }, /E1/],
    ["a symbol", Symbol("s"), /Symbol\(s\)/],
    ["an error without words", new Error(""), /^Error: $/],
    ["an error that is its own cause", cyclic, /^Error: round$/],
    ["an object whose message cannot be read", evil, /./],
    ["several errors in one", new AggregateError([new Error("in")]), /AggregateError: .*Error: in/],
  ])("%s is three runs and one letter with a text", async (_name, thrown, words) => {
    const w = world(() => {
      throw thrown;
    });
    await w.queue.send("x", "m1");
    expect(await w.drain()).toEqual(["retry", "retry", "dead"]);
    const [letter] = await w.deadLetters.list();
    expect(letter).toMatchObject({ reason: "exhausted", attempts: 3 });
    expect(letter!.error).toMatch(words);
    expect(letter!.error).not.toBe("undefined: undefined");
  });
});

describe("H4: thousands of failures, few causes", () => {
  it("makes three groups of 525 failures, with places for what varies", async () => {
    const letters: { reason: "exhausted"; error: string | null; stack?: string }[] = [];
    const order = (n: number) => {
      const at = new Date(1_700_000_000_000 + n * 1_234).toISOString();
      const id = `0190${n.toString(16).padStart(4, "0")}-7000-7000-8000-${n.toString().padStart(12, "0")}`;
      return new Error(`Order ${n * 7} not found at ${at} (req ${id})`);
    };
    const stock = (n: number) => new Error(`No stock for "sku-${n}" in /data/shelf/${n}.json`);
    for (let n = 0; n < 500; n++) letters.push(letterOf(order(n)));
    for (let n = 0; n < 20; n++) letters.push(letterOf(stock(n)));
    for (let n = 0; n < 5; n++) letters.push({ reason: "exhausted", error: `Error: gone ${n}` });
    const groups = new Map<string, { title: string; count: number }>();
    for (const letter of letters) {
      const { fingerprint, title } = fingerprintOf(letter);
      groups.set(fingerprint, { title, count: (groups.get(fingerprint)?.count ?? 0) + 1 });
    }
    expect([...groups.values()]).toEqual([
      { title: "Error: Order <n> not found at <time> (req <uuid>)", count: 500 },
      { title: "Error: No stock for <text> in <path>", count: 20 },
      { title: "Error: gone <n>", count: 5 },
    ]);
  });

  function letterOf(error: Error) {
    return {
      reason: "exhausted" as const,
      error: `${error.name}: ${error.message}`,
      stack: error.stack ?? "",
    };
  }
});
