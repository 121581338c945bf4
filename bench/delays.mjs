// How late delayed messages come: broker.delay of the embedded broker (in process) beside RabbitMQ's way, a TTL queue
// that dead-letters into the work queue (through amqplib), in turn in one run. Five rounds warm both up and are not
// counted: a thousand messages are few for a compiler that learns from what it sees, and a broker runs for weeks. Build dist/ first. JSON lines go to stdout. usage: node bench/delays.mjs [--quick]
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import amqplib from "amqplib";
import { openBroker } from "../dist/engines/embedded/index.js";
import { freshVhost, sharedRabbit } from "../test/support/rabbitmq-node.mjs";

const ROUNDS = process.argv.includes("--quick") ? 1 : 3;
const WARM_UP = 5;
const LEAD_MS = 1_500;
const body = (n) => ({ n, pad: "x".repeat(1_000) });
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const now = () => performance.timeOrigin + performance.now();
let made = 0;

/** ms after its time each of `count` messages came; `at(n)` is when message n is due. */
function lateness(count, at) {
  const late = [];
  let finish;
  const all = new Promise((done) => {
    finish = done;
  });
  const came = (n) => {
    late.push(now() - at(n));
    if (late.length === count) finish(late.sort((a, b) => a - b));
  };
  return { came, all };
}

async function embedded(broker, count, dueAfterMs) {
  const queue = `q${++made}`;
  const due = now() + LEAD_MS;
  const at = (n) => due + dueAfterMs(n);
  broker.queue(queue);
  await Promise.all(Array.from({ length: count }, (_, n) => broker.delay(queue, body(n), { at: at(n) })));
  const { came, all } = lateness(count, at);
  const channel = await broker.createChannel();
  await channel.consume(queue, (message) => {
    came(JSON.parse(message.content.toString()).n);
    channel.ack(message);
  });
  const late = await all;
  await channel.close();
  return late;
}

async function rabbitmq(connection, count, paceMs) {
  const queue = `q${++made}`;
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(queue);
  await channel.assertQueue(`${queue}.wait`, {
    arguments: {
      "x-message-ttl": LEAD_MS,
      "x-dead-letter-exchange": "",
      "x-dead-letter-routing-key": queue,
    },
  });
  const dueAt = [];
  const { came, all } = lateness(count, (n) => dueAt[n]);
  await channel.consume(queue, (message) => {
    came(JSON.parse(message.content.toString()).n);
    channel.ack(message);
  });
  const from = now();
  for (let n = 0; n < count; n++) {
    while (now() < from + n * paceMs) await new Promise((done) => setImmediate(done));
    dueAt[n] = now() + LEAD_MS;
    channel.sendToQueue(`${queue}.wait`, Buffer.from(JSON.stringify(body(n))), { persistent: true });
  }
  const late = await all;
  await channel.close();
  return late;
}

const folder = mkdtempSync(join(tmpdir(), "dlo-bench-"));
const broker = openBroker({ file: join(folder, "data.db") });
const server = await sharedRabbit();
const vhost = server && (await freshVhost(server, "bench"));
const connection = vhost && (await amqplib.connect(vhost.url, { noDelay: true }));

const ROWS = [
  { row: "delay lateness, 1,000 due at once", count: 1_000, paceMs: 0, must: 0.2, moonshot: 0.1 },
  { row: "delay lateness, 500 a second", count: 1_000, paceMs: 2, must: 0.25, moonshot: 0.1 },
];
for (const { row, count, paceMs, must, moonshot } of ROWS) {
  const seen = { embedded: [], rabbitmq: [] };
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    const ours = await embedded(broker, count, (n) => n * paceMs);
    const theirs = connection ? await rabbitmq(connection, count, paceMs) : null;
    if (round < 0) continue;
    seen.embedded.push(ours);
    if (theirs) seen.rabbitmq.push(theirs);
  }
  const figure = (lists, q) =>
    Number(median(lists.map((list) => list[Math.floor((list.length - 1) * q)])).toFixed(1));
  const p99 = figure(seen.embedded, 0.99);
  const peer = connection ? figure(seen.rabbitmq, 0.99) : null;
  console.log(
    JSON.stringify({
      bench: "delays",
      row,
      p50: figure(seen.embedded, 0.5),
      p99,
      rabbitmqP50: connection ? figure(seen.rabbitmq, 0.5) : null,
      rabbitmqP99: peer,
      ratio: peer === null ? null : Number((p99 / peer).toFixed(2)),
      must,
      moonshot,
    }),
  );
}
// Delays of every length, the longest sent first: RabbitMQ has no way to do this in one queue, so there is no peer.
const mixed = [];
for (let round = 0; round <= ROUNDS; round++) {
  const late = await embedded(broker, 1_000, (n) => ((1_000 - n) * 3_777) % 3_000);
  if (round > 0) mixed.push(late.at(-1));
}
const latest = Number(Math.max(...mixed).toFixed(1));
console.log(
  JSON.stringify({ bench: "delays", row: "mixed delays, latest (ms)", latest, must: 20, moonshot: 10 }),
);
await broker.close();
await connection?.close();
await vhost?.drop();
rmSync(folder, { recursive: true, force: true });
process.exit(0);
