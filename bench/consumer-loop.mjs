// What Consumer itself costs a message: its loop beside bare calls of the same ports (receive, begin where there is
// one, the handler, ack), many in flight, over a queue in memory and over the embedded engine in memory. The figure is
// CPU time of this process, not the clock's: other work on the machine does not count in it. Build dist/ first.
// JSON lines go to stdout, a table to stderr. usage: node bench/consumer-loop.mjs [--quick] [name of a row's start ...]
import { setImmediate as turn } from "node:timers/promises";
import { openBroker } from "../dist/engines/embedded/index.js";
import { Consumer, MemoryDLQ, MemoryQueue, PermanentError } from "../dist/index.js";

const quick = process.argv.includes("--quick");
const only = process.argv.slice(2).filter((word) => !word.startsWith("-"));
const COUNT = quick ? 2_000 : 10_000;
const ROUNDS = quick ? 3 : 7;
const CONCURRENCY = 100;
/** A trivial handler costs the loop at most this much, microseconds of CPU a message. */
const MUST = 8;
const body = { order: 17, pad: "x".repeat(1_000) };
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const micros = (number) => Math.round(number * 10) / 10;

/** Microseconds of CPU a message. */
async function cost(work) {
  globalThis.gc?.();
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / COUNT;
}

/** The loop one would write by hand: no counting of failures, no dead letters, no stop, no suspects. */
async function bare(queue, handler) {
  let running = 0;
  let wake;
  const one = async (message) => {
    const { id, receipt } = message;
    const started = queue.begin === undefined ? message : await queue.begin(id, receipt);
    await handler(started);
    const acked = queue.ack(id, receipt);
    if (acked !== undefined) await acked;
    running--;
    wake?.();
  };
  for (;;) {
    while (running < CONCURRENCY) {
      const message = queue.receive();
      if (message === null) {
        if (running === 0) return;
        break;
      }
      running++;
      void one(message);
    }
    await new Promise((done) => {
      wake = done;
    });
  }
}

const through = (queue, deadLetters, handler, more) =>
  new Consumer({ queue, deadLetters, handler, concurrency: CONCURRENCY, logger: null, ...more }).run({
    until: "idle",
  });

function memory() {
  const queue = new MemoryQueue();
  const deadLetters = new MemoryDLQ();
  const load = () => {
    for (let n = 0; n < COUNT; n++) queue.send(body);
  };
  return { queue, deadLetters, load, close: () => {} };
}

function embedded() {
  const broker = openBroker({ file: ":memory:" });
  const queue = broker.queue("work");
  const load = async () => {
    for (let n = 0; n < COUNT; n += 1_000) await queue.sendMany(Array(1_000).fill({ body }));
  };
  return { queue, deadLetters: broker.deadLetters("work.dead"), load, close: () => broker.close() };
}

const handler = async () => {};
const failing = async () => {
  throw new PermanentError("price is negative");
};

const ROWS = [
  { row: "memory", make: memory, must: MUST, handler },
  { row: "memory, timeoutMs", make: memory, must: MUST, handler, more: { timeoutMs: 30_000 } },
  { row: "embedded", make: embedded, must: MUST, handler },
  { row: "embedded, timeoutMs", make: embedded, must: MUST, handler, more: { timeoutMs: 30_000 } },
  { row: "embedded, fail to dead letter", make: embedded, must: null, handler: failing },
];

const found = [];
for (const { row, make, must, handler, more } of ROWS) {
  if (only.length > 0 && !only.some((word) => row.startsWith(word))) continue;
  const { queue, deadLetters, load, close } = make();
  const [ports, consumer] = [[], []];
  for (let round = 0; round <= ROUNDS; round++) {
    const sides = [
      async () => {
        await load();
        ports.push(await cost(() => bare(queue, (message) => handler(message).catch(() => {}))));
      },
      async () => {
        await load();
        consumer.push(await cost(() => through(queue, deadLetters, handler, more)));
      },
    ];
    for (const side of round % 2 === 0 ? sides : sides.reverse()) await side();
    await turn();
  }
  await close();
  const pairs = consumer.map((one, at) => one - ports[at]).slice(1); // the first round warms up
  const line = {
    row,
    messages: COUNT,
    overhead: micros(median(pairs)),
    must,
    consumer: micros(median(consumer.slice(1))),
    ports: micros(median(ports.slice(1))),
    unit: "us CPU a message",
  };
  found.push(line);
  console.log(JSON.stringify({ bench: "consumer-loop", node: process.version, ...line }));
}

console.error(
  `\n${"us of CPU a message".padEnd(32)}${"Consumer".padStart(10)}${"ports".padStart(8)}${"more".padStart(8)}${"must".padStart(7)}`,
);
for (const { row, consumer, ports, overhead, must } of found) {
  console.error(
    `${row.padEnd(32)}${String(consumer).padStart(10)}${String(ports).padStart(8)}${String(overhead).padStart(8)}${String(must ?? "-").padStart(7)}`,
  );
}
