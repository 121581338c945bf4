import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Committer } from "../../../src/engines/embedded/committer.ts";
import { type Database, openDatabase } from "../../../src/engines/embedded/sqlite.ts";
import { type DeadLetter, DLQConsumer, openBroker, PermanentError } from "../../../src/index.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-review-"));
  file = join(folder, "data.db");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function letter(id: string, more: Partial<DeadLetter> = {}): DeadLetter {
  return {
    id,
    body: { of: id },
    reason: "exhausted",
    error: "TimeoutError: no answer",
    attempts: 3,
    firstAttemptAt: 1000,
    failedAt: 2000,
    generation: 1,
    sourceQueue: "orders",
    ...more,
  };
}

const dbOf = (broker: unknown): Database => (broker as { host: { file: { db: Database } } }).host.file.db;

/** Keeps the event loop busy, as work in one turn does. */
function busy(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !holds(); i++) await new Promise((resolve) => setTimeout(resolve, 20));
  expect(holds()).toBe(true);
}

describe("messages that share an id", () => {
  it("are all sent by a replay: two letters of one id and life with different bodies", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue("orders");
    const dead = broker.deadLetters("dlq");
    for (const body of ["one", "two"]) await dead.put(letter("a", { body }));
    const ids = broker.letters.page({}, 9).map((one) => one.letterId);
    expect((await broker.letters.replay(ids)).done).toEqual(ids);
    expect(queue.receiveMany(9).map((one) => one.body)).toEqual(["one", "two"]);
  });

  it("are all sent by the consumer's own replay as well", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue("orders");
    const dead = broker.deadLetters("dlq");
    for (const body of ["one", "two"]) await dead.put(letter("a", { body }));
    await new DLQConsumer(queue, dead, () => {}).replay(["a"]);
    const bodies = queue.receiveMany(9).map((one) => one.body as string);
    expect(bodies.sort()).toEqual(["one", "two"]);
  });

  it("are all sent by the consumer's own replay to a queue of another broker", async () => {
    await using broker = openBroker(":memory:");
    await using other = openBroker(":memory:");
    const dead = broker.deadLetters("dlq");
    for (const body of ["one", "two"]) await dead.put(letter("a", { body }));
    const queue = other.queue("orders");
    expect(await new DLQConsumer(queue, dead, () => {}).replay()).toEqual(["a", "a"]);
    expect(queue.receiveMany(9).map((one) => one.body)).toEqual(["one", "two"]);
  });

  it("do not end each other's letters: one is replayed and handled, the other one stays", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue("orders");
    const dead = broker.deadLetters("dlq");
    for (const body of ["one", "two"]) await dead.put(letter("a", { body }));
    const second = broker.letters.page({}, 9)[1]?.letterId as string;
    await broker.letters.replay([second]);
    expect(await new DLQConsumer(queue, dead, () => {}).processOne()).toBe("ok");
    expect(dead.list().map(({ body }) => body)).toEqual(["one"]);
    await dead.put(letter("a", { body: "two", generation: 2 }));
    expect(dead.list().map(({ body }) => body)).toEqual(["one", "two"]);
  });

  it("are all sent to one other queue: letters of two queues that took the same event", async () => {
    await using broker = openBroker(":memory:");
    const triage = broker.queue("triage");
    await broker.deadLetters("dlq").put(letter("event", { sourceQueue: "billing" }));
    await broker.deadLetters("dlq").put(letter("event", { sourceQueue: "shipping" }));
    const ids = broker.letters.page({}, 9).map((one) => one.letterId);
    expect((await broker.letters.replay(ids, { to: "triage" })).done).toEqual(ids);
    expect(triage.receiveMany(9)).toHaveLength(2);
  });

  it("are handled when the letter of the first was replayed long ago and the body is another", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue<string>("orders");
    const dead = broker.deadLetters<string>("dlq");
    const seen: string[] = [];
    let fails = true;
    const consumer = new DLQConsumer(queue, dead, ({ body }) => {
      seen.push(body);
      if (fails) throw new PermanentError("no");
    });
    await queue.send("monday", "report");
    expect(await consumer.processOne()).toBe("dead");
    fails = false;
    await consumer.replay();
    expect(await consumer.processOne()).toBe("ok");
    await queue.send("tuesday", "report");
    expect(await consumer.processOne()).toBe("ok");
    expect(seen).toEqual(["monday", "monday", "tuesday"]);
    // A late copy of the first life is still known.
    await queue.send("monday", "report");
    expect(await consumer.processOne()).toBe("dead");
    expect(seen).toHaveLength(3);
  });

  it("are handled after remove(id), also where an earlier life was replayed", async () => {
    await using broker = openBroker(":memory:");
    const dead = broker.deadLetters("dlq");
    await dead.put(letter("a"));
    await dead.remove("a", 1);
    await dead.put(letter("a", { generation: 2 }));
    expect(dead.has("a", 1, { of: "a" })).toBe(true);
    await dead.remove("a");
    expect(dead.has("a", 1, { of: "a" })).toBe(false);
    expect(dead.list()).toEqual([]);
  });

  it("are known by value where the sender spelt its JSON in another way", async () => {
    await using broker = openBroker(":memory:");
    const dead = broker.deadLetters("dlq");
    const raw = Buffer.from('{ "price" : 1.0 }');
    await dead.put(letter("a", { body: { price: 1 }, raw, properties: { contentType: "application/json" } }));
    expect(dead.has("a", 1, { price: 1 })).toBe(true);
    await dead.remove("a", 1);
    expect(dead.has("a", 1, { price: 1 })).toBe(true);
    expect(dead.has("a", 1, { price: 2 })).toBe(false);
  });
});

