import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { z } from "zod";
import {
  Consumer,
  type ConsumerEvents,
  type ConsumerOptions,
  Crash,
  DloError,
  type HandlerRunner,
  type Logger,
  MemoryDLQ,
  MemoryQueue,
  MemoryStore,
  PermanentError,
  type RunResult,
  TransientError,
} from "../../../src/index.ts";

type Heard = { [K in keyof ConsumerEvents]?: ConsumerEvents[K][] };
const NAMES = [
  "started",
  "handled",
  "retried",
  "dead",
  "suspect",
  "interrupted",
  "stale",
  "error",
  "idle",
] as const;

function listen(consumer: Consumer): Heard {
  const heard: Heard = {};
  for (const name of NAMES) {
    consumer.on(name, (event) => ((heard[name] ??= []) as unknown[]).push(event));
  }
  return heard;
}

const plain = (more: Partial<ConsumerOptions> = {}) => {
  const queue = new MemoryQueue();
  const deadLetters = new MemoryDLQ();
  const options = { queue, deadLetters, handler: () => {}, logger: null, backoff: 0, pollMs: 2, ...more };
  return { queue, deadLetters, options, make: () => new Consumer(options) };
};

const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));
const until = async (holds: () => boolean) => {
  for (let i = 0; i < 2_000 && !holds(); i++) await sleep(2);
  expect(holds()).toBe(true);
};

