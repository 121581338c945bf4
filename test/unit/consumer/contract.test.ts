import { describe, expect, expectTypeOf, it } from "vitest";
import {
  Crash,
  DLQConsumer,
  type DLQConsumerOptions,
  MemoryDLQ,
  MemoryQueue,
  type Message,
  type Outcome,
  PermanentError,
  TransientError,
} from "../../../src/index.ts";
import { FakeClock, FakeDLQ, FakeQueue } from "./fakes.ts";

function world(handler: (message: Message) => unknown, maxAttempts = 3, options: DLQConsumerOptions = {}) {
  const clock = new FakeClock();
  const queue = new FakeQueue(clock);
  const dlq = new FakeDLQ();
  const runs: Message[] = [];
  const make = () =>
    new DLQConsumer(
      queue,
      dlq,
      (message) => {
        runs.push(structuredClone(message as Message));
        return handler(message as Message);
      },
      clock,
      maxAttempts,
      options,
    );
  const send = (...ids: string[]) => {
    for (const id of ids) queue.send({ id, body: `body of ${id}` });
  };
  return { clock, queue, dlq, runs, make, consumer: make(), send };
}

const throws = (error: unknown) => () => {
  throw error;
};

describe("DLQConsumer by the contract", () => {
  it("acks a success and answers ok, with a plain value", () => {
    const w = world(() => "ignored");
    w.send("a");
    expect(w.consumer.processOne()).toBe("ok");
    expect(w.queue.calls).toEqual([
      ["send", { id: "a", body: "body of a" }],
      ["ack", "a"],
    ]);
    expect(w.runs).toEqual([{ id: "a", body: "body of a", receiveCount: 1, firstReceivedAt: 1_000 }]);
    expect(w.consumer.processOne()).toBe(null);
    expect(w.queue.pending()).toBe(0);
  });

  it("dead-letters a permanent failure at once, put before ack", () => {
    const w = world(throws(new PermanentError("price is negative")));
    w.send("a");
    w.clock.time = 2_000;
    expect(w.consumer.processOne()).toBe("dead");
    expect(w.dlq.letters).toStrictEqual([
      {
        id: "a",
        body: "body of a",
        reason: "permanent",
        error: "PermanentError: price is negative",
        attempts: 1,
        firstAttemptAt: 2_000,
        failedAt: 2_000,
      },
    ]);
    expect(w.queue.calls.at(-1)).toEqual(["ack", "a"]);
  });

  it("sends any other failure to the back of the queue, and dead-letters it when the attempts are used up", () => {
    const w = world((message) => {
      if (message.id === "a") throw new TypeError("x is not a function");
    });
    w.send("a", "b");
    expect(w.consumer.processOne()).toBe("retry");
    expect(w.queue.waiting.map((m) => m.id)).toEqual(["b", "a"]);
    expect(w.consumer.processOne()).toBe("ok");
    w.clock.time = 5_000;
    expect([w.consumer.processOne(), w.consumer.processOne()]).toEqual(["retry", "dead"]);
    expect(w.dlq.letters).toStrictEqual([
      {
        id: "a",
        body: "body of a",
        reason: "exhausted",
        error: "TypeError: x is not a function",
        attempts: 3,
        firstAttemptAt: 1_000,
        failedAt: 5_000,
      },
    ]);
  });

  it("passes a Crash on and makes no queue call at all", () => {
    const crash = new Crash("dying");
    const w = world(throws(crash));
    w.send("a");
    expect(() => w.consumer.processOne()).toThrow(crash);
    expect(w.queue.calls).toHaveLength(1);
    expect(w.dlq.calls).toEqual([["has", "a"]]);
    expect(w.queue.flying.has("a")).toBe(true);
  });

  it("dead-letters a poison pill without its handler once every delivery has died", () => {
    const w = world(throws(new Crash("dying")));
    w.send("a");
    for (let start = 0; start < 3; start++) {
      expect(() => w.make().processOne()).toThrow(Crash);
      w.queue.recover();
    }
    expect(w.make().processOne()).toBe("dead");
    expect(w.runs).toHaveLength(3);
    expect(w.dlq.letters).toMatchObject([{ reason: "poison", error: null, attempts: 3 }]);
    expect(w.queue.pending()).toBe(0);
  });

  it("only acks a message whose entry is there already, even one that has used up its starts", () => {
    const w = world(throws(new PermanentError("no")), 1);
    w.send("a");
    const ack = w.queue.ack.bind(w.queue);
    w.queue.ack = throws(new Error("connection lost")) as typeof w.queue.ack;
    expect(() => w.consumer.processOne()).toThrow("connection lost");
    w.queue.ack = ack;
    w.queue.recover();
    expect(w.make().processOne()).toBe("dead");
    expect(w.dlq.letters).toHaveLength(1);
    expect(w.runs).toHaveLength(1);
  });

  it.each(["ack", "retry", "put", "has"] as const)(
    "never takes a failing %s for a failing handler",
    (method) => {
      const w = world((message) => {
        if (message.id === "a") throw method === "put" ? new PermanentError("no") : new TransientError("no");
      });
      w.send(method === "ack" ? "b" : "a");
      const port = method === "put" || method === "has" ? w.dlq : w.queue;
      (port as unknown as Record<string, unknown>)[method] = throws(new PermanentError("the port's own"));
      expect(() => w.consumer.processOne()).toThrow("the port's own");
      expect(w.dlq.letters).toEqual([]);
      expect(w.queue.pending()).toBe(1);
    },
  );

  it("gives the handler its own copy, however deep it reaches into it", () => {
    const clock = new FakeClock();
    const queue = new FakeQueue(clock);
    const dlq = new FakeDLQ();
    const body = { list: [1, { deep: "clean" }], bytes: Uint8Array.of(1, 2) };
    queue.send({ id: "a", body });
    const handler = (message: { body: unknown; id: string; receiveCount: number }) => {
      const own = message.body as typeof body;
      (own.list[1] as { deep: string }).deep = "dirty";
      own.list.push(9);
      own.bytes[0] = 99;
      message.id = "other";
      message.receiveCount = 77;
      throw new TransientError("no");
    };
    const consumer = new DLQConsumer(queue, dlq, handler, clock, 2);
    expect([consumer.processOne(), consumer.processOne()]).toEqual(["retry", "dead"]);
    const clean = { list: [1, { deep: "clean" }], bytes: Uint8Array.of(1, 2) };
    expect(dlq.letters).toMatchObject([{ id: "a", body: clean, attempts: 2 }]);
    expect(body).toEqual(clean);
  });

  it.each([
    [0, "0"],
    [-1, "-1"],
    [1.5, "1.5"],
    [Number.NaN, "NaN"],
    [Number.POSITIVE_INFINITY, "Infinity"],
    ["3", "string"],
    [null, "object"],
  ])("refuses maxAttempts %s when it is made", (value, shown) => {
    const w = world(() => {});
    expect(() => new DLQConsumer(w.queue, w.dlq, () => {}, w.clock, value as number)).toThrow(
      expect.objectContaining({
        code: "BAD_ARGUMENT",
        message: `maxAttempts is ${shown}; expected a whole number of at least 1`,
      }),
    );
  });

  it("names the port method, handler or clock that is missing", () => {
    const w = world(() => {});
    const make = (...args: unknown[]) =>
      Reflect.construct(
        DLQConsumer,
        [w.queue, w.dlq, () => {}, w.clock].map((arg, i) => (i in args ? args[i] : arg)),
      );
    expect(() => make({ receive() {}, ack() {} })).toThrow("queue.retry is missing");
    expect(() => make(null)).toThrow("queue is null");
    expect(() => make(w.queue, { put() {} })).toThrow("deadLetters.has is missing");
    expect(() => make(w.queue, w.dlq, "handler")).toThrow("handler is string");
    expect(() => make(w.queue, w.dlq, () => {}, {})).toThrow("clock is object");
  });

  it("knows failures by name, from another copy of the package or another process", () => {
    class Foreign extends Error {
      override name = "PermanentError";
    }
    class Unnamed extends class PermanentError extends Error {} {}
    for (const error of [new Foreign("x"), new Unnamed("x"), { name: "PermanentError", message: "x" }]) {
      const w = world(throws(error));
      w.send("a");
      expect(w.consumer.processOne()).toBe("dead");
    }
    const w = world(throws({ name: "Crash", message: "x" }));
    w.send("a");
    expect(() => w.consumer.processOne()).toThrow();
    expect(w.dlq.letters).toEqual([]);
  });

  it("hears the user's own classifier first, and not at all when it throws", () => {
    const w = world(throws(new RangeError("no")), 3, {
      classify: (error) => (error instanceof RangeError ? "permanent" : undefined),
    });
    w.send("a");
    expect(w.consumer.processOne()).toBe("dead");
    const broken = world(throws(new RangeError("no")), 3, {
      classify: throws(new Error("bug")) as () => undefined,
    });
    broken.send("a");
    expect(broken.consumer.processOne()).toBe("retry");
  });

  it("answers with a promise from the first pending port or handler on", async () => {
    const w = world(async () => {
      throw new PermanentError("later");
    });
    w.send("a");
    const answer: unknown = w.consumer.processOne();
    expect(answer).toBeInstanceOf(Promise);
    expect(await answer).toBe("dead");
    const crash = world(async () => {
      throw new Crash("later");
    });
    crash.send("a");
    await expect(crash.consumer.processOne()).rejects.toThrow(Crash);
    expect(crash.queue.calls).toHaveLength(1);
  });

  it("says in its types whether the answer is a value or a promise", () => {
    const sync = new DLQConsumer(new MemoryQueue<string>(), new MemoryDLQ<string>(), (m) => m.body.length);
    expectTypeOf(sync.processOne()).toEqualTypeOf<Outcome | null>();
    expectTypeOf(sync.replay()).toEqualTypeOf<string[]>();
    const later = new DLQConsumer(new MemoryQueue<string>(), new MemoryDLQ<string>(), async () => {});
    expectTypeOf(later.processOne()).toEqualTypeOf<Promise<Outcome | null>>();
    expectTypeOf(later.replay()).toEqualTypeOf<string[]>();
  });
});

