import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openDatabase } from "../../../src/engines/embedded/sqlite.ts";
import { type EmbeddedBroker, type EmbeddedQueue, openBroker } from "../../../src/index.ts";

let folder: string;
let file: string;
let now: number;
let broker: EmbeddedBroker;
const open = (): EmbeddedBroker => openBroker({ file, clock: { now: () => now }, lostLetters: false });
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-freed-"));
  file = join(folder, "data.db");
  now = 1_700_000_000_000;
  broker = open();
});
afterEach(async () => {
  await broker.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A message that was started and failed: something is known of it. */
async function tried(queue: EmbeddedQueue, id: string): Promise<void> {
  await queue.send("x", id);
  await again(queue, id);
}

async function again(queue: EmbeddedQueue, id: string): Promise<void> {
  const message = queue.receive();
  expect(message?.id).toBe(id);
  await queue.begin(id, message?.receipt);
  await queue.retry(id, message?.receipt, { error: "Error: not yet" });
}

/** Rows of a table as they are in the file once the broker has ended. */
async function rows(table: string): Promise<number> {
  await broker.close();
  const db = openDatabase(file);
  const { n } = db.prepare(`SELECT count(*) AS n FROM ${table}`).get() as { n: number };
  db.close();
  return n;
}

const evidence = (): Promise<number> => rows("evidence");

describe("what is known of earlier starts", () => {
  it("is kept while the message is there (the checks below can fail)", async () => {
    await tried(broker.queue("q"), "a");
    expect(await evidence()).toBe(1);
  });

  const client = (): {
    channel: number;
    submit: (command: object) => { type: string; deliveryTag: number };
  } => {
    const connection = broker.host.vhost("/")?.connect({ effect() {}, flush() {}, ended() {} });
    const channel = connection?.openChannel() as number;
    return { channel, submit: (command) => connection?.submit({ channel, ...command } as never) as never };
  };

  const leavings: Record<string, (queue: EmbeddedQueue) => unknown> = {
    "an ack": async (queue) => {
      const message = queue.receive();
      await queue.ack("a", message?.receipt);
    },
    "its letter": async (queue) => {
      const message = queue.receive();
      const entry = { id: "a", body: "x", reason: "permanent" as const, error: "Error: no" };
      const times = { attempts: 1, firstAttemptAt: now, failedAt: now };
      await queue.bury("a", message?.receipt, { ...entry, ...times }, broker.deadLetters("dead"));
    },
    "an ack of a client": () => {
      const { submit } = client();
      const { deliveryTag } = submit({ type: "get", queue: "q" });
      submit({ type: "ack", deliveryTag });
    },
    "an auto-acked get": () => client().submit({ type: "get", queue: "q", noAck: true }),
    "a reject": () => {
      const { submit } = client();
      const { deliveryTag } = submit({ type: "get", queue: "q" });
      submit({ type: "reject", deliveryTag, requeue: false });
    },
    "a reject that moves it": () => {
      broker.queue("next");
      const { submit } = client();
      submit({
        type: "policy-set",
        policy: {
          name: "p",
          pattern: "^q$",
          applyTo: "queues",
          priority: 0,
          definition: { "dead-letter-exchange": "", "dead-letter-routing-key": "next" },
        },
      });
      const { deliveryTag } = submit({ type: "get", queue: "q" });
      submit({ type: "reject", deliveryTag, requeue: false });
      expect(broker.queue("next").pending()).toBe(1);
    },
    "a purge": () => client().submit({ type: "queue-purge", queue: "q" }),
    "the end of its queue": () => client().submit({ type: "queue-delete", queue: "q" }),
    "its time": () => {
      now += 60_001;
      broker.tick();
    },
    "the length of its queue": async (queue) => {
      for (const id of ["b", "c"]) await queue.send("x", id);
      for (const id of ["b", "c"]) await queue.ack(id, queue.receive()?.receipt);
    },
  };
  it.each(Object.entries(leavings))("goes with the message: by %s", async (_, leave) => {
    const queue = broker.queue("q", { messageTtl: 60_000, maxLength: 2 });
    await tried(queue, "a");
    await leave(queue);
    expect(await evidence()).toBe(0);
  });

  it("goes with a delayed message that is taken back, and with its virtual host", async () => {
    const queue = broker.queue("q");
    await queue.send("x", "a");
    const message = queue.receive();
    await queue.begin("a", message?.receipt);
    await queue.retry("a", message?.receipt, { delayMs: 10_000 });
    expect(await broker.cancelDelayed("q", "a")).toBe(true);
    await tried(broker.vhost("other").queue("q"), "b");
    broker.host.deleteVhost?.("other");
    expect(await evidence()).toBe(0);
  });

  it("goes with a message that lives in memory alone, acked or lost with its broker", async () => {
    const queue = broker.queue("q");
    const { submit } = client();
    for (const messageId of ["a", "b"]) {
      submit({
        type: "publish",
        exchange: "",
        routingKey: "q",
        properties: { messageId },
        body: Buffer.from("x"),
      });
      await again(queue, messageId);
      if (messageId === "a") await queue.ack("a", queue.receive()?.receipt);
    }
    expect(await evidence()).toBe(1);
    broker = open();
    expect(await evidence()).toBe(0);
  });
});

const DAY = 24 * 3_600_000;

/** A message that died, was replayed and handled: a life that is over. */
async function replayed(queue: EmbeddedQueue, ids: readonly string[]): Promise<void> {
  const dead = broker.deadLetters("dead");
  for (const id of ids) {
    const entry = { id, body: "x", reason: "permanent" as const, error: "Error: no", sourceQueue: "q" };
    void dead.put({ ...entry, attempts: 1, firstAttemptAt: now, failedAt: now });
  }
  const letters = broker.letters.page({ state: "dead" }, ids.length);
  expect((await broker.letters.replay(letters.map(({ letterId }) => letterId))).failed).toEqual([]);
  await queue.ackMany(queue.receiveMany(ids.length));
  expect(queue.pending()).toBe(0);
}

/** The broker opened anew looks after its file. */
async function reopened(): Promise<void> {
  await broker.close();
  broker = open();
}

describe("what is left of a life that is over", () => {
  it("is known for thirty days after the replay, and then forgotten", async () => {
    const queue = broker.queue("q");
    await replayed(queue, ["a"]);
    const life = { id: "b", body: "x", generation: 2 };
    await queue.send(life);
    await queue.ack("b", queue.receive()?.receipt);
    now += 30 * DAY;
    await reopened();
    const dead = broker.deadLetters("dead");
    expect(dead.has("a", 1)).toBe(true);
    expect(broker.letters.count({ state: "replayed" })).toBe(1);
    await broker.queue("q").send(life);
    expect(broker.queue("q").pending()).toBe(0);
    now += 1;
    await reopened();
    expect(broker.deadLetters("dead").has("a", 1)).toBe(false);
    expect([broker.letters.count(), broker.letters.groups()]).toEqual([0, []]);
    expect([await rows("letters"), await rows("ended"), await rows("resends")]).toEqual([0, 0, 0]);
  });

  it("stays while the letter of a later life tells of it", async () => {
    await replayed(broker.queue("q"), ["a"]);
    const entry = {
      id: "a",
      body: "x",
      reason: "permanent" as const,
      error: "Error: again",
      sourceQueue: "q",
    };
    await broker.deadLetters("dead").put({
      ...entry,
      generation: 2,
      attempts: 1,
      firstAttemptAt: now,
      failedAt: now,
    });
    now += 100 * DAY;
    await reopened();
    const [letter] = await broker.deadLetters("dead").list();
    expect([letter?.lives, letter?.earlier?.length]).toEqual([2, 1]);
    await broker.letters.replay(broker.letters.page({ state: "dead" }, 9).map(({ letterId }) => letterId));
    now += 31 * DAY;
    await reopened();
    expect(await rows("letters")).toBe(0);
  });

  it("is bounded in files of the first format, too, counted from their first opening", async () => {
    await replayed(broker.queue("q"), ["a", "b"]);
    await broker.close();
    const db = openDatabase(file);
    db.exec("DROP TABLE ended; DROP INDEX resends_by_time; ALTER TABLE resends DROP COLUMN sent_at");
    db.exec("PRAGMA user_version = 1");
    db.close();
    now += 90 * DAY;
    broker = open();
    expect(broker.letters.count({ state: "replayed" })).toBe(2);
    now += 31 * DAY;
    await reopened();
    expect([await rows("letters"), await rows("ended"), await rows("resends")]).toEqual([0, 0, 0]);
  });
});

it("a file that held ten thousand messages, what was known of them, and their lives, shrinks when all are gone", async () => {
  const queue = broker.queue("q", { messageTtl: 60_000 });
  const ids = Array.from({ length: 10_000 }, (_, n) => `${n}`);
  await queue.sendMany(ids.map((id) => ({ id, body: "x".repeat(2_000) })));
  const messages = queue.receiveMany(ids.length);
  await queue.beginMany(messages);
  await Promise.all(messages.map(({ id, receipt }) => queue.retry(id, receipt, { error: "Error: not yet" })));
  await Promise.all(ids.map((id) => queue.send({ id: `later ${id}`, body: "x", generation: 2 })));
  await broker.close();
  const filled = statSync(file).size;
  expect(filled).toBeGreaterThan(20_000_000);
  now += 31 * DAY;
  broker = open();
  await expect.poll(() => broker.queue("q").pending(), { timeout: 4_000 }).toBe(0);
  await expect.poll(() => freePages(broker), { timeout: 4_000 }).toBeLessThanOrEqual(1_024);
  await broker.close();
  expect(statSync(file).size).toBeLessThan(filled / 2);
  for (const table of ["messages", "blocks", "evidence", "resends"])
    expect([table, await rows(table)]).toEqual([table, 0]);
});

/** Pages of the file that hold nothing, seen through the broker's own connection. */
function freePages(of: EmbeddedBroker): number {
  const { db } = (of.host as unknown as { file: { db: ReturnType<typeof openDatabase> } }).file;
  return (db.prepare("PRAGMA freelist_count").get() as { freelist_count: number }).freelist_count;
}