describe("Consumer", () => {
  it("sees every message through and ends when nothing is left", async () => {
    const w = plain({
      concurrency: 5,
      handler: async (message) => {
        if (message.id === "bad") throw new PermanentError("no");
        if (message.id === "flaky" && message.receiveCount < 3) throw new TransientError("not yet");
      },
    });
    for (const id of ["a", "bad", "flaky", "b"]) w.queue.send({ id, body: 1 });
    const consumer = w.make();
    const heard = listen(consumer);
    await consumer.run({ until: "idle" });
    expect(heard.handled?.map((e) => e.id)).toEqual(["a", "b", "flaky"]);
    expect(heard.handled?.at(-1)).toMatchObject({ id: "flaky", attempt: 3 });
    expect(heard.retried?.map((e) => [e.attempt, e.error])).toEqual([
      [1, "TransientError: not yet"],
      [2, "TransientError: not yet"],
    ]);
    expect(heard.dead).toEqual([
      { id: "bad", reason: "permanent", error: "PermanentError: no", attempts: 1 },
    ]);
    expect(w.deadLetters.list()).toHaveLength(1);
    expect(w.queue.pending()).toBe(0);
  });

  it("never runs more handlers at a time than it may", async () => {
    let now = 0;
    let most = 0;
    const w = plain({
      concurrency: 3,
      handler: async () => {
        most = Math.max(most, ++now);
        await sleep(2);
        now--;
      },
    });
    for (let i = 0; i < 20; i++) w.queue.send(i);
    await w.make().run({ until: "idle" });
    expect(most).toBe(3);
  });

  it("lets what is behind go on while a failed message waits", async () => {
    const order: string[] = [];
    const w = plain({
      backoff: 60,
      handler: (message) => {
        order.push(`${message.id}${message.receiveCount}`);
        if (message.id === "slow" && message.receiveCount === 1) throw new TransientError("later");
      },
    });
    for (const id of ["slow", "b", "c"]) w.queue.send({ id, body: 1 });
    await w.make().run({ until: "idle" });
    expect(order).toEqual(["slow1", "b1", "c1", "slow2"]);
  });

  it("waits as long as the error asks, where that is longer", async () => {
    const times: number[] = [];
    const w = plain({
      handler: (message) => {
        times.push(performance.now());
        if (message.receiveCount === 1) throw new TransientError("busy", { retryAfter: 80 });
      },
    });
    w.queue.send("x");
    await w.make().run({ until: "idle" });
    expect(times[1]! - times[0]!).toBeGreaterThanOrEqual(75);
  });

  it("J2: a wait of thirty days does not end at once, and a stop ends it", async () => {
    const days = 30 * 86_400_000;
    const warnings: Error[] = [];
    const note = (warning: Error): void => void warnings.push(warning);
    process.on("warning", note);
    const w = plain({
      backoff: { baseMs: days, maxMs: days },
      handler: () => {
        throw new TransientError("later");
      },
    });
    w.queue.send({ id: "a", body: 1 });
    const consumer = w.make();
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => heard.started?.length === 1);
    await sleep(50);
    expect([heard.started?.length, consumer.inFlight.parked]).toEqual([1, 1]);
    await consumer.stop();
    await run;
    expect(heard.retried?.map((e) => e.delayMs)).toEqual([days]);
    expect(w.queue.receive()).toMatchObject({ id: "a", receiveCount: 2 });
    process.off("warning", note);
    expect(warnings).toEqual([]);
  });

  it("waits as long as the error asks also beyond the backoff's own cap, unless one is given", async () => {
    const asked = 3_600_000;
    for (const [backoff, delayMs] of [
      [undefined, asked],
      [7_200_000, 7_200_000],
      [{ baseMs: 1, maxMs: 60_000 }, 60_000],
    ] as const) {
      const w = plain({
        ...(backoff === undefined ? {} : { backoff }),
        handler: () => {
          throw new TransientError("busy", { retryAfter: asked });
        },
      });
      w.queue.send("x");
      const consumer = new Consumer({
        ...w.options,
        ...(backoff === undefined && { backoff: undefined }),
      } as never);
      const heard = listen(consumer);
      const run = consumer.run();
      await until(() => consumer.inFlight.parked === 1);
      await consumer.stop();
      await run;
      expect(heard.retried?.map((e) => e.delayMs)).toEqual([delayMs]);
    }
  });

  it("a stop that waits without end lets the handler finish; one that waits for nonsense is refused and stops nothing", async () => {
    let done = (): void => {};
    const w = plain({ handler: () => new Promise<void>((ends) => (done = ends)) });
    w.queue.send({ id: "a", body: 1 });
    const consumer = w.make();
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => heard.started?.length === 1);
    for (const drainMs of [-1, Number.NaN, "10s" as never])
      await expect(consumer.stop({ drainMs })).rejects.toMatchObject({
        code: "BAD_ARGUMENT",
        message: /drainMs/,
      });
    const stopped = consumer.stop({ drainMs: Number.POSITIVE_INFINITY });
    await sleep(30);
    expect(consumer.inFlight.running).toBe(1);
    done();
    await stopped;
    await run;
    expect([heard.handled?.length, w.queue.pending()]).toEqual([1, 0]);
  });

  it.each([1, 3])(
    "B3: a handler over its time has failed, and its late end changes nothing (%i at a time)",
    async (concurrency) => {
      const starts = new Map<string, number[]>();
      const healthy: number[] = [];
      const late: Promise<void>[] = [];
      const begun = performance.now();
      const w = plain({
        timeoutMs: 200,
        backoff: 100,
        concurrency,
        handler: (message, { signal }) => {
          if (message.id === "healthy") return void healthy.push(performance.now() - begun);
          const own = starts.get(message.id) ?? [];
          starts.set(message.id, [...own, performance.now()]);
          signal.addEventListener("abort", () => {});
          if (message.id === "H") return new Promise(() => {});
          const slow = sleep(500);
          late.push(slow);
          return slow;
        },
      });
      for (const id of ["H", "L", "healthy"]) w.queue.send({ id, body: 1 });
      const consumer = w.make();
      const heard = listen(consumer);
      await consumer.run({ until: "idle" });
      await Promise.all(late);
      await sleep(10);
      for (const id of ["H", "L"]) {
        const own = starts.get(id)!;
        expect(own).toHaveLength(3);
        expect(Math.min(own[1]! - own[0]!, own[2]! - own[1]!)).toBeGreaterThanOrEqual(100);
      }
      const letters = w.deadLetters.list();
      expect(letters.map((e) => [e.id, e.reason, e.attempts]).sort()).toEqual([
        ["H", "exhausted", 3],
        ["L", "exhausted", 3],
      ]);
      for (const { error } of letters) expect(error).toMatch(/timed out.*200 ms/);
      expect(heard.handled?.map((e) => e.id)).toEqual(["healthy"]);
      expect(healthy[0]).toBeLessThan(3_000);
      expect(w.queue.pending()).toBe(0);
    },
  );

  it("never acks while the dead letter cannot be written, serves the rest, and writes it when it can", async () => {
    const w = plain({
      concurrency: 2,
      handler: (message) => {
        if (message.id.startsWith("bad")) throw new PermanentError("no");
      },
    });
    const put = w.deadLetters.put.bind(w.deadLetters);
    let down = true;
    let acks = 0;
    w.deadLetters.put = (entry) => {
      if (down) throw new Error("disk full");
      put(entry);
    };
    const ack = w.queue.ack.bind(w.queue);
    w.queue.ack = (id) => {
      if (id.startsWith("bad")) acks++;
      ack(id);
    };
    for (const id of ["bad1", "bad2", "bad3", "a", "b"]) w.queue.send({ id, body: 1 });
    const consumer = w.make();
    const heard = listen(consumer);
    const run = consumer.run({ until: "idle" });
    await until(() => heard.handled?.length === 2);
    expect(acks).toBe(0);
    expect(heard.error?.[0]).toMatchObject({ id: "bad1", during: "put" });
    expect(consumer.inFlight).toEqual({ running: 0, parked: 3 });
    down = false;
    await run;
    expect(
      w.deadLetters
        .list()
        .map((e) => e.id)
        .sort(),
    ).toEqual(["bad1", "bad2", "bad3"]);
    expect(acks).toBe(3);
  });

  it("stops without waiting for a port that stays broken, and leaves the message in flight", async () => {
    const w = plain({
      handler: () => {
        throw new PermanentError("no");
      },
    });
    w.deadLetters.put = () => {
      throw new Error("disk full");
    };
    w.queue.send("x", "a");
    const consumer = w.make();
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => (heard.error?.length ?? 0) > 0);
    await consumer.stop();
    await run;
    expect([w.queue.pending(), w.queue.recover()]).toEqual([1, 1]);
  });

  it("goes on when receiving fails for a while", async () => {
    const w = plain();
    const receive = w.queue.receive.bind(w.queue);
    let failures = 2;
    w.queue.receive = () => {
      if (failures-- > 0) throw new Error("connection lost");
      return receive();
    };
    w.queue.send("x");
    const consumer = w.make();
    const heard = listen(consumer);
    await consumer.run({ until: "idle" });
    expect(heard.error?.map((e) => e.during)).toEqual(["receive", "receive"]);
    expect(heard.handled).toHaveLength(1);
  });

  it("waits for a queue that calls, and survives one that calls wrongly or not at all", async () => {
    const store = new MemoryStore();
    const { queue, deadLetters } = store.open();
    let call = () => {};
    const asked: AbortSignal[] = [];
    queue.ready = (signal) => {
      asked.push(signal);
      if (asked.length === 1) throw new Error("not connected");
      if (asked.length === 2) return Promise.resolve();
      return new Promise((done) => {
        call = done;
      });
    };
    const consumer = new Consumer({ queue, deadLetters, handler: () => {}, logger: null, pollMs: 3 });
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => asked.length === 3);
    expect(heard.error?.map((e) => e.during)).toEqual(["ready"]);
    await queue.send("x", "a");
    call();
    await until(() => heard.handled?.length === 1);
    await until(() => asked.length === 4);
    await consumer.stop();
    await run;
    expect(asked.every((signal) => signal.aborted)).toBe(true);
  });

  it("asks an empty queue for one call at a time, and says idle when the last handler ends after that", async () => {
    const { queue, deadLetters } = new MemoryStore().open();
    const calls: (() => void)[] = [];
    const open = new Set<() => void>();
    let most = 0;
    queue.ready = (signal) =>
      new Promise((done) => {
        const end = (): void => {
          open.delete(end);
          done();
        };
        open.add(end);
        most = Math.max(most, open.size);
        calls.push(end);
        signal.addEventListener("abort", end, { once: true });
      });
    const ends = new Map<string, () => void>();
    const consumer = new Consumer({
      queue,
      deadLetters,
      concurrency: 10,
      logger: null,
      backoff: 0,
      handler: (message) =>
        new Promise<void>((done, fail) => {
          const again = message.id === "b" && message.receiveCount === 1;
          ends.set(`${message.id}${message.receiveCount}`, again ? () => fail(new Error("not yet")) : done);
        }),
    });
    const heard = listen(consumer);
    for (const id of ["a", "b", "c"]) await queue.send("x", id);
    const run = consumer.run();
    await until(() => ends.size === 3 && calls.length === 1);
    expect(heard.idle ?? []).toHaveLength(0);
    ends.get("a1")?.();
    // Sent back, it is there again, and nobody has to call for it.
    ends.get("b1")?.();
    await until(() => ends.has("b2"));
    for (const name of ["b2", "c1"]) ends.get(name)?.();
    await until(() => heard.idle?.length === 1);
    expect([calls.length, most]).toEqual([1, 1]);
    await queue.send("x", "d");
    calls[0]?.();
    await until(() => ends.has("d1"));
    ends.get("d1")?.();
    await until(() => heard.idle?.length === 2);
    expect(most).toBe(1);
    await consumer.stop();
    await run;
    expect([heard.handled?.length, open.size]).toEqual([4, 0]);
  });

  it("tries a settlement that is rejected again, also one it has held back itself", async () => {
    const w = plain({ backoff: 5 });
    const calls: unknown[][] = [];
    const flaky = (name: "ack" | "retry") => {
      const own = w.queue[name].bind(w.queue);
      w.queue[name] = (async (...args: [string]) => {
        calls.push([name, ...args]);
        if (calls.filter(([one]) => one === name).length === 1) throw new Error("connection lost");
        return own(...args);
      }) as never;
    };
    flaky("ack");
    flaky("retry");
    let runs = 0;
    const handler = async () => {
      if (++runs === 1) throw new Error("not yet");
    };
    w.queue.send("x", "a");
    const consumer = new Consumer({ ...w.options, handler });
    const heard = listen(consumer);
    await consumer.run({ until: "idle" });
    expect(heard.error?.map((e) => [e.during, e.id])).toEqual([
      ["retry", "a"],
      ["ack", "a"],
    ]);
    expect(calls.map((one) => one.join(" "))).toEqual(["retry a", "retry a", "ack a", "ack a"]);
    expect([runs, heard.handled?.length]).toEqual([2, 1]);
  });

  it("passes a Crash on, and touches neither its message nor the others in flight", async () => {
    const store = new MemoryStore();
    const own = store.open();
    for (const id of ["a", "pill"]) await own.queue.send("x", id);
    const consumer = new Consumer({
      ...own,
      concurrency: 2,
      logger: null,
      handler: async (message) => {
        if (message.id === "pill") throw new Crash("dying");
        await new Promise(() => {});
      },
    });
    await expect(consumer.run()).rejects.toThrow(Crash);
    expect(store.state.rows.map((row) => [row.id, row.starts, row.holder !== 0])).toEqual([
      ["a", 1, true],
      ["pill", 1, true],
    ]);
  });

  it("runs a suspect alone, after those that run already", async () => {
    const store = new MemoryStore();
    const first = store.open();
    await first.queue.send("x", "suspect");
    const taken = await first.queue.receive();
    await first.queue.begin!("suspect", taken!.receipt);
    const own = store.open();
    for (const id of ["a", "b", "c"]) await own.queue.send("x", id);
    const running = new Set<string>();
    const beside: Record<string, number> = {};
    const handler = async (message: { id: string }) => {
      running.add(message.id);
      for (const id of running) beside[id] = Math.max(beside[id] ?? 0, running.size);
      if (message.id === "b") first.crash();
      await sleep(15);
      running.delete(message.id);
    };
    const consumer = new Consumer({ ...own, handler, concurrency: 3, logger: null, warmUpMs: 0, pollMs: 2 });
    const heard = listen(consumer);
    await consumer.run({ until: "idle" });
    expect(beside["suspect"]).toBe(1);
    expect(beside["a"]).toBeGreaterThan(1);
    expect(heard.suspect).toEqual([{ id: "suspect", attempt: 2 }]);
    expect(heard.handled).toHaveLength(4);
  });

  it("lets started handlers finish at a stop, and starts no new one", async () => {
    const w = plain({ concurrency: 2, handler: () => sleep(40) });
    for (let i = 0; i < 6; i++) w.queue.send(i);
    const consumer = w.make();
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => heard.started?.length === 2);
    expect(consumer.stop()).toBe(consumer.stop());
    await run;
    expect(heard.started).toHaveLength(2);
    expect(heard.handled).toHaveLength(2);
    expect(w.queue.pending()).toBe(4);
    await expect(consumer.run()).rejects.toMatchObject({ code: "CLOSED" });
  });

  it("gives back, uncounted, what does not finish in time at a stop", async () => {
    const store = new MemoryStore();
    const own = store.open();
    await own.queue.send("x", "a");
    let told: unknown;
    const handler = (_message: unknown, { signal }: { signal: AbortSignal }) =>
      new Promise(() => {
        signal.addEventListener("abort", () => {
          told = signal.reason;
        });
      });
    const consumer = new Consumer({ ...own, handler, logger: null });
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => heard.started?.length === 1);
    await consumer.stop({ drainMs: 20 });
    await run;
    expect(told).toBeInstanceOf(Error);
    expect(heard.interrupted).toHaveLength(1);
    expect(await store.open().queue.receive()).toMatchObject({ id: "a", receiveCount: 1, starts: 1 });
  });

  it("sends delayed retries back at once when it stops", async () => {
    const w = plain({
      backoff: 60_000,
      handler: () => {
        throw new TransientError("later");
      },
    });
    w.queue.send("x", "a");
    const consumer = w.make();
    const heard = listen(consumer);
    const run = consumer.run();
    await until(() => heard.started?.length === 1);
    await consumer.stop();
    await run;
    expect(w.queue.receive()).toMatchObject({ id: "a", receiveCount: 2 });
  });

  it("stops by its signal, even one that was aborted before", async () => {
    const controller = new AbortController();
    const w = plain({ signal: controller.signal });
    const run = w.make().run();
    controller.abort();
    await run;
    const late = plain({ signal: AbortSignal.abort() });
    late.queue.send("x");
    await late.make().run();
    expect(late.queue.pending()).toBe(1);
  });

  it("F6: prolongs the hold while the handler runs, so that nobody takes the message over", async () => {
    const store = new MemoryStore({ holdMs: 300 });
    const [one, two] = [store.open(), store.open()];
    await one.queue.send("x", "a");
    const counts: number[] = [];
    const handler = async (message: { receiveCount: number }) => {
      counts.push(message.receiveCount);
      await sleep(800);
    };
    const make = (own: typeof one) => new Consumer({ ...own, handler, logger: null, pollMs: 5, warmUpMs: 0 });
    const consumers = [make(one), make(two)];
    const heard = consumers.map(listen);
    await Promise.all(consumers.map((consumer) => consumer.run({ until: "idle" })));
    expect(counts).toEqual([1]);
    expect(heard.flatMap((h) => h.handled ?? [])).toHaveLength(1);
  });

  it("F6: a frozen consumer settles nothing of what was taken over", async () => {
    const store = new MemoryStore({ holdMs: 40 });
    const [frozen, other] = [store.open(), store.open()];
    await frozen.queue.send("x", "a");
    frozen.queue.extend = () => {}; // Frozen: its timer does not run.
    let thaw = () => {};
    const slow = new Consumer({
      ...frozen,
      logger: null,
      handler: () => new Promise<void>((done) => (thaw = done)),
    });
    const heard = listen(slow);
    const run = slow.run();
    await until(() => heard.started?.length === 1);
    await sleep(50);
    const taken = await other.queue.receive();
    expect(taken).toMatchObject({ id: "a", receiveCount: 2, suspect: true });
    const begun = await other.queue.begin!("a", taken!.receipt);
    thaw();
    await until(() => heard.stale?.length === 1);
    expect(heard.handled).toBe(undefined);
    expect(await other.queue.pending()).toBe(1);
    await other.queue.ack("a", begun.receipt);
    expect(await other.queue.pending()).toBe(0);
    await slow.stop();
    await run;
  });

  it("dead-letters a body that does not fit the schema at once, whether the schema answers now or later", async () => {
    const shape = z.object({ price: z.number().positive() });
    const slow = z
      .object({ price: z.number() })
      .refine(async (body) => body.price > 0, "price must be positive");
    for (const schema of [shape, slow]) {
      const seen: unknown[] = [];
      const w = plain();
      w.queue.send({ id: "good", body: { price: 1 } });
      w.queue.send({ id: "bad", body: { price: -1 } });
      const { queue, deadLetters } = w;
      const handler = (message: { body: { price: number } }) => void seen.push(message.body.price);
      await new Consumer({ queue, deadLetters, schema, handler, logger: null, pollMs: 2 }).run({
        until: "idle",
      });
      expect(seen).toEqual([1]);
      expect(deadLetters.list()).toMatchObject([{ id: "bad", reason: "permanent", attempts: 1 }]);
      expect(deadLetters.list()[0]?.error).toMatch(/^SchemaError: .*price/);
    }
  });

  it("B4: a body that is no JSON is delivered once and dead-lettered, with its place and its bytes", async () => {
    const store = new MemoryStore();
    const own = store.open();
    const raws: Record<string, string> = {
      broken: '{"a":1',
      list: '[1,"x"]',
      text: '"str"',
      nothing: "null",
      empty: "",
    };
    for (const [id, text] of Object.entries(raws)) {
      const raw = new TextEncoder().encode(text);
      await own.queue.send({ id, body: raw, raw, properties: { contentType: "application/json" } });
    }
    const bodies: Record<string, unknown> = {};
    const lines: string[] = [];
    const logger: Logger = {
      info: () => {},
      warn: (line) => lines.push(line),
      error: (line) => lines.push(line),
    };
    const handler = (message: { id: string; body: unknown }) => {
      bodies[message.id] = message.body;
    };
    await new Consumer({ ...own, handler, logger, pollMs: 2 }).run({ until: "idle" });
    expect(bodies).toEqual({ list: [1, "x"], text: "str", nothing: null, empty: undefined });
    const [letter, ...more] = await own.deadLetters.list();
    expect(more).toEqual([]);
    expect(letter).toMatchObject({ id: "broken", reason: "permanent", attempts: 1 });
    expect(letter?.error).toMatch(/JSON.*position 6.*line 1, column 7/);
    expect(new TextDecoder().decode(letter?.raw)).toBe('{"a":1');
    expect(lines.filter((line) => line.includes("broken"))).toHaveLength(1);
  });

  it("disturbs nobody when a listener or the logger throws, or a handler fails late", async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on("unhandledRejection", note);
    const broken = () => {
      throw new Error("bug");
    };
    const w = plain({
      timeoutMs: 10,
      maxAttempts: 1,
      logger: { info: broken, warn: broken, error: broken },
      handler: async () => {
        await sleep(30);
        throw new Error("too late");
      },
    });
    w.queue.send("x");
    const consumer = w.make();
    consumer.on("dead", broken);
    await consumer.run({ until: "idle" });
    await sleep(40);
    process.off("unhandledRejection", note);
    expect(unhandled).toEqual([]);
    expect(w.deadLetters.list()).toHaveLength(1);
  });

  it.each<[string, Partial<Record<keyof ConsumerOptions, unknown>>, RegExp]>([
    ["concurrency", { concurrency: 0 }, /^concurrency is 0; expected a whole number from 1/],
    ["concurrency", { concurrency: 1.5 }, /^concurrency is 1.5; expected a whole number from 1/],
    ["maxAttempts", { maxAttempts: 0 }, /^maxAttempts is 0; expected a whole number/],
    ["backoff", { backoff: -1 }, /^backoff is -1; expected a number from 0/],
    ["backoff", { backoff: { baseMs: 1, factor: 0.5 } }, /^backoff.factor is 0.5; expected/],
    ["backoff", { backoff: "1s" }, /^backoff is "1s"; expected a number of ms/],
    ["timeoutMs", { timeoutMs: Number.NaN }, /^timeoutMs is NaN; expected a number from 1/],
    ["schema", { schema: {} }, /^schema is object; expected a Standard Schema/],
    ["handler", { handler: 7 }, /^handler is 7; expected a function, or the path/],
    ["handler", { isolate: "process" }, /^handler is function; expected the path of a module/],
    ["isolate", { isolate: "thread" }, /^isolate is "thread"; expected "none" or "process"/],
    ["classify", { classify: "x" }, /^classify is "x"; expected a function/],
    ["signal", { signal: {} }, /^signal is object; expected an AbortSignal/],
    ["clock", { clock: {} }, /^clock is object; expected an object with now/],
    ["queue", { queue: {} }, /^queue.receive is missing/],
  ])("refuses a bad %s, naming it, its value and what was expected: %o", (_name, bad, words) => {
    const w = plain();
    expect(() => new Consumer({ ...w.options, ...bad } as never)).toThrow(words);
  });
});