describe("replay by the contract", () => {
  function dead(...ids: string[]) {
    const state = { broken: true };
    const w = world(() => {
      if (state.broken) throw new PermanentError("no");
    });
    w.send(...ids);
    for (const _ of ids) w.consumer.processOne();
    state.broken = false;
    w.queue.calls.length = 0;
    w.dlq.calls.length = 0;
    return w;
  }

  it("sends all letters back in their order and answers their ids", () => {
    const w = dead("a", "b", "c");
    expect(w.consumer.replay()).toEqual(["a", "b", "c"]);
    expect(w.dlq.letters).toEqual([]);
    expect(w.queue.calls[0]).toStrictEqual(["send", { id: "a", body: "body of a" }]);
    expect([1, 2, 3].map(() => w.consumer.processOne())).toEqual(["ok", "ok", "ok"]);
    expect(w.runs.slice(3).map((m) => m.receiveCount)).toEqual([1, 1, 1]);
  });

  it("sends a doubled id once and knows nothing of unknown ones", () => {
    const w = dead("a", "b");
    expect(w.consumer.replay(["b", "nobody", "b"])).toEqual(["b"]);
    expect(w.dlq.letters.map((e) => e.id)).toEqual(["a"]);
    expect(w.consumer.replay(["b"])).toEqual([]);
    expect(w.consumer.replay([])).toEqual([]);
    expect(w.queue.waiting.map((m) => m.id)).toEqual(["b"]);
  });

  it("sends, then removes, letter by letter", () => {
    const w = dead("a", "b");
    const order: string[] = [];
    const { send, remove } = { send: w.queue.send.bind(w.queue), remove: w.dlq.remove.bind(w.dlq) };
    w.queue.send = (...args) => {
      order.push(`send ${(args[0] as { id: string }).id}`);
      send(...args);
    };
    w.dlq.remove = (...args) => {
      order.push(`remove ${args.join()}`);
      remove(...args);
    };
    w.consumer.replay();
    expect(order).toEqual(["send a", "remove a", "send b", "remove b"]);
  });

  it.each([
    ["an array", (letters: { id: string }[]) => letters],
    ["a map by id", (letters: { id: string }[]) => new Map(letters.map((e) => [e.id, e]))],
    ["an object by id", (letters: { id: string }[]) => Object.fromEntries(letters.map((e) => [e.id, e]))],
    ["a method", (letters: { id: string }[]) => () => letters],
  ])("reads the letters of an older store, which shows them as %s", (_kind, shape) => {
    const w = dead("a", "b");
    const store = {
      put: () => {},
      has: () => false,
      remove: (id: string) => w.dlq.remove(id),
      entries: shape(w.dlq.letters),
    };
    expect(new DLQConsumer(w.queue, store, () => {}, w.clock).replay()).toEqual(["a", "b"]);
  });

  it("says clearly that a store without a list cannot be replayed from", () => {
    const w = dead("a");
    const store = { put: () => {}, has: () => false, remove: () => {} };
    const consumer = new DLQConsumer(w.queue, store, () => {}, w.clock);
    expect(() => consumer.replay()).toThrow(expect.objectContaining({ code: "UNSUPPORTED" }));
    expect(() => w.consumer.replay("a" as never)).toThrow("ids is string");
  });
});
