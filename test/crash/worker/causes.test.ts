import { describe, expect, test } from "vitest";
import { classify, describe as describeError } from "../../../src/core/index.ts";
import { handlerFile, messageOf, newPool, until } from "./world.ts";

/** A pool that has a ready spare, so that the message after a crash is a fair test. */
async function troubled(options: Parameters<typeof newPool>[0] = {}) {
  const world = newPool(options);
  await world.pool.start();
  const healthy = async () => expect(await world.pool.run(messageOf("ok"))).toEqual({ outcome: "ok" });
  const tell = (body: unknown) => world.pool.run(messageOf(body));
  return { ...world, healthy, tell };
}

describe("the parent names the cause", () => {
  test("a thrown error is an ordinary failure, with its class, message, stack, cause, code and retryAfter", async () => {
    const { pool, tell, healthy } = await troubled();
    const result = await tell("throw");
    expect(result).toMatchObject({
      outcome: "failed",
      error: {
        name: "NegativePrice",
        message: "price is -1",
        code: "E_PRICE",
        retryAfterMs: 1500,
        cause: { name: "RangeError", message: "below zero" },
      },
    });
    if (result.outcome === "failed") {
      expect(result.error.stack).toContain("trouble.mjs");
      expect(describeError(result.error)).toBe("NegativePrice: price is -1");
      expect(classify(result.error)).toBe("transient");
    }
    await healthy();
    expect(pool.status().crashed).toBe(0);
  });

  test("a PermanentError is still one on the other side", async () => {
    const { tell } = await troubled();
    const result = await tell("reject");
    expect(result.outcome).toBe("failed");
    if (result.outcome === "failed") expect(classify(result.error)).toBe("permanent");
  });

  test.each([
    ["throw null", "null"],
    ["throw text", "plain words"],
    ["throw cyclic", "Error: round"],
    ["throw getter", "Error"],
    ["throw aggregate", "two"],
  ])("%s comes out as text", async (body, text) => {
    const { tell, healthy } = await troubled();
    const result = await tell(body);
    expect(result.outcome).toBe("failed");
    if (result.outcome === "failed") expect(describeError(result.error)).toContain(text);
    await healthy();
  });

  test("stack overflow is an ordinary error", async () => {
    const { pool, tell, healthy } = await troubled();
    expect(await tell("overflow")).toMatchObject({ outcome: "failed", error: { name: "RangeError" } });
    await healthy();
    expect(pool.status().crashed).toBe(0);
  });

  test("a Crash is the process dying", async () => {
    const { tell, healthy } = await troubled();
    expect(await tell("crash")).toEqual({
      outcome: "crashed",
      cause: "Crash",
      detail: "Crash: the process dies",
    });
    await healthy();
  });

  test.each([
    ["exit", "exit code 3"],
    ["exit 0", "exit code 0"],
    ["sigkill", "signal SIGKILL"],
    ["sigsegv", "signal SIGSEGV"],
    ["abort", "signal SIGABRT"],
    ["abort like oom", "exit code 4"],
    ["disconnect", "IPC channel closed"],
  ])("%s: crashed, %s", async (body, cause) => {
    const { tell, healthy } = await troubled();
    expect(await tell(body)).toMatchObject({ outcome: "crashed", cause });
    await healthy();
  });

  test("the heap's limit", async () => {
    const { tell, healthy } = await troubled({ heapLimitMb: 64 });
    expect(await tell("heap")).toMatchObject({ outcome: "crashed", cause: "heap out of memory" });
    await healthy();
  });

  test.each(["rss", "rss blocked"])("%s: Buffers that outgrow the memory guard", async (body) => {
    const { tell, healthy } = await troubled({ rssLimitBytes: 256 * 1024 * 1024 });
    const result = await tell(body);
    expect(result).toMatchObject({ outcome: "crashed", cause: "memory limit exceeded" });
    if (result.outcome === "crashed")
      expect(result.detail).toMatch(/^\d+ MB resident, over the limit of 256 MB$/);
    await healthy();
  });

  test.each(["loop", "hang"])("%s is killed at the deadline and has timed out", async (body) => {
    const { pool, tell, healthy } = await troubled({ timeoutMs: 200 });
    const result = await tell(body);
    expect(result).toMatchObject({ outcome: "failed", error: { name: "TimeoutError", code: "TIMED_OUT" } });
    if (result.outcome === "failed") expect(result.error.message).toContain("timed out after 200 ms");
    await healthy();
    expect(pool.status().crashed).toBe(0);
  });

  test("with a heartbeat the deadline tells a loop from a wait", async () => {
    const { tell } = await troubled({ timeoutMs: 700, heartbeat: 10_000 });
    // The beats come every 2.5 s here: too slow to strike, and silence says nothing yet.
    const hang = await tell("hang");
    expect(hang.outcome === "failed" && hang.error.message).toContain("timed out after 700 ms");
    const quick = await troubled({ timeoutMs: 700, heartbeat: 600 });
    const waiting = await quick.tell("hang");
    expect(waiting.outcome === "failed" && waiting.error.message).toContain("it was waiting");
  });

  test("with a heartbeat an endless loop is killed before its deadline", async () => {
    const { tell, healthy } = await troubled({ timeoutMs: 120_000, heartbeat: 400 });
    const result = await tell("loop");
    expect(result).toMatchObject({ outcome: "failed", error: { name: "TimeoutError" } });
    if (result.outcome === "failed") expect(result.error.message).toContain("event loop was blocked");
    await healthy();
  });

  test("an error in a timer of the running handler ends its process", async () => {
    const { tell, healthy } = await troubled();
    expect(await tell("throw in a timer of its own")).toEqual({
      outcome: "crashed",
      cause: "uncaught exception",
      detail: "Error: while running",
    });
    await healthy();
  });
});