describe("Consumer with a handler in a module", () => {
  const folder = mkdtempSync(join(tmpdir(), "dlo-handler-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, text: string) => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };

  it.each([
    [
      "default",
      "export default (message) => { if (message.body !== 1) throw new Error('no'); };",
      (p: string) => p,
    ],
    ["handler", "export function handler() {}", (p: string) => pathToFileURL(p)],
    ["url", "export default async () => {};", (p: string) => pathToFileURL(p).href],
  ])("takes what it exports: %s", async (name, text, as) => {
    const w = plain({ handler: as(file(`${name}.mjs`, text)) });
    w.queue.send({ id: "a", body: 1 });
    const consumer = w.make();
    const heard = listen(consumer);
    await consumer.run({ until: "idle" });
    expect(heard.handled).toHaveLength(1);
  });

  it.each([
    ["is missing", () => join(folder, "nowhere.mjs"), /nowhere.mjs cannot be loaded/],
    ["exports no function", () => file("none.mjs", "export const x = 1;"), /none.mjs exports no function/],
  ])("touches no message when it %s", async (_what, path, words) => {
    const w = plain({ handler: path() });
    w.queue.send("x", "a");
    await expect(w.make().run()).rejects.toMatchObject({
      code: "BAD_HANDLER",
      message: expect.stringMatching(words),
    });
    expect(w.queue.receive()).toMatchObject({ receiveCount: 1 });
  });
});

describe("Two consumers on one queue", () => {
  it("share the work, and must agree on maxAttempts", async () => {
    const w = plain({ handler: () => sleep(1) });
    for (let i = 0; i < 10; i++) w.queue.send(i);
    const [one, two] = [w.make(), w.make()];
    const heard = [listen(one), listen(two)];
    const runs = [one.run({ until: "idle" }), two.run({ until: "idle" })];
    const other = new Consumer({ ...w.options, maxAttempts: 5 });
    await expect(other.run()).rejects.toMatchObject({
      code: "CONFLICT",
      message:
        "the queue has a running consumer with maxAttempts 3, this one asks for 5; expected the same number",
    });
    await Promise.all(runs);
    expect(heard.flatMap((h) => h.handled ?? [])).toHaveLength(10);
    await new Consumer({ ...w.options, maxAttempts: 5 }).run({ until: "idle" });
  });
});

describe("Consumer with handlers in other processes", () => {
  const runner = (
    answers: (message: { id: string; receiveCount: number }) => RunResult | Promise<RunResult>,
  ) => {
    const runs: string[] = [];
    const own: HandlerRunner = {
      run: async (message) => {
        runs.push(`${message.id}${message.receiveCount}`);
        return answers(message);
      },
      close: async () => void runs.push("closed"),
    };
    return { own, runs };
  };

  it.each([
    ["a plain queue", () => ({ queue: new MemoryQueue(), deadLetters: new MemoryDLQ() })],
    ["a queue that counts starts", () => new MemoryStore().open()],
  ])(
    "B1: on %s a message that kills its process three times is dead, and its handler is not called again",
    async (_name, open) => {
      const { queue, deadLetters } = open();
      for (const id of ["kill", "a", "b"]) await queue.send("x", id);
      const { own, runs } = runner((message) =>
        message.id === "kill" ? { outcome: "crashed", cause: "signal SIGKILL" } : { outcome: "ok" },
      );
      const options = {
        isolate: "process",
        runner: own,
        crashWaitsMs: [5],
        logger: null,
        pollMs: 2,
      } as const;
      const consumer = new Consumer({ queue, deadLetters, handler: "unused", ...options });
      await consumer.run({ until: "idle" });
      expect(runs).toEqual(["kill1", "a1", "b1", "kill2", "kill3", "closed"]);
      expect(await deadLetters.list()).toMatchObject([
        { id: "kill", reason: "poison", error: null, attempts: 3 },
      ]);
      expect(await queue.pending()).toBe(0);
    },
  );

  it("counts no start that was interrupted, up to the hard cap", async () => {
    const store = new MemoryStore();
    const { queue, deadLetters } = store.open();
    await queue.send("x", "a");
    const { own, runs } = runner(() => ({ outcome: "interrupted", cause: "SIGTERM" }));
    const options = { isolate: "process", runner: own, logger: null, pollMs: 2, maxAttempts: 2 } as const;
    await new Consumer({ queue, deadLetters, handler: "unused", ...options }).run({ until: "idle" });
    expect(runs).toEqual([...Array(6).fill("a1"), "closed"]);
    expect(await deadLetters.list()).toMatchObject([{ reason: "poison", attempts: 6 }]);
  });

  it("takes an error from over there as if it were thrown here", async () => {
    const w = { queue: new MemoryQueue(), deadLetters: new MemoryDLQ() };
    w.queue.send("x", "a");
    const { own } = runner(() => ({ outcome: "failed", error: { name: "PermanentError", message: "no" } }));
    const options = { isolate: "process", runner: own, logger: null, pollMs: 2 } as const;
    await new Consumer({ ...w, handler: "unused", ...options }).run({ until: "idle" });
    expect(w.deadLetters.list()).toMatchObject([{ reason: "permanent", error: "PermanentError: no" }]);
  });

  it("blames nobody when no handler can be started, and says why", async () => {
    const store = new MemoryStore();
    const { queue, deadLetters } = store.open();
    await queue.send("x", "a");
    const { own } = runner(() => Promise.reject(new DloError("WORKER_FAILED", "five children died")));
    const options = { isolate: "process", runner: own, logger: null } as const;
    const run = new Consumer({ queue, deadLetters, handler: "unused", ...options }).run();
    await expect(run).rejects.toMatchObject({ code: "WORKER_FAILED" });
    expect(await queue.receive()).toMatchObject({ id: "a", receiveCount: 1 });
  });
});
