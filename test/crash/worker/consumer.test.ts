import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Consumer, type ConsumerOptions, MemoryDLQ, MemoryQueue, MemoryStore } from "../../../src/index.ts";
import { handlerFile, tempDir, until } from "./world.ts";

/** A consumer with isolated handlers over stores in memory; `starts` is what the handlers wrote down. */
function isolated(options: Partial<ConsumerOptions> = {}) {
  const queue = options.queue ?? new MemoryQueue();
  const deadLetters = options.deadLetters ?? new MemoryDLQ();
  const file = join(tempDir(), "starts");
  const log: string[] = [];
  const say = (message: string): void => {
    log.push(message);
  };
  const consumer = new Consumer({
    queue,
    deadLetters,
    handler: handlerFile("case.mjs"),
    isolate: "process",
    maxAttempts: 3,
    backoff: 100,
    crashWaitsMs: [1],
    warmUpMs: 1,
    pollMs: 5,
    logger: { info: say, warn: say, error: say },
    ...options,
    worker: { env: { STARTS: file }, execArgv: [], graceMs: 200, output: () => true, ...options.worker },
  });
  const starts = (id: string): number[] =>
    (existsSync(file) ? readFileSync(file, "utf8") : "")
      .split("\n")
      .filter((line) => line.startsWith(`${id} `))
      .map((line) => Number(line.split(" ")[1]));
  const outcomes: string[] = [];
  consumer.on("handled", ({ id }) => outcomes.push(`${id} ok`));
  consumer.on("dead", ({ id, reason }) => outcomes.push(`${id} ${reason}`));
  return {
    queue: queue as MemoryQueue,
    deadLetters: deadLetters as MemoryDLQ,
    consumer,
    starts,
    outcomes,
    log,
  };
}

describe("case B1: a message that kills its process", () => {
  test.each([
    ["with SIGKILL", "kill", {}, "signal SIGKILL"],
    ["by allocating without end", "allocate", { heapLimitMb: 64 }, "heap out of memory"],
  ])("%s: three deaths, then poison; both behind it are handled once", async (_name, body, worker, cause) => {
    const { queue, deadLetters, consumer, starts, outcomes, log } = isolated({ worker });
    queue.send(body, "pill");
    queue.send("fine", "first");
    queue.send("fine", "second");
    await consumer.run({ until: "idle" });
    expect(starts("pill")).toHaveLength(3);
    expect(starts("first")).toHaveLength(1);
    expect(starts("second")).toHaveLength(1);
    expect(outcomes.sort()).toEqual(["first ok", "pill poison", "second ok"]);
    expect(deadLetters.list()).toMatchObject([
      { id: "pill", body, reason: "poison", error: null, attempts: 3 },
    ]);
    expect(queue.pending()).toBe(0);
    expect(log.filter((line) => line.includes(`crashed: ${cause}`))).toHaveLength(3);
  });

  test("many at once: only the pill dies, whatever ran beside it", async () => {
    const { queue, deadLetters, consumer, starts } = isolated({ concurrency: 4 });
    for (let n = 0; n < 40; n++) queue.send("fine", `m${n}`);
    queue.send("kill", "pill");
    for (let n = 40; n < 80; n++) queue.send("fine", `m${n}`);
    await consumer.run({ until: "idle" });
    expect(deadLetters.list().map(({ id }) => id)).toEqual(["pill"]);
    expect(starts("pill")).toHaveLength(3);
    for (let n = 0; n < 80; n++) expect(starts(`m${n}`)).toHaveLength(1);
  });
});

describe("case B3: a message over its time limit", () => {
  test("hangs and late ones are tried three times with waits, then dead; the one behind is handled soon", async () => {
    const { queue, deadLetters, consumer, starts, outcomes } = isolated({ timeoutMs: 200 });
    const begun = Date.now();
    let healthyAt = 0;
    consumer.on("handled", () => {
      healthyAt = Date.now();
    });
    queue.send("hang", "H");
    queue.send("late", "L");
    queue.send("fine", "healthy");
    await consumer.run({ until: "idle" });
    for (const id of ["H", "L"]) {
      const at = starts(id);
      expect(at).toHaveLength(3);
      expect((at[1] as number) - (at[0] as number)).toBeGreaterThanOrEqual(100);
      expect((at[2] as number) - (at[1] as number)).toBeGreaterThanOrEqual(100);
    }
    expect(starts("healthy")).toHaveLength(1);
    expect(healthyAt - begun).toBeLessThan(3_000);
    expect(outcomes.sort()).toEqual(["H exhausted", "L exhausted", "healthy ok"]);
    for (const letter of deadLetters.list()) {
      expect(letter.error).toMatch(/timed out.*200/);
      expect(letter.attempts).toBe(3);
    }
    expect(queue.pending()).toBe(0);
  });
});

describe("a consumer with isolated handlers", () => {
  test("asks a rule of the user's with the error's own properties", async () => {
    const { queue, deadLetters, consumer, starts } = isolated({
      classify: (error) => ((error as { status?: number }).status === 410 ? "permanent" : undefined),
    });
    queue.send("status", "m1");
    await consumer.run({ until: "idle" });
    expect(starts("m1")).toHaveLength(1);
    expect(deadLetters.list()).toMatchObject([{ reason: "permanent", error: "Error: gone" }]);
  });

  test("tells them beside the message what a handler in process is told", async () => {
    const { queue, deadLetters } = new MemoryStore({ name: "orders" }).open();
    const { consumer } = isolated({
      queue,
      deadLetters,
      handler: handlerFile("trouble.mjs"),
      maxAttempts: 1,
    });
    await queue.send("tell context", "m1");
    await consumer.run({ until: "idle" });
    const [letter] = await deadLetters.list();
    expect(JSON.parse(letter?.error?.replace("Error: ", "") ?? "{}")).toEqual({
      maxAttempts: 1,
      queue: "orders",
      attempt: 1,
      signal: false,
    });
  });

  test("stopped in the middle of a handler gives the message back uncounted, after its process has ended", async () => {
    const { queue, deadLetters } = new MemoryStore().open();
    const { consumer, starts } = isolated({ queue, deadLetters });
    await queue.send("hang", "m1");
    const running = consumer.run();
    await until("the handler is entered", () => starts("m1").length === 1);
    await consumer.stop({ drainMs: 50 });
    await running;
    const back = await queue.receive();
    expect(back).toMatchObject({ id: "m1" });
    const again = await queue.begin?.("m1", back?.receipt);
    expect(again?.receiveCount).toBe(1);
    expect(deadLetters.list()).toEqual([]);
  });

  test("whose handler file is no good says so and touches no message", async () => {
    const { queue, consumer, deadLetters } = isolated({ handler: handlerFile("no-function.mjs") });
    queue.send("x", "m1");
    await expect(consumer.run()).rejects.toMatchObject({
      code: "BAD_HANDLER",
      message: expect.stringContaining("no-function.mjs"),
    });
    expect(queue.receive()).toMatchObject({ id: "m1", receiveCount: 1 });
    expect(deadLetters.list()).toEqual([]);
  });
});