it("a message without an id never gets the name of an earlier one, also if that was transient", async () => {
  const names: string[] = [];
  for (let life = 0; life < 3; life++) {
    await using broker = openBroker({ file });
    const queue = broker.queue("orders");
    const channel = await broker.createConfirmChannel();
    channel.sendToQueue("orders", Buffer.from("x"), { persistent: false });
    await channel.waitForConfirms();
    const consumer = new DLQConsumer(queue, broker.deadLetters("dlq"), ({ id }) => {
      names.push(id);
      throw new PermanentError("no");
    });
    expect(await consumer.processOne()).toBe("dead");
  }
  expect(new Set(names).size).toBe(3);
});

it("a queue that exists is opened by whoever does not want to make it", async () => {
  await using broker = openBroker(":memory:");
  await broker.queue("orders").send("x");
  expect(broker.queue("orders", { create: false }).receive()?.body).toBe("x");
  expect(() => broker.queue("nowhere", { create: false })).toThrow("no queue 'nowhere'");
  expect(() => broker.queue("orders", { create: false, maxLength: 7 })).toThrow("orders");
});

it("a letter shares no body with a message that goes on in another queue", async () => {
  const settings = { file, clock: { now: Date.now } };
  let id = "";
  {
    await using broker = openBroker(settings);
    const channel = await broker.createConfirmChannel();
    await channel.assertExchange("dlx", "fanout");
    await channel.assertQueue("work", { deadLetterExchange: "dlx" });
    await channel.assertQueue("open");
    await channel.assertQueue("full", { maxLength: 0, arguments: { "x-overflow": "reject-publish" } });
    for (const queue of ["open", "full"]) await channel.bindQueue(queue, "dlx", "");
    channel.sendToQueue("work", Buffer.from("precious"), { persistent: true });
    await channel.waitForConfirms();
    const got = await channel.get("work");
    if (got === false) throw new Error("nothing there");
    channel.nack(got, false, false);
    await channel.waitForConfirms();
    await until(() => broker.letters.count() === 1);
    id = broker.letters.page({}, 9)[0]?.letterId as string;
    await broker.letters.replay([id], { to: "open" });
  }
  await using again = openBroker(settings);
  const bodies = again
    .queue("open", { create: false })
    .receiveMany(9)
    .map((one) => Buffer.from(one.raw as Uint8Array).toString());
  expect(bodies).toEqual(["precious", "precious"]);
});

it("what another one replays or discards between the parts of a long replay is left as it is", async () => {
  await using broker = openBroker(":memory:");
  const orders = broker.queue("orders");
  const other = broker.queue("other");
  const dead = broker.deadLetters("dlq");
  await Promise.all(Array.from({ length: 203 }, (_, i) => dead.put(letter(`m${i}`))));
  const ids = broker.letters.page({}, 300).map((one) => one.letterId);
  const [all, one, trash] = await Promise.all([
    broker.letters.replay(ids),
    broker.letters.replay([ids[201] as string], { to: "other" }),
    broker.letters.discard([ids[202] as string]),
  ]);
  expect(one.done).toHaveLength(1);
  expect(trash.done).toHaveLength(1);
  expect(all.done).toHaveLength(201);
  expect(all.failed.map(({ why }) => why)).toEqual(["it is replayed already", "it is discarded already"]);
  expect([orders.pending(), other.pending()]).toEqual([201, 1]);
  expect([broker.letters.count({ state: "replayed" }), broker.letters.count({ state: "discarded" })]).toEqual(
    [202, 1],
  );
});

