// The in-process rows: node bench/embedded.mjs [--quick] [--only=ROW]. One run, one machine: compare the ratios.
// Every row is printed as a JSON line; a table comes last. Build first (npm run build). The rows against other
// libraries are bench/peers.mjs.
import { spawnSync } from "node:child_process";
import { loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { openBroker } from "../dist/engines/embedded/index.js";
import { BODY, bareLoop, inFolder, measured, median, rate } from "./lib-embedded.mjs";

const quick = process.argv.includes("--quick");
const only = process.argv.find((arg) => arg.startsWith("--only="))?.slice(7);
const rows = [];

function report(row) {
  rows.push(row);
  console.log(JSON.stringify(row));
}

async function row(name, work) {
  if (only === undefined || name.includes(only)) await work(name);
}

const round = (number) => Math.round(number);
const ratio = (number) => Math.round(number * 100) / 100;

/** send + begin + ack of `count` messages, `batch` at a time, three commits a batch. */
async function cycle(broker, queueName, count, batch) {
  const queue = broker.queue(queueName);
  const outgoing = Array.from({ length: batch }, () => ({ body: BODY }));
  return measured(count, async () => {
    for (let done = 0; done < count; done += batch) {
      await queue.sendMany(outgoing);
      const messages = queue.receiveMany(batch);
      await queue.beginMany(messages);
      await queue.ackMany(messages);
    }
  });
}

/** The same with one promise for each call, as a concurrent consumer makes them. */
async function cycleEach(broker, queueName, count, batch) {
  const queue = broker.queue(queueName);
  return measured(count, async () => {
    for (let done = 0; done < count; done += batch) {
      await Promise.all(Array.from({ length: batch }, () => queue.send(BODY)));
      const messages = queue.receiveMany(batch);
      await Promise.all(messages.map(({ id, receipt }) => queue.begin(id, receipt)));
      await Promise.all(messages.map(({ id, receipt }) => queue.ack(id, receipt)));
    }
  });
}

async function once(work) {
  return inFolder(async (file) => {
    const broker = openBroker({ file });
    try {
      return await work(broker, file);
    } finally {
      await broker.close();
    }
  });
}

await row("send + begin + ack, batch 100", async (name) => {
  const count = quick ? 10_000 : 50_000;
  const pairs = [];
  // One after the other, round after round, so that a slow minute of the machine is everybody's.
  for (let run = 0; run < 5; run++) {
    const bare = await inFolder((file) => bareLoop(file, count, 100));
    const ours = await once((broker) => cycle(broker, "q", count, 100));
    const each = await once((broker) => cycleEach(broker, "q", count, 100));
    pairs.push({ bare, ours, each });
  }
  const values = {
    bare: round(median(pairs.map((p) => p.bare.rate))),
    ours: round(median(pairs.map((p) => p.ours.rate))),
    each: round(median(pairs.map((p) => p.each.rate))),
    bareCpuUs: ratio(median(pairs.map((p) => p.bare.cpuUs))),
    oursCpuUs: ratio(median(pairs.map((p) => p.ours.cpuUs))),
  };
  report({
    row: name,
    ...values,
    ratio: ratio(median(pairs.map((p) => p.ours.rate / p.bare.rate))),
    cpuRatio: ratio(median(pairs.map((p) => p.bare.cpuUs / p.ours.cpuUs))),
    must: 0.6,
    moonshot: 0.85,
  });
});

await row("one at a time: send + begin + ack", async (name) => {
  const count = quick ? 1_000 : 5_000;
  const bare = await inFolder((file) => bareLoop(file, count, 1));
  const ours = await once((broker) => cycleEach(broker, "q", count, 1));
  report({
    row: name,
    bare: round(bare.rate),
    ours: round(ours.rate),
    ratio: ratio(ours.rate / bare.rate),
    cpuRatio: ratio(bare.cpuUs / ours.cpuUs),
  });
});

await row("fail -> dead letter, with row and counters, batch 100", async (name) => {
  const count = quick ? 5_000 : 20_000;
  const ours = await once(async (broker) => {
    const queue = broker.queue("q");
    const dead = broker.deadLetters("q.dlq");
    for (let i = 0; i < count; i += 500)
      await queue.sendMany(Array.from({ length: 500 }, () => ({ body: BODY })));
    return rate(count, async () => {
      for (let done = 0; done < count; done += 100) {
        const messages = queue.receiveMany(100);
        await queue.beginMany(messages);
        await Promise.all(
          messages.map((message, i) =>
            queue.bury(message.id, message.receipt, letter(message, done + i), dead),
          ),
        );
      }
    });
  });
  report({ row: name, ours: round(ours) });
});

function letter(message, n) {
  return {
    id: message.id,
    body: message.body,
    reason: "exhausted",
    error: `TimeoutError: order ${n} timed out after 3000 ms`,
    attempts: 3,
    firstAttemptAt: message.firstReceivedAt,
    failedAt: Date.now(),
    generation: 1,
    stack: "TimeoutError: timed out\n    at charge (/srv/app/charge.js:10:5)",
  };
}

await row("replay, tracked", async (name) => {
  const count = quick ? 5_000 : 20_000;
  const ours = await once(async (broker) => {
    const queue = broker.queue("q");
    const dead = broker.deadLetters("q.dlq");
    for (let i = 0; i < count; i += 500)
      await queue.sendMany(Array.from({ length: 500 }, () => ({ body: BODY })));
    const messages = queue.receiveMany(count);
    await Promise.all(
      messages.map((message, i) => queue.bury(message.id, message.receipt, letter(message, i), dead)),
    );
    const ids = broker.letters.page({}, count).map((one) => one.letterId);
    return rate(count, () => broker.letters.replay(ids));
  });
  report({ row: name, ours: round(ours) });
});

/** Fills a file with waiting messages in a process of its own. */
function child(args) {
  const script = fileURLToPath(new URL("./lib-embedded-child.mjs", import.meta.url));
  const run = spawnSync(process.execPath, ["--expose-gc", script, ...args], { encoding: "utf8" });
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout);
}

