import { describe, expect, it } from "vitest";
import { type DeadLetter, DLQConsumer, MemoryDLQ, MemoryQueue, MemoryStore } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";

const letter = (id: string, body: unknown, generation?: number): DeadLetter => ({
  id,
  body,
  reason: "permanent",
  error: "Error: no",
  attempts: 1,
  firstAttemptAt: 1,
  failedAt: 2,
  ...(generation === undefined ? {} : { generation }),
});

describe("MemoryQueue", () => {
  it("tells a message under its own id from a body that only looks like one", () => {
    const queue = new MemoryQueue();
    expect(queue.send({ id: "a", body: 1 })).toBe("a");
    expect(queue.send({ id: 7, body: 1 })).toBe("m1");
    expect(queue.send({ id: "b", body: 1, price: 2 })).toBe("m2");
    expect(queue.send({ id: "c", body: 1 }, "own")).toBe("own");
    const bodies = [1, 2, 3, 4].map(() => queue.receive()?.body);
    expect(bodies).toEqual([1, { id: 7, body: 1 }, { id: "b", body: 1, price: 2 }, { id: "c", body: 1 }]);
    expect(() => queue.send("x", "")).toThrow("message id is an empty string");
    expect(() => queue.send("x", 5 as never)).toThrow("message id is number");
  });

  it("keeps the order over many messages, retries and a recover", () => {
    const clock = new FakeClock(5);
    const queue = new MemoryQueue<number>(clock);
    for (let i = 0; i < 5_000; i++) queue.send(i, `${i}`);
    const seen: number[] = [];
    for (let i = 0; i < 3_000; i++) {
      seen.push(queue.receive()!.body);
      if (i % 1_000 === 999) queue.retry(`${i}`);
      else if (i < 2_998) queue.ack(`${i}`);
    }
    clock.advance(10);
    expect(queue.recover()).toBe(1);
    for (let message = queue.receive(); message !== null; message = queue.receive()) {
      seen.push(message.body);
      if (message.receiveCount === 2) expect(message.firstReceivedAt).toBe(5);
      queue.ack(message.id);
    }
    const expected = Array.from({ length: 3_000 }, (_, i) => i);
    expect(seen).toEqual([
      ...expected,
      2_998,
      ...Array.from({ length: 2_000 }, (_, i) => 3_000 + i),
      999,
      1_999,
      2_999,
    ]);
    expect(queue.pending()).toBe(0);
    expect(() => queue.ack("1")).toThrow(expect.objectContaining({ code: "NOT_FOUND" }));
    expect(() => queue.retry("1")).toThrow('no message with id "1" is in flight');
  });
});

describe("MemoryDLQ", () => {
  it("keeps another body under the same id beside the first, and gives them back one by one", () => {
    const queue = new MemoryQueue();
    const dlq = new MemoryDLQ();
    dlq.put(letter("a", { n: 1 }));
    dlq.put(letter("a", { n: 1 }));
    dlq.put(letter("a", { n: 2 }));
    dlq.put(letter("b", Uint8Array.of(1)));
    dlq.put(letter("b", Uint8Array.of(1)));
    expect(dlq.list().map((entry) => [entry.id, entry.body])).toEqual([
      ["a", { n: 1 }],
      ["a", { n: 2 }],
      ["b", Uint8Array.of(1)],
    ]);
    expect(dlq.get("a")?.body).toEqual({ n: 2 });
    expect(new DLQConsumer(queue, dlq, () => {}).replay(["a"])).toEqual(["a", "a"]);
    expect([dlq.has("a"), dlq.get("a"), queue.pending()]).toEqual([false, null, 2]);
  });
});

describe("MemoryStore", () => {
  it("handles another message under the id of a dead letter, and keeps both letters", async () => {
    const { queue, deadLetters } = new MemoryStore().open();
    const handled: unknown[] = [];
    const handler = (message: { body: unknown }) => {
      handled.push(message.body);
      throw Object.assign(new Error("no"), { name: "PermanentError" });
    };
    const consumer = new DLQConsumer(queue, deadLetters, handler, { now: () => 1 });
    for (const body of ["one", "two", "one"]) {
      await queue.send(body, "same");
      expect(await consumer.processOne()).toBe("dead");
    }
    expect(handled).toEqual(["one", "two"]);
    expect((await deadLetters.list()).map((entry) => entry.body)).toEqual(["one", "two"]);
  });

  it("refuses every settlement by a process that has died", async () => {
    const store = new MemoryStore();
    const own = store.open();
    await own.queue.send("x", "a");
    const message = (await own.queue.receive())!;
    own.crash();
    for (const settle of ["ack", "retry", "release", "begin", "extend"] as const) {
      expect(() => own.queue[settle]!("a", message.receipt)).toThrow(
        expect.objectContaining({ code: "STALE_DELIVERY" }),
      );
    }
    expect(await store.open().queue.receive()).toMatchObject({ id: "a", receiveCount: 1 });
  });

  it("calls a crash that a living holder reports solo: the handler's process was its own", async () => {
    const { queue, deadLetters } = new MemoryStore({ clock: new FakeClock(100) }).open();
    for (const id of ["pill", "neighbour"]) await queue.send("x", id);
    const taken = [(await queue.receive())!, (await queue.receive())!];
    for (const { id, receipt } of taken) await queue.begin!(id, receipt);
    await queue.retry("pill", taken[0]!.receipt, { cause: "exit code 9" });
    const again = (await queue.receive())!;
    await queue.begin!("pill", again.receipt);
    const letter = { id: "pill", body: "x", reason: "poison", error: null, attempts: 2, cause: "SIGKILL" };
    await queue.bury!(
      "pill",
      again.receipt,
      { ...letter, firstAttemptAt: 100, failedAt: 100 } as never,
      deadLetters,
    );
    const [entry] = await deadLetters.list();
    expect(entry!.history?.map(({ outcome, cause, company }) => [outcome, cause, company])).toEqual([
      ["crashed", "exit code 9", "solo"],
      ["crashed", "SIGKILL", "solo"],
    ]);
  });

  it("says how each start ended", async () => {
    const clock = new FakeClock(100);
    const store = new MemoryStore({ clock });
    const first = store.open();
    await first.queue.send("x", "a");
    await first.queue.begin!("a", (await first.queue.receive())!.receipt);
    first.crash();
    const { queue, deadLetters } = store.open();
    const failing = () => {
      clock.advance(1);
      throw new Error("no");
    };
    const consumer = new DLQConsumer(queue, deadLetters, failing, clock);
    expect([await consumer.processOne(), await consumer.processOne()]).toEqual(["retry", "dead"]);
    const [entry] = await deadLetters.list();
    expect(entry!.history?.map(({ n, outcome, cause, company }) => [n, outcome, cause, company])).toEqual([
      [1, "crashed", "process died", "shared"],
      [2, "failed", "Error: no", "solo"],
      [3, "failed", "Error: no", "shared"],
    ]);
  });
});

it("replays every message of an id that several messages have, with one transaction or without", async () => {
  for (const shared of [true, false]) {
    const process = new MemoryStore<string>().open();
    const { deadLetters } = process;
    const queue = shared ? process.queue : new MemoryStore<string>().open().queue;
    for (const body of ["one", "two"]) await deadLetters.put({ ...letter("a", body, 1), body });
    expect(await new DLQConsumer(queue, deadLetters, () => {}).replay()).toEqual(["a", "a"]);
    const bodies = [await queue.receive(), await queue.receive()].map((message) => message?.body);
    expect([bodies, await deadLetters.list()]).toEqual([["one", "two"], []]);
  }
});