describe("a fault after the handler returned", () => {
  test.each([
    ["reject later", /unhandled rejection of message "guilty"/],
    ["throw later", /uncaught exception of message "guilty"/],
    ["exit later", /exit code 5 by message "guilty"/],
  ])("%s: the message running now is not blamed", async (body, cause) => {
    const { pool } = await troubled({ spare: 0 });
    expect(await pool.run(messageOf(body, { id: "guilty" }))).toEqual({ outcome: "ok" });
    const next = await pool.run(messageOf("slow", { id: "innocent" }));
    expect(next).toMatchObject({ outcome: "interrupted", cause: expect.stringMatching(cause) });
    expect(await pool.run(messageOf("ok"))).toEqual({ outcome: "ok" });
    expect(pool.status()).toMatchObject({ crashed: 0, started: 2 });
  });

  test("when nothing runs, the log names the message and the child is replaced", async () => {
    const { pool, log } = await troubled({ spare: 0 });
    await pool.run(messageOf("reject later", { id: "guilty" }));
    await until("a second child", () => pool.status().started === 2);
    expect(log.join("\n")).toMatch(/unhandled rejection after its handler had returned.*"guilty".*too late/);
    expect(await pool.run(messageOf("ok"))).toEqual({ outcome: "ok" });
  });
});

describe("what a handler says to the outside", () => {
  test("bytes on stdout and stderr are passed on line by line", async () => {
    const { lines, tell, healthy } = await troubled();
    expect(await tell("garbage")).toEqual({ outcome: "ok" });
    await healthy();
    await until("three lines", () => lines.length >= 2);
    expect(lines).toContainEqual({ stream: "stdout", text: "\xff\xfe\x00" });
    expect(lines).toContainEqual({ stream: "stderr", text: "to stderr" });
  });

  test("messages it sends to the parent are ignored", async () => {
    const { tell, healthy } = await troubled({ spare: 0 });
    expect(await tell("send garbage")).toEqual({ outcome: "ok" });
    await healthy();
  });
});

describe("what a handler is told beside the message", () => {
  test("the attempt, what the pool was given for it, and a signal", async () => {
    const { pool } = await troubled({ context: { maxAttempts: 3, queue: "orders" } });
    const result = await pool.run(messageOf("tell context", { receiveCount: 2 }));
    expect(result.outcome === "failed" && JSON.parse(result.error.message)).toEqual({
      maxAttempts: 3,
      queue: "orders",
      attempt: 2,
      signal: false,
    });
  });

  test("the signal is aborted when the pool closes and waits no longer; a handler that heeds it is done", async () => {
    const { pool, lines, tell } = await troubled();
    const running = tell("until aborted");
    await until("it runs", () => pool.status().busy === 1);
    await pool.close({ drainMs: 300 });
    expect(await running).toEqual({ outcome: "ok" });
    expect(lines).toContainEqual({ stream: "stdout", text: "aborted: CLOSED" });
  });
});

describe("a message crosses whole", () => {
  const echo = async (body: unknown, raw?: Uint8Array) => {
    const { pool } = newPool({ file: handlerFile("echo.mjs") });
    const result = await pool.run(messageOf(body, raw === undefined ? {} : { raw }));
    expect(result.outcome).toBe("failed");
    return result.outcome === "failed" ? result.error : null;
  };
  const sha = async (bytes: Uint8Array<ArrayBuffer>) =>
    Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");

  test("bytes, also those beside a decoded body", async () => {
    const bytes = new Uint8Array(100_000).map((_, at) => (at * 31) % 256);
    expect(await echo(bytes)).toMatchObject({ message: "bytes", code: await sha(bytes) });
    expect(await echo(1, bytes)).toMatchObject({ code: `1 raw ${await sha(bytes)}` });
  });

  test("strings, with lone surrogates and zeros", async () => {
    expect(await echo("a\u0000\ud800z\u{1f600}")).toMatchObject({
      message: "string",
      code: "97 0 55296 122 128512",
    });
  });

  test("JSON values", async () => {
    const body = { n: 1.5, list: [null, true, "x"], deep: { "": [] } };
    expect(await echo(body)).toMatchObject({ message: "object", code: JSON.stringify(body) });
    expect(await echo(null)).toMatchObject({ code: "null" });
  });

  test("a body that no process boundary lets through is the message's own, permanent failure", async () => {
    const { pool } = newPool();
    const result = await pool.run(messageOf(() => {}));
    expect(result).toMatchObject({ outcome: "failed", error: { name: "PermanentError" } });
    expect(await pool.run(messageOf("ok"))).toEqual({ outcome: "ok" });
  });
});
