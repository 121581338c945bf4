import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openDatabase } from "../../../src/engines/embedded/sqlite.ts";
import { type EmbeddedBroker, openBroker } from "../../../src/index.ts";

let folder: string;
let file: string;
let broker: EmbeddedBroker;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-full-"));
  file = join(folder, "data.db");
  broker = openBroker({ file });
});
afterEach(async () => {
  await broker.close();
  rmSync(folder, { recursive: true, force: true });
});

/** The most pages the file may have; 0: as many as it has now. */
function limit(pages: number): void {
  const { db } = (broker.host as unknown as { file: { db: ReturnType<typeof openDatabase> } }).file;
  db.exec(`PRAGMA max_page_count = ${pages === 0 ? 1 : pages}`);
}

const MUCH = "x".repeat(20_000);
const codeOf = (error: { code?: string }): string => String(error.code);
const isFull = (): boolean => broker.host.alarms?.().includes("disk") === true;

/** Ids that wait, as a broker sees them that opens the file anew. */
async function kept(): Promise<string[]> {
  await broker.close();
  broker = openBroker({ file });
  return broker
    .queue("q")
    .receiveMany(10_000)
    .map(({ id }) => id);
}

describe("a send that the full disk refused", () => {
  it("is not stored, neither now nor when there is room again", async () => {
    const queue = broker.queue("q");
    await queue.send(MUCH, "before");
    limit(0);
    const answers = await Promise.all(
      ["a", "b", "c"].map((id) => queue.send(MUCH, id).then(() => "stored", codeOf)),
    );
    expect(answers).toEqual(["DISK_FULL", "DISK_FULL", "DISK_FULL"]);
    expect([queue.pending(), isFull()]).toEqual([1, true]);
    expect(await queue.send("more").catch(codeOf)).toBe("DISK_FULL");
    limit(100_000);
    await expect.poll(isFull).toBe(false);
    await queue.send(MUCH, "after");
    expect(await kept()).toEqual(["before", "after"]);
  });

  it("is refused with all that were sent together, and only then", async () => {
    const queue = broker.queue("q");
    limit(0);
    const many = queue.sendMany(["a", "b", "c"].map((id) => ({ id, body: MUCH })));
    expect(await many.catch(codeOf)).toBe("DISK_FULL");
    expect(queue.pending()).toBe(0);
  });

  it("waits for the answer where it cannot be undone: somebody has the message", async () => {
    const queue = broker.queue("q");
    limit(0);
    let answer = "none yet";
    const sent = queue.send(MUCH, "a").then(
      () => (answer = "stored"),
      (error) => (answer = codeOf(error)),
    );
    expect(queue.receive()?.id).toBe("a");
    await expect.poll(isFull).toBe(true);
    expect(answer).toBe("none yet");
    limit(100_000);
    await sent;
    expect(answer).toBe("stored");
    expect(await kept()).toEqual(["a"]);
  });

  it("is rejected at the close where it still waits, and is not kept", async () => {
    const queue = broker.queue("q");
    limit(0);
    const sent = queue.send(MUCH, "a").catch(codeOf);
    expect(queue.receive()?.id).toBe("a");
    await expect.poll(isFull).toBe(true);
    expect(await kept()).toEqual([]);
    expect(await sent).toBe("DISK_FULL");
  });

  it("takes nothing with it of what the same turn had written before", async () => {
    const queue = broker.queue("q");
    const ids = Array.from({ length: 1_200 }, (_, n) => `${n}`);
    limit(120);
    const answers = await Promise.all(
      ids.map((id) => queue.send("x".repeat(1_000), id).then(() => id, codeOf)),
    );
    const stored = answers.filter((answer) => answer !== "DISK_FULL");
    expect(isFull()).toBe(true);
    expect(stored.length).toBeGreaterThan(0);
    expect(stored.length).toBeLessThan(1_200);
    limit(100_000);
    await expect.poll(isFull).toBe(false);
    expect(await kept()).toEqual(stored);
  });
});

