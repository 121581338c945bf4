import { mkdtempSync, rmSync } from "node:fs";
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
