import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openBroker } from "../../../src/index.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-delay-"));
  file = join(folder, "data.db");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const DAY = 86_400_000;

describe("a delay", () => {
  it.for([25, 30, 365])("of %i days comes at its time and not before, over a restart, once", async (days) => {
    const warnings: Error[] = [];
    const note = (warning: Error): void => void warnings.push(warning);
    process.on("warning", note);
    let now = 1_700_000_000_000;
    const due = now + days * DAY;
    const open = () => openBroker({ file, clock: { now: () => now } });
    let broker = open();
    await broker.delay("q", "x", { delayMs: days * DAY, id: "a" });
    for (const at of [now + 1000, due - 1000]) {
      now = at;
      broker.tick();
      expect(broker.queue("q").receive()).toBe(null);
      await broker.close();
      broker = open();
      expect(broker.delayed("q")).toMatchObject([{ id: "a", dueAt: due, body: "x" }]);
    }
    now = due + 2000;
    broker.tick();
    expect(
      broker
        .queue("q")
        .receiveMany(9)
        .map((message) => message.id),
    ).toEqual(["a"]);
    await broker.close();
    process.off("warning", note);
    expect(warnings.filter((warning) => warning.name === "TimeoutOverflowWarning")).toEqual([]);
  });

  it("waits for nobody: a short one comes before a long one sent earlier, on the real clock", async () => {
    await using broker = openBroker({ file });
    await broker.delay("q", "slow", { delayMs: 900 });
    await broker.delay("q", "fast", { delayMs: "150ms" });
    const queue = broker.queue<string>("q");
    const seen: string[] = [];
    const startedAt = Date.now();
    while (seen.length < 2) {
      await queue.ready(AbortSignal.timeout(5000));
      const message = queue.receive();
      if (message !== null) seen.push(message.body);
      if (seen.length === 1 && message !== null) expect(Date.now() - startedAt).toBeLessThan(850);
    }
    expect(seen).toEqual(["fast", "slow"]);
  });

  it("is listed, taken back and let go before its time", async () => {
    await using broker = openBroker(":memory:");
    const kept = await broker.delay("q", 1, { at: Date.now() + DAY, id: "kept" });
    await broker.delay("q", 2, { delayMs: "1h30m", id: "gone" });
    expect(broker.delayed("q").map(({ id }) => id)).toEqual(["gone", "kept"]);
    expect(await broker.cancelDelayed("q", "gone")).toBe(true);
    expect(await broker.cancelDelayed("q", "gone")).toBe(false);
    expect(await broker.releaseDelayed("q", kept)).toBe(true);
    expect(broker.queue("q").receive()).toMatchObject({ id: "kept", body: 1 });
  });

  it("that is no time is refused by name", async () => {
    await using broker = openBroker(":memory:");
    for (const delayMs of [
      -1,
      Number.NaN,
      3650 * DAY + 1,
      "soon",
      "5",
      "30 minutos",
      "",
      "1h nonsense",
      "11 years",
    ])
      await expect(broker.delay("q", 1, { delayMs })).rejects.toMatchObject({ code: "BAD_ARGUMENT" });
    await expect(broker.delay("q", 1, {})).rejects.toThrow(/either delayMs or at/);
    expect((await broker.delay("q", 1, { delayMs: "30 minutes" })).dueAt - Date.now()).toBeGreaterThan(
      1_799_000,
    );
  });
});

it("J1: thirty minutes are 1800000 ms, as a delay, a TTL and a lease", async () => {
  await using broker = openBroker({ file, clock: { now: () => 1_000 } });
  expect((await broker.delay("q", 1, { delayMs: "30 minutes" })).dueAt).toBe(1_801_000);
  const channel = await broker.createConfirmChannel();
  await channel.assertQueue("wait", { messageTtl: "30 minutes", expires: "30 minutes" });
  await channel.assertQueue("wait", { messageTtl: 1_800_000, expires: 1_800_000 });
  await expect(channel.assertQueue("wait", { messageTtl: 30_000, expires: 1_800_000 })).rejects.toThrow(
    /inequivalent arg 'x-message-ttl'.*'30000'.*'1800000'/,
  );
});

describe("messages whose time passed while the broker was down", () => {
  it("die at start, in order, into the queue behind the exchange (case C3)", async () => {
    let now = 1_700_000_000_000;
    const open = () => openBroker({ file, clock: { now: () => now } });
    let broker = open();
    let channel = await broker.createConfirmChannel();
    await channel.assertQueue("work");
    await channel.assertQueue("wait", {
      messageTtl: 8000,
      deadLetterExchange: "",
      deadLetterRoutingKey: "work",
    });
    for (let i = 0; i < 20; i++) channel.sendToQueue("wait", Buffer.from(`${i}`), { persistent: true });
    await channel.waitForConfirms();
    await broker.close();
    now += 9000;
    broker = open();
    channel = await broker.createConfirmChannel();
    expect((await channel.checkQueue("wait")).messageCount).toBe(0);
    const seen: string[] = [];
    for (let i = 0; i < 20; i++) {
      const message = await channel.get("work", { noAck: true });
      if (message) seen.push(message.content.toString());
    }
    expect(seen).toEqual(Array.from({ length: 20 }, (_, i) => `${i}`));
    await broker.close();
  });

  it("and those whose time has not passed keep deadline, count and place", async () => {
    let now = 1_700_000_000_000;
    const open = () => openBroker({ file, clock: { now: () => now } });
    let broker = open();
    const queue = broker.queue("q", { messageTtl: 10_000 });
    for (const id of ["a", "b", "c"]) await queue.send(id, id);
    const a = queue.receive();
    await queue.begin("a", a?.receipt);
    now += 4000;
    await broker.close();
    broker = open();
    // One that was started in a process that died is handed out alone, so it takes two to hold them all.
    const handles = [broker.queue("q"), broker.queue("q")] as const;
    const back = handles
      .flatMap((handle) => handle.receiveMany(9))
      .map(({ id, receiveCount, suspect }) => [id, receiveCount, suspect === true]);
    expect(back.sort()).toEqual([
      ["a", 2, true],
      ["b", 1, false],
      ["c", 1, false],
    ]);
    for (const handle of handles) handle.recover();
    now += 6001;
    broker.tick();
    expect(handles[0].receive()).toBe(null);
    expect(broker.lost()).toMatchObject([{ queue: "q", reason: "expired", count: 3 }]);
    await broker.close();
  });
});

it("removes letters after their retention, counted from their death (case J5)", async () => {
  let now = 0;
  const warned: string[] = [];
  const logger = { info: () => {}, warn: (message: string) => void warned.push(message), error: () => {} };
  await using broker = openBroker({ file, clock: { now: () => now }, letterRetention: "4 days", logger });
  now = 3 * DAY;
  await broker.deadLetters("dlq").put({
    id: "a",
    body: 1,
    reason: "exhausted",
    error: "Error: no",
    attempts: 3,
    firstAttemptAt: 0,
    failedAt: now,
  });
  for (const [day, count] of [
    [4.5, 1],
    [6.9, 1],
    [7.1, 0],
  ] as const) {
    now = day * DAY;
    broker.tick();
    expect([day, broker.letters.count()]).toEqual([day, count]);
  }
  expect(warned.filter((line) => line.includes("retention"))).toHaveLength(1);
});