describe("the committer", () => {
  it("syncs the transaction of a confirmed message also where its own confirm cuts the turn", async () => {
    await using broker = openBroker({ file });
    const queue = broker.queue("orders");
    await queue.send("first");
    const held = queue.receive();
    const channel = await broker.createConfirmChannel();
    const db = dbOf(broker);
    let mode = "FULL"; // The first message was sent so.
    const commits: string[] = [];
    const exec = db.exec.bind(db);
    db.exec = (sql: string) => {
      if (sql.startsWith("PRAGMA synchronous")) mode = sql.slice(sql.lastIndexOf(" ") + 1);
      exec(sql);
    };
    const commit = db.prepare("COMMIT");
    const run = commit.run.bind(commit);
    commit.run = () => {
      const row = db.prepare("SELECT count(*) AS n FROM messages").get() as { n: number };
      commits.push(`${mode} ${row.n}`);
      return run();
    };
    const acked = queue.ack(held?.id as string, held?.receipt);
    busy(8);
    channel.sendToQueue("orders", Buffer.from("second"), { persistent: true });
    await channel.waitForConfirms();
    await acked;
    expect(commits.at(0)).toMatch(/^FULL/);
  });

  it("goes on after a full disk when letters were moved meanwhile", async () => {
    await using broker = openBroker({ file, clock: { now: Date.now } });
    const queue = broker.queue<string>("q");
    const dead = broker.deadLetters("dlq");
    await dead.put(letter("a"));
    const db = dbOf(broker);
    db.exec("PRAGMA max_page_count = 60");
    let code = "";
    for (let i = 0; i < 400 && code === ""; i++)
      await queue.send("x".repeat(2000)).catch((error) => (code = (error as { code: string }).code));
    expect(code).toBe("DISK_FULL");
    await broker.letters.discard(["a"]).catch((error) => expect(error.code).toBe("DISK_FULL"));
    db.exec("PRAGMA max_page_count = 100000");
    await until(() => broker.host.alarms?.().length === 0);
    await queue.send("after");
    expect(broker.letters.count({ state: "discarded" })).toBe(1);
  });

  it("tells everybody, whatever one of them does when told", async () => {
    const db = openDatabase(":memory:");
    db.exec("CREATE TABLE meta (key TEXT PRIMARY KEY, value)");
    const committer = new Committer(db, ":memory:", "full", undefined);
    const faults: unknown[] = [];
    const listeners = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.once("uncaughtException", (error) => faults.push(error));
    try {
      const told: string[] = [];
      committer.after(() => {
        throw new Error("a consumer's callback");
      });
      await new Promise<void>((resolve) => {
        committer.after(() => {
          told.push("second");
          resolve();
        });
      });
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(told).toEqual(["second"]);
      expect(String(faults)).toBe("Error: a consumer's callback");
    } finally {
      for (const listener of listeners) process.on("uncaughtException", listener);
      db.close();
    }
  });
});

it("a letter of another virtual host goes back there, not to the queue of the same name in this one", async () => {
  await using broker = openBroker(":memory:");
  const own = broker.queue("orders");
  const tenant = broker.vhost("tenant").queue("orders");
  await tenant.send("theirs", "a");
  const dead = broker.deadLetters("dlq");
  const fail = () => {
    throw new PermanentError("no");
  };
  expect(await new DLQConsumer(tenant, dead, fail).processOne()).toBe("dead");
  const letter = broker.letters.page({}, 1)[0];
  expect(letter?.sourceQueue).toBe("tenant/orders");
  expect((await broker.letters.replay(["a"])).done).toEqual(["a"]);
  expect([own.pending(), tenant.pending()]).toEqual([0, 1]);
  expect(tenant.receive()?.body).toBe("theirs");
});

it("a handle on a deleted virtual host takes nothing more, and a new one of that name is another", async () => {
  await using broker = openBroker({ file });
  const old = broker.vhost("tenant").queue("orders");
  await old.send("x");
  broker.host.deleteVhost?.("tenant");
  await expect(old.send("y")).rejects.toMatchObject({ code: "NOT_FOUND" });
  const fresh = broker.vhost("tenant").queue("orders");
  expect(fresh.pending()).toBe(0);
  await fresh.send("z");
  expect(fresh.receive()?.body).toBe("z");
});

it("a text with a NUL in it is whole after a restart: names, ids and errors", async () => {
  const id = "a\0b\ufdd0c\ufdd00";
  let broker = openBroker({ file });
  const channel = await broker.createConfirmChannel();
  for (const queue of ["q", "q\0x"]) await channel.assertQueue(queue);
  channel.sendToQueue("q\0x", Buffer.from("x"), { messageId: id, persistent: true });
  await channel.waitForConfirms();
  const reopened = async () => {
    await broker.close();
    broker = openBroker({ file });
    const queue = broker.queue("q\0x", { create: false });
    const dead = broker.deadLetters("dead\0letters");
    const seen: string[] = [];
    const consumer = new DLQConsumer(queue, dead, (message) => {
      seen.push(message.id);
      if (message.generation === 1) throw new PermanentError("a byte \0 that is not text");
    });
    return { queue, dead, seen, consumer };
  };
  const first = await reopened();
  expect([await first.consumer.processOne(), first.seen]).toEqual(["dead", [id]]);
  const { dead, consumer } = await reopened();
  expect(broker.queue("q").pending()).toBe(0);
  expect(dead.list()).toMatchObject([
    { id, sourceQueue: "q\0x", error: "PermanentError: a byte \0 that is not text" },
  ]);
  expect([dead.has(id, 1), dead.has("a", 1)]).toEqual([true, false]);
  expect(broker.letters.page({ ids: [id] }, 9)).toHaveLength(1);
  expect(broker.letters.groups()).toMatchObject([{ queues: ["q\0x"] }]);
  expect(await consumer.replay([id])).toEqual([id]);
  const last = await reopened();
  expect([await last.consumer.processOne(), last.seen, last.queue.pending()]).toEqual(["ok", [id], 0]);
  await broker.close();
});
