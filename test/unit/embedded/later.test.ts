// Settlements of clients may be written a moment later. What a process that dies in that moment leaves is looked at
// in a copy of the file and its log, taken while the broker runs.
import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Effect, HeaderTable, type HostSink, type Reply } from "../../../src/broker/index.ts";
import type { Host } from "../../../src/engines/embedded/host.ts";
import type { Durability } from "../../../src/engines/embedded/index.ts";
import { type EmbeddedBroker, openBroker } from "../../../src/engines/embedded/index.ts";
import { LATER_MOST, LATER_MS, Later } from "../../../src/engines/embedded/later.ts";

let folder: string;
let copies = 0;
beforeEach(() => {
  // The moment lasts until the test says that it is over.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  folder = mkdtempSync(join(tmpdir(), "dlo-later-"));
});
afterEach(() => {
  vi.useRealTimers();
  rmSync(folder, { recursive: true, force: true });
});

const tablesOf = (broker: EmbeddedBroker) => (broker.host as Host).file.db;
type Got = Extract<Reply, { type: "got" }>;
const TO_DEAD = HeaderTable.fromObject({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead" });

/** A client of the broker, as the AMQP server has them; `work` dead-letters to `dead`. */
class Client {
  readonly heard: Effect[] = [];
  readonly #connection;
  readonly #channel: number;

  constructor(broker: EmbeddedBroker) {
    const sink: HostSink = {
      effect: (effect) => void this.heard.push(effect),
      flush: () => {},
      ended: () => {},
    };
    const vhost = broker.host.vhost("/");
    if (vhost === undefined) throw new Error("no virtual host");
    this.#connection = vhost.connect(sink);
    this.#channel = this.#connection.openChannel();
  }

  declare(queue: string, table = HeaderTable.empty): void {
    this.do({ type: "queue-declare", queue, durable: true, arguments: table });
  }

  // biome-ignore lint/suspicious/noExplicitAny: a command without its channel
  do(command: any): Reply {
    return this.#connection.submit({ ...command, channel: this.#channel });
  }

  send(queue: string, count: number): void {
    for (let i = 0; i < count; i++) {
      const properties = { deliveryMode: 2, messageId: `m${i}` };
      this.do({
        type: "publish",
        exchange: "",
        routingKey: queue,
        properties,
        body: Buffer.from(`body ${i}`),
      });
    }
  }

  get(queue: string, noAck = false): Got | null {
    const reply = this.do({ type: "get", queue, noAck });
    return reply.type === "got" ? reply : null;
  }

  written(): Promise<void> {
    return new Promise((done) => this.#connection.afterCommit(done));
  }
}

function open(durability: Durability = "full"): { broker: EmbeddedBroker; client: Client } {
  const broker = openBroker({ file: join(folder, "data.db"), durability });
  const client = new Client(broker);
  client.declare("work", TO_DEAD);
  client.declare("dead");
  return { broker, client };
}

/** One commit has passed; nobody asked for anything. */
const turn = (): Promise<void> => new Promise((done) => setImmediate(() => setImmediate(done)));

/** What would be left in a queue if the process died now: ids, `*` where it was delivered before. */
async function left(queue: string): Promise<string[]> {
  const file = join(folder, `copy${copies++}.db`);
  copyFileSync(join(folder, "data.db"), file);
  if (existsSync(join(folder, "data.db-wal"))) copyFileSync(join(folder, "data.db-wal"), `${file}-wal`);
  await using broker = openBroker({ file });
  const client = new Client(broker);
  const ids: string[] = [];
  for (let got = client.get(queue, true); got !== null; got = client.get(queue, true)) {
    expect(Buffer.from(got.content.body).toString()).toBe(
      `body ${got.content.properties.messageId?.slice(1)}`,
    );
    ids.push(`${got.content.properties.messageId}${got.redelivered ? "*" : ""}`);
  }
  return ids;
}

it("writes an ack a moment later: until then a crash brings the message again, known as delivered", async () => {
  const { broker, client } = open();
  client.send("work", 3);
  const got = client.get("work");
  await client.written();
  client.do({ type: "ack", deliveryTag: got?.deliveryTag });
  await turn();
  expect(await left("work")).toEqual(["m0*", "m1", "m2"]);
  vi.advanceTimersByTime(LATER_MS);
  await turn();
  expect(await left("work")).toEqual(["m1", "m2"]);
  await broker.close();
});

it("writes what was settled before anybody is answered", async () => {
  const { broker, client } = open();
  client.send("work", 2);
  const got = client.get("work");
  await client.written();
  client.do({ type: "ack", deliveryTag: got?.deliveryTag });
  await client.written();
  expect(await left("work")).toEqual(["m1"]);
  await broker.close();
});

it("writes it with the turn at durability strict", async () => {
  const { broker, client } = open("strict");
  client.send("work", 2);
  const got = client.get("work");
  await client.written();
  client.do({ type: "ack", deliveryTag: got?.deliveryTag });
  await turn();
  expect(await left("work")).toEqual(["m1"]);
  await broker.close();
});

it("writes it at once when many wait", async () => {
  const { broker, client } = open();
  client.send("work", LATER_MOST + 5);
  for (let i = 0; i < LATER_MOST; i++) client.get("work");
  await client.written();
  client.do({ type: "ack", deliveryTag: LATER_MOST - 1, multiple: true });
  await turn();
  expect(await left("work")).toHaveLength(LATER_MOST + 5);
  client.do({ type: "ack", deliveryTag: LATER_MOST });
  await turn();
  expect(await left("work")).toEqual([200, 201, 202, 203, 204].map((n) => `m${n}`));
  await broker.close();
});

it("writes it when the broker closes, and leaves no row behind", async () => {
  const { broker, client } = open();
  client.send("work", 2);
  const got = client.get("work");
  await client.written();
  client.do({ type: "ack", deliveryTag: got?.deliveryTag });
  await broker.close();
  expect(await left("work")).toEqual(["m1"]);
  await using again = openBroker({ file: join(folder, "data.db") });
  expect(tablesOf(again).prepare("SELECT count(*) AS n FROM messages").get()).toEqual({ n: 1 });
});

it("has a rejected message in one queue at any time, and moves it before anybody is given it there", async () => {
  const { broker, client } = open();
  client.send("work", 3);
  for (let i = 0; i < 2; i++) client.get("work");
  await client.written();
  client.do({ type: "reject", deliveryTag: 1, requeue: false });
  client.do({ type: "nack", deliveryTag: 2, requeue: false });
  await turn();
  expect([await left("work"), await left("dead")]).toEqual([["m0*", "m1*", "m2"], []]);
  expect(client.get("dead")?.content.properties.messageId).toBe("m0");
  await turn();
  expect([await left("work"), await left("dead")]).toEqual([["m2"], ["m0*", "m1"]]);
  await broker.close();
});

it("moves a rejected message at once when a consumer takes it there", async () => {
  const { broker, client } = open();
  client.send("work", 1);
  client.get("work");
  client.do({ type: "consume", queue: "dead", consumerTag: "c" });
  await client.written();
  client.do({ type: "reject", deliveryTag: 1, requeue: false });
  await turn();
  expect(client.heard.filter((effect) => effect.type === "deliver")).toHaveLength(1);
  expect([await left("work"), await left("dead")]).toEqual([[], ["m0*"]]);
  await broker.close();
});

it("lets nothing wait where somebody else is given a message by the same command and keeps no hold on it", () => {
  const gone = (seq: number) => ({ type: "message-gone", queueId: 1, seq }) as const;
  const deliver = { type: "deliver", queueId: 1 } as Effect;
  const put = { type: "message-put", queueId: 2, from: { queueId: 1, seq: 1 } } as Effect;
  const handed = (queueId: number) => ({ type: "queue-handed", queueId, upTo: 9 }) as const;
  const later = new Later();
  expect(later.take([gone(1), deliver, gone(2)], false)).toBe(null);
  // A dead letter in memory alone; one that is handed out in its new queue; one that was lost.
  expect(later.take([gone(1), handed(1), deliver], true)).toBe(null);
  expect(later.take([put, gone(1), handed(2), { ...deliver, queueId: 2 } as Effect], true)).toBe(null);
  expect(later.take([{ type: "lost" } as Effect, gone(1)], true)).toBe(null);
  expect(later.size).toBe(0);
  expect(later.take([put, gone(1), handed(1), deliver], true)).toEqual([handed(1), deliver]);
  expect(later.size).toBe(2);
  expect([1, 2].map((queueId) => later.precede(handed(queueId)))).toEqual([false, true]);
  expect(later.precede({ type: "queue-gone", queueId: 1 })).toBe(true);
  expect(later.drain()).toEqual([put, gone(1)]);
  expect(later.precede(handed(2))).toBe(false);
});

it("deletes and purges queues whose messages were just settled, without leaving rows", async () => {
  const { broker, client } = open();
  client.send("work", 4);
  for (let i = 0; i < 2; i++) client.get("work");
  await client.written();
  client.do({ type: "ack", deliveryTag: 1 });
  client.do({ type: "reject", deliveryTag: 2, requeue: false });
  client.do({ type: "queue-purge", queue: "work" });
  client.do({ type: "queue-delete", queue: "work" });
  client.do({ type: "queue-delete", queue: "dead" });
  await client.written();
  expect(tablesOf(broker).prepare("SELECT count(*) AS n FROM messages").get()).toEqual({ n: 0 });
  await broker.close();
});

it("commits a transaction of a client whole and at once", async () => {
  const { broker, client } = open();
  client.send("work", 2);
  client.get("work");
  client.do({ type: "tx-select" });
  await client.written();
  client.do({ type: "ack", deliveryTag: 1 });
  client.do({ type: "tx-commit" });
  await turn();
  expect(await left("work")).toEqual(["m1"]);
  await broker.close();
});

it("knows of a message that came and went out in one turn that it was delivered, without a word in its queue's row", async () => {
  const { broker, client } = open();
  client.do({ type: "qos", prefetchCount: 2 });
  client.do({ type: "consume", queue: "work", consumerTag: "c" });
  await client.written();
  client.send("work", 3);
  await client.written();
  const row = tablesOf(broker).prepare("SELECT delivered FROM queues WHERE name = 'work'").get();
  expect(row).toEqual({ delivered: 0 });
  expect(await left("work")).toEqual(["m0*", "m1*", "m2"]);
  // What goes out in a later turn is marked there.
  client.do({ type: "ack", deliveryTag: 1 });
  await client.written();
  expect(await left("work")).toEqual(["m1*", "m2*"]);
  await broker.close();
});