await row("1,000,000 waiting", async (name) => {
  const waiting = quick ? 100_000 : 1_000_000;
  const count = quick ? 10_000 : 50_000;
  const empty = await inFolder((file) => child(["cycle", file, "0", String(count)]));
  const full = await inFolder((file) => {
    child(["fill", file, String(waiting)]);
    return child(["cycle", file, String(waiting), String(count)]);
  });
  report({
    row: name.replace("1,000,000", waiting.toLocaleString("en")),
    empty: round(empty.rate),
    ours: round(full.rate),
    ratio: ratio(full.rate / empty.rate),
    cpuRatio: ratio(empty.cpuUs / full.cpuUs),
    must: 0.75,
    startMs: round(full.startMs),
    rssMiB: round(full.peakRssMiB),
    rssAtStartMiB: round(full.rssMiB),
  });
});

await row("1,000,000 delayed", async (name) => {
  const waiting = quick ? 100_000 : 1_000_000;
  const full = await inFolder((file) => {
    child(["fill-delayed", file, String(waiting)]);
    return child(["cycle", file, String(waiting), "10000"]);
  });
  report({
    row: name.replace("1,000,000", waiting.toLocaleString("en")),
    ours: round(full.rate),
    startMs: round(full.startMs),
    rssMiB: round(full.peakRssMiB),
  });
});

/** Publishes `count` with a window of unconfirmed ones. */
async function publishAll(channel, queue, count, window) {
  const body = Buffer.from(BODY);
  for (let i = 0; i < count; i += window) {
    for (let j = 0; j < window; j++) channel.sendToQueue(queue, body, { persistent: true });
    await channel.waitForConfirms();
  }
}

await row("publish + confirm, then consume + ack, window 100", async (name) => {
  const count = quick ? 10_000 : 50_000;
  await once(async (broker) => {
    const channel = await broker.createConfirmChannel();
    await channel.assertQueue("q");
    const published = await rate(count, () => publishAll(channel, "q", count, 100));
    await channel.prefetch(100);
    let seen = 0;
    const consumed = await rate(
      count,
      () =>
        new Promise((done) => {
          channel.consume("q", (message) => {
            channel.ack(message);
            if (++seen === count) done();
          });
        }),
    );
    report({ row: name, publish: round(published), consume: round(consumed) });
  });
});

await row("reject -> DLX -> DLQ, prefetch 100", async (name) => {
  const count = quick ? 10_000 : 50_000;
  await once(async (broker) => {
    const channel = await broker.createConfirmChannel();
    await channel.assertQueue("dlq");
    await channel.assertQueue("q", { deadLetterExchange: "", deadLetterRoutingKey: "dlq" });
    await publishAll(channel, "q", count, 500);
    await channel.prefetch(100);
    let seen = 0;
    const rejected = await rate(
      count,
      () =>
        new Promise((done) => {
          channel.consume("q", (message) => {
            channel.reject(message, false);
            if (++seen === count) channel.checkQueue("q").then(done);
          });
        }),
    );
    const { messageCount } = await channel.checkQueue("dlq");
    if (messageCount !== count) throw new Error(`${messageCount} of ${count} dead letters arrived`);
    report({ row: name, ours: round(rejected) });
  });
});

report({
  row: "machine",
  node: process.version,
  loadAverage: ratio(loadavg()[0]),
  note: "ratio: by the clock, cpuRatio: by processor time",
});
console.error(`\n${"row".padEnd(56)}  figures`);
for (const { row: name, ...figures } of rows) {
  const shown = Object.entries(figures).map(([key, value]) => `${key} ${value.toLocaleString("en")}`);
  console.error(`${name.padEnd(56)}  ${shown.join(", ")}`);
}