describe("on a full disk", () => {
  it("acks go on, and the room they make ends it", async () => {
    const queue = broker.queue("q");
    for (let n = 0; n < 30; n++) await queue.send(MUCH, `${n}`);
    limit(0);
    expect(await queue.send(MUCH).catch(codeOf)).toBe("DISK_FULL");
    await new Promise((done) => setTimeout(done, 600));
    expect(isFull()).toBe(true);
    for (const { id, receipt } of queue.receiveMany(10)) await queue.ack(id, receipt);
    await expect.poll(isFull).toBe(false);
    await queue.send(MUCH, "after");
    expect((await kept()).at(-1)).toBe("after");
  });

  it("a letter that cannot be moved is not sent back either", async () => {
    const queue = broker.queue("q");
    const dead = broker.deadLetters("dead");
    const ids = Array.from({ length: 1_000 }, (_, n) => `${n}`);
    const entry = {
      body: "x",
      reason: "permanent" as const,
      error: "Error: no",
      sourceQueue: "q",
      attempts: 1,
    };
    await Promise.all(ids.map((id) => dead.put({ ...entry, id, firstAttemptAt: 1, failedAt: 1 })));
    limit(0);
    const letters = broker.letters.page({ state: "dead" }, ids.length);
    const replay = broker.letters.replay(letters.map(({ letterId }) => letterId));
    await Promise.race([replay, new Promise((done) => setTimeout(done, 100))]);
    limit(100_000);
    const { done, failed } = await replay;
    expect([done.length + failed.length, failed.length > 0]).toEqual([1_000, true]);
    const sent = queue.receiveMany(1_000).map(({ id }) => id);
    expect(sent.length).toBe(done.length);
    expect(broker.letters.count({ state: "dead" })).toBe(failed.length);
  });

  it("a letter that found no room takes no body along: what is handled later leaves nothing in the file", async () => {
    const queue = broker.queue("q");
    await queue.send(MUCH, "a");
    const message = queue.receive();
    limit(0);
    const error = `Error: ${"long ".repeat(50_000)}`;
    const entry = { id: "a", body: message?.body, reason: "permanent" as const, error, attempts: 1 };
    const dead = broker.deadLetters("dead");
    const buried = queue.bury("a", message?.receipt, { ...entry, firstAttemptAt: 1, failedAt: 1 }, dead);
    expect(await buried.catch(codeOf)).toBe("DISK_FULL");
    limit(100_000);
    await queue.ack("a", message?.receipt);
    await broker.close();
    const db = openDatabase(file);
    expect(db.prepare("SELECT count(*) AS n FROM messages").get()).toEqual({ n: 0 });
    db.close();
    broker = openBroker({ file });
  });

  it("a death without a place is kept until its letter can be written (found by the simulation)", async () => {
    const ids = Array.from({ length: 300 }, (_, n) => `${n}`);
    const queue = broker.queue("timed", { messageTtl: 60_000 });
    await queue.sendMany(ids.map((id) => ({ id, body: "x" })));
    limit(0);
    const { submit } = client();
    for (const _ of ids) {
      const { deliveryTag } = submit({ type: "get", queue: "timed" });
      submit({ type: "reject", deliveryTag, requeue: false });
    }
    await expect.poll(isFull).toBe(true);
    expect(queue.pending()).toBe(0);
    limit(100_000);
    await expect.poll(isFull).toBe(false);
    await kept();
    expect(broker.letters.count({ state: "dead" })).toBe(300);
    expect(broker.lost()).toMatchObject([{ queue: "timed", count: 300 }]);
  });
});

function client(): { submit: (command: object) => { deliveryTag: number } } {
  const connection = broker.host.vhost("/")?.connect({ effect() {}, flush() {}, ended() {} });
  const channel = connection?.openChannel() as number;
  return { submit: (command) => connection?.submit({ channel, ...command } as never) as never };
}
