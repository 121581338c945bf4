/** Cases met in other people's issue trackers, by their ids, played with the command on a real data directory. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DLQConsumer, openBroker, PermanentError } from "../../../src/index.ts";
import { writeHandler } from "./handlers.ts";
import { type Ended, MAIN, Running, until } from "./spawn.ts";

let folder: string;
let started: Running[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-cases-"));
  started = [];
  writeHandler(folder);
});
afterEach(async () => {
  for (const one of started) {
    if (one.process.exitCode === null) one.process.kill("SIGKILL");
    await one.ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

const start = (args: readonly string[], stdin = ""): Running => {
  const running = new Running([MAIN, ...args], { cwd: folder, stdin });
  started.push(running);
  return running;
};
const dlo = (args: readonly string[], stdin = ""): Promise<Ended> => start(args, stdin).ended;
const json = async (args: readonly string[]) => JSON.parse((await dlo([...args, "--json"])).out);
const work = (...more: string[]): string[] => [
  "work",
  "--queue",
  "orders",
  "--handler",
  "handler.mjs",
  "--backoff",
  "10ms",
  ...more,
];
const seen = (): string[] =>
  existsSync(join(folder, "seen.log"))
    ? readFileSync(join(folder, "seen.log"), "utf8").trim().split("\n")
    : [];
const ends = (): string[] => seen().filter((line) => line.startsWith("end"));
const lines = (bodies: readonly unknown[]): string => bodies.map((body) => JSON.stringify(body)).join("\n");
const openHere = () => openBroker({ file: join(folder, ".dlo", "dlo.db") });

it("E2: a letter asked for from two processes and by a doubled id goes once; later calls say why not, and by their status", async () => {
  await dlo(["send", "orders", '{"do":"permanent"}', "--id", "m1"]);
  const worker = start(work());
  await worker.says(/message m1 is dead/);
  writeFileSync(join(folder, "fixed"), "");
  const both = await Promise.all([dlo(["replay", "m1"]), dlo(["replay", "m1", "m1", "--yes"])]);
  await until("it is handled", () => ends().length > 0);
  const [won, lost] = both.sort((a, b) => (a.status ?? 9) - (b.status ?? 9));
  expect(won).toMatchObject({ status: 0, err: "replayed 1 of 1 letter\n" });
  expect(lost).toMatchObject({
    status: 1,
    err: expect.stringMatching(/^dlo: m1: .*already.*\nreplayed 0 of 1 letter\n$/),
  });
  for (const ids of [["m1"], ["m1", "m1"]])
    expect(await dlo(["replay", ...ids, "--yes"])).toMatchObject({
      status: 1,
      err: "dlo: m1: already replayed\nreplayed 0 of 1 letter\n",
    });
  await until("nothing waits", async () => (await dlo(["status"])).out.startsWith("orders\t0\t0\t0"));
  expect(ends()).toEqual(["end m1"]);
  await worker.kill("SIGTERM");
});

it("E3: dead again after a replay is one open letter with its story, and goes back again", async () => {
  await dlo(["send", "orders", '{"do":"fail"}', "--id", "m1"]);
  await dlo(work("--until-empty"));
  const first = await json(["show", "m1"]);
  expect(await dlo(["replay", "m1"])).toMatchObject({ status: 0 });
  expect(await json(["ls"])).toEqual([]);
  expect((await json(["ls", "--state", "any"])).map((l: { state: string }) => l.state)).toEqual(["replayed"]);
  await dlo(work("--until-empty"));
  const [open, ...more] = await json(["ls"]);
  expect(more).toEqual([]);
  expect(open).toMatchObject({ id: "m1", attempts: 3, replays: 1, generation: 2 });
  const second = await json(["show", "m1"]);
  expect(second.failedAt).toBeGreaterThan(first.failedAt);
  // A5: when the first life began is still to be found.
  expect(second.earlier).toMatchObject([
    { generation: 1, attempts: 3, firstAttemptAt: first.firstAttemptAt },
  ]);
  writeFileSync(join(folder, "fixed"), "");
  expect(await dlo(["replay", "m1"])).toMatchObject({ status: 0, err: "replayed 1 of 1 letter\n" });
  await dlo(work("--until-empty"));
  expect([seen().length, ends()]).toEqual([8, ["end m1"]]);
  expect(await json(["ls"])).toEqual([]);
});

it("E6: what has no queue to go to stays, is named, and the status says that not all were sent", async () => {
  const broker = openHere();
  const channel = await broker.createConfirmChannel();
  await channel.assertExchange("events", "topic");
  const queues = ["unbound", "gone", "good"];
  for (const queue of queues) {
    await channel.assertQueue(queue);
    await channel.bindQueue(queue, "events", `${queue}.key`);
    channel.publish("events", `${queue}.key`, Buffer.from(queue), { messageId: queue, persistent: true });
    await channel.waitForConfirms();
    const dead = broker.deadLetters(`${queue}.dead`);
    const consumer = new DLQConsumer(broker.queue(queue), dead, () => {
      throw new PermanentError("no");
    });
    expect(await consumer.processOne()).toBe("dead");
  }
  await channel.unbindQueue("unbound", "events", "unbound.key");
  await channel.deleteQueue("gone");
  await broker.close();
  const asked = await dlo(["replay", ...queues, "--yes"]);
  expect(asked.status).toBe(3);
  expect(asked.err).toContain("dlo: gone: there is no queue 'gone'\n");
  // By the queue it failed in, not by the exchange: a binding that is gone is not in the way.
  expect(asked.err).toContain("replayed 2 of 3 letters\n");
  expect((await json(["ls"])).map((l: { id: string }) => l.id)).toEqual(["gone"]);
  expect((await dlo(["show", "gone", "--raw"])).out).toBe("gone");
  const waiting = (await json(["status"])).queues.map((q: { queue: string; waiting: number }) => [
    q.queue,
    q.waiting,
  ]);
  expect(waiting).toEqual(
    expect.arrayContaining([
      ["unbound", 1],
      ["good", 1],
    ]),
  );
  expect(await dlo(["replay", "gone"])).toMatchObject({
    status: 1,
    err: expect.stringMatching(/'gone'.*\n.* 0 of 1/),
  });
});

it("H4: 525 failures of three causes are three groups, and the first one goes back whole", async () => {
  const broker = openHere();
  const queue = broker.queue("orders");
  const sent = Array.from({ length: 525 }, (_, n) => ({ id: `m${n}`, body: { n } }));
  await queue.sendMany(sent);
  const dead = broker.deadLetters("orders.dead");
  const notFound = (n: number): never => {
    const at = new Date(1_700_000_000_000 + n * 1_234).toISOString();
    const id = `0190${n.toString(16).padStart(4, "0")}-7000-7000-8000-${n.toString().padStart(12, "0")}`;
    throw new PermanentError(`Order ${n * 7} not found at ${at} (req ${id})`);
  };
  const consumer = new DLQConsumer(queue, dead, ({ body }) => {
    const { n } = body as { n: number };
    if (n < 500) notFound(n);
    const error = new PermanentError(n < 520 ? `no stock for "sku-${n}"` : `gone ${n}`);
    if (n >= 520) delete error.stack;
    throw error;
  });
  for (let n = 0; n < 525; n++) expect(await consumer.processOne()).toBe("dead");
  await broker.close();
  const groups = (await json(["groups"])) as { fingerprint: string; title: string; count: number }[];
  expect(groups.map(({ title, count }) => [title, count])).toEqual([
    ["PermanentError: Order <n> not found at <time> (req <uuid>)", 500],
    ["PermanentError: no stock for <text>", 20],
    ["PermanentError: gone <n>", 5],
  ]);
  const group = groups[0]?.fingerprint.slice(0, 8) as string;
  expect(await dlo(["replay", "--group", group, "--yes"])).toMatchObject({
    status: 0,
    err: "replayed 500 of 500 letters\n",
  });
  expect((await dlo(["status"])).out).toBe("orders\t500\t0\t0\t25\n");
});

describe("F3", () => {
  it("over 20 deploys by SIGTERM each message is handled once, and the worker is gone in time", async () => {
    const many = Array.from({ length: 110 }, (_, n) => ({ id: `m${n}`, do: "wait", ms: 300 }));
    await dlo(["send", "orders", "-", "--id-from", "id", "-q"], lines(many));
    const took: number[] = [];
    for (let deploy = 0; deploy < 20; deploy++) {
      const before = seen().length;
      const worker = start(work("--concurrency", "5", "--isolate", deploy % 2 === 0 ? "none" : "process"));
      await until("it works", () => seen().length > before);
      await new Promise((done) => setTimeout(done, 100));
      const from = performance.now();
      expect(await worker.kill("SIGTERM")).toMatchObject({ status: 0 });
      took.push(performance.now() - from);
    }
    expect(await dlo(work("--until-empty", "--concurrency", "5"))).toMatchObject({ status: 0 });
    const starts = seen().filter((line) => line.startsWith("start"));
    for (const lines of [starts, ends()]) expect([lines.length, new Set(lines).size]).toEqual([110, 110]);
    // Half of them: a busy machine may hold up a few.
    expect(took.sort((a, b) => a - b)[10]).toBeLessThan(2_000);
  });
});
