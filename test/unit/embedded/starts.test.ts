import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { EmbeddedQueue } from "../../../src/engines/embedded/index.ts";
import { DLQConsumer, openBroker } from "../../../src/index.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-starts-"));
  file = join(folder, "data.db");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** One start that is ended from outside and taken back. */
async function interrupt(queue: EmbeddedQueue): Promise<void> {
  const message = queue.receive();
  if (message === null) throw new Error("nothing to interrupt");
  await queue.begin(message.id, message.receipt);
  await queue.release(message.id, message.receipt);
}

describe("starts that were interrupted from outside", () => {
  it("are not counted by receiveCount, and known as starts, over a restart too", async () => {
    const broker = openBroker({ file });
    const queue = broker.queue("q");
    await queue.send("work", "a");
    for (let i = 0; i < 2; i++) await interrupt(queue);
    expect(queue.receive()).toMatchObject({ id: "a", receiveCount: 1, starts: 2 });
    await broker.close();
    await using again = openBroker({ file });
    const message = again.queue("q").receive();
    expect(message).toMatchObject({ id: "a", receiveCount: 1, starts: 2 });
    await again.queue("q").close();
  });

  it("are none where a message was received and given back without a start", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue("q");
    await queue.send("work", "a");
    const message = queue.receive();
    await queue.release("a", message?.receipt);
    expect(queue.receive()).not.toHaveProperty("starts");
  });

  it("end a message at three times maxAttempts, with all of them in the letter's history", async () => {
    await using broker = openBroker({ file });
    const queue = broker.queue("q");
    const dead = broker.deadLetters("dlq");
    await queue.send("work", "a");
    for (let i = 0; i < 6; i++) await interrupt(queue);
    let ran = 0;
    const consumer = new DLQConsumer(queue, dead, () => void ran++, { now: Date.now }, 2);
    expect(await consumer.processOne()).toBe("dead");
    expect(ran).toBe(0);
    const [letter] = await dead.list();
    expect(letter).toMatchObject({ id: "a", reason: "poison" });
    expect(letter?.history?.map((attempt) => attempt.outcome)).toEqual(Array(6).fill("interrupted"));
    expect(queue.pending()).toBe(0);
  });

  it("are counted exactly where there are more than the evidence of other starts is kept", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue("q");
    await queue.send("work", "a");
    for (let i = 0; i < 60; i++) await interrupt(queue);
    expect(queue.receive()).toMatchObject({ receiveCount: 1, starts: 60 });
  });

  it("stand beside a crash without hiding it", async () => {
    const broker = openBroker({ file });
    const queue = broker.queue("q");
    await queue.send("work", "a");
    await interrupt(queue);
    const message = queue.receive();
    await queue.begin("a", message?.receipt);
    await broker.close();
    await using again = openBroker({ file });
    expect(again.queue("q").receive()).toMatchObject({ receiveCount: 2, starts: 2, suspect: true });
  });
});
