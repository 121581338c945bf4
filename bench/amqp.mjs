// The AMQP rows: the embedded broker against RabbitMQ (classic durable queues) on this machine, in one run, with the
// same client, persistent messages of 1 KB, confirmed. Prints one JSON line a row. A first round of each row warms both
// up and is not counted.
// usage: node bench/amqp.mjs [--seconds=2] [--rounds=3] [--rows=regex]
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPrivateRabbit } from "../test/support/rabbitmq-node.mjs";
import { ack, publishFrames, Raw, reject, tagAt } from "./lib-amqp-raw.mjs";

const options = Object.fromEntries(process.argv.slice(2).map((arg) => arg.replace(/^--/, "").split("=")));
const SECONDS = Number(options.seconds ?? 2);
const ROUNDS = Number(options.rounds ?? 3);
const ROWS = new RegExp(options.rows ?? ".");
const BODY = Buffer.alloc(1024, "x");
const ACK = 0x003c0050;
const DELIVER = 0x003c003c;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** CPU seconds a process and its children have used (Linux). */
function cpuSeconds(pids) {
  return pids.reduce((sum, pid) => {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
    return sum + (Number(fields[11]) + Number(fields[12])) / 100;
  }, 0);
}
const rssBytes = (pids) =>
  pids.reduce(
    (sum, pid) => sum + Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) * 1024,
    0,
  );

/** Publishes with at most `window` unconfirmed until `stop` says so; answers the number confirmed. */
async function publishing(url, queue, window, stop) {
  const raw = await Raw.open(url);
  await raw.confirms();
  const one = publishFrames("", queue, BODY);
  let sent = 0;
  let confirmed = 0;
  const batch = Buffer.concat(Array.from({ length: Math.min(window, 50) }, () => one));
  await new Promise((done, failed) => {
    const send = () => {
      if (raw.failed) return failed(raw.failed);
      if (stop(confirmed, sent)) {
        if (confirmed >= sent) done();
        return;
      }
      let room = window - (sent - confirmed);
      for (; room * one.length >= batch.length; room -= batch.length / one.length) {
        raw.socket.write(batch);
        sent += batch.length / one.length;
      }
      if (window < 50) for (; room > 0; room--, sent++) raw.socket.write(one);
    };
    raw.onMethod = (id, at, bytes) => {
      if (id !== ACK) return;
      const tag = tagAt(bytes, at);
      confirmed = bytes[at + 8] ? tag : confirmed + 1;
      send();
    };
    send();
  });
  raw.close();
  return confirmed;
}

const until = (ms) => {
  const end = performance.now() + ms;
  return () => performance.now() > end;
};
const fill = (url, queue, count) => publishing(url, queue, 1000, (_, sent) => sent >= count);

/** Consumes until `count` messages were settled with `settle`; answers messages a second. */
async function consuming(url, queue, prefetch, count, settle) {
  const raw = await Raw.open(url);
  let got = 0;
  let settled = 0;
  let startedAt = 0;
  const done = new Promise((resolve) => {
    raw.onMethod = (id, at, bytes) => {
      if (id !== DELIVER) return;
      const tagFrom = at + 1 + bytes[at];
      got = bytes.readUInt32BE(tagFrom + 4);
    };
    raw.onBody = () => {
      if (startedAt === 0) startedAt = performance.now();
      if (prefetch === 1) raw.socket.write(settle(got));
      else if (got - settled >= prefetch / 2 || got === count) {
        const tags = [];
        if (settle === ack) tags.push(ack(got, true));
        else for (let tag = settled + 1; tag <= got; tag++) tags.push(settle(tag));
        raw.socket.write(Buffer.concat(tags));
        settled = got;
      }
      if (got >= count) resolve();
    };
  });
  await raw.consume(queue, prefetch);
  await done;
  const seconds = (performance.now() - startedAt) / 1000;
  raw.close();
  return count / seconds;
}

async function emptied(url, queue, count) {
  const raw = await Raw.open(url);
  for (let i = 0; i < 1000; i++) {
    const bytes = await raw.queue(queue);
    const at = bytes.length >= 12 ? 11 : 0;
    const name = bytes[at];
    if (bytes.readUInt32BE(at + 1 + name) >= count) break;
    await sleep(5);
  }
  raw.close();
}

const rows = {};
rows["memory of an idle connection (kB)"] = async ({ url, broker }) => {
  // First of all rows, and the largest of its rounds: what earlier work has left behind would be used again and hide
  // them. Some are opened and closed first, and garbage is collected before both looks.
  const opened = async (count) => {
    const open = [];
    while (open.length < count)
      open.push(...(await Promise.all(Array.from({ length: 25 }, () => Raw.open(url)))));
    return open;
  };
  const closed = async (open) => {
    for (const raw of open) raw.close();
    await sleep(500);
  };
  await closed(await opened(100));
  const look = async () => {
    for (let i = 0; i < 3; i++) {
      await broker.settle?.();
      await sleep(300);
    }
    return rssBytes(broker.pids);
  };
  const before = await look();
  const open = await opened(1000);
  const each = ((await look()) - before) / open.length / 1024;
  await closed(open);
  return each;
};
for (const window of [1, 100, 1000]) {
  rows[`publish + confirm, window ${window}`] = async ({ url, queue }) => {
    const startedAt = performance.now();
    const count = await publishing(url, queue, window, until(SECONDS * 1000));
    return (count * 1000) / (performance.now() - startedAt);
  };
}
for (const prefetch of [1, 100]) {
  rows[`consume + ack, prefetch ${prefetch}`] = async ({ url, queue }) => {
    const count = prefetch === 1 ? 5000 * SECONDS : 15000 * SECONDS;
    await fill(url, queue, count);
    return consuming(url, queue, prefetch, count, ack);
  };
}
rows["produce and consume together"] = async ({ url, queue }) => {
  const count = 15000 * SECONDS;
  const startedAt = performance.now();
  await Promise.all([
    publishing(url, queue, 500, (_, sent) => sent >= count),
    consuming(url, queue, 100, count, ack),
  ]);
  return (count * 1000) / (performance.now() - startedAt);
};
for (const prefetch of [1, 100]) {
  rows[`reject -> DLX -> DLQ, prefetch ${prefetch}`] = async ({ url, queue, broker }) => {
    const count = prefetch === 1 ? 3000 * SECONDS : 10000 * SECONDS;
    const setup = await Raw.open(url);
    await setup.queue(`${queue}.dlq`);
    await setup.queue(`${queue}.src`, `${queue}.dlq`);
    setup.close();
    await fill(url, `${queue}.src`, count);
    const cpu = cpuSeconds(broker.pids);
    const startedAt = performance.now();
    await consuming(url, `${queue}.src`, prefetch, count, reject);
    await emptied(url, `${queue}.dlq`, count);
    const rate = (count * 1000) / (performance.now() - startedAt);
    broker.deathCpu = ((cpuSeconds(broker.pids) - cpu) * 1e6) / count;
    return rate;
  };
}
rows["broker CPU a message, cycle (us)"] = async ({ url, queue, broker }) => {
  const count = 15000 * SECONDS;
  const cpu = cpuSeconds(broker.pids);
  await Promise.all([
    publishing(url, queue, 500, (_, sent) => sent >= count),
    consuming(url, queue, 100, count, ack),
  ]);
  return ((cpuSeconds(broker.pids) - cpu) * 1e6) / count;
};
rows["broker CPU a message, dead letter (us)"] = async ({ broker }) => broker.deathCpu;
for (const [name, quantile] of [
  ["p50", 0.5],
  ["p99", 0.99],
]) {
  rows[`latency at 5,000/s, ${name} (ms)`] = async ({ url, queue, broker }) => {
    // The first second of a server at this rate is its warm-up, in either broker, and is not looked at.
    if (quantile === 0.5 && !broker.isWarm) await latencies(url, queue);
    broker.isWarm = true;
    broker.latencies = quantile === 0.5 ? await latencies(url, queue) : broker.latencies;
    return broker.latencies[Math.floor(broker.latencies.length * quantile)];
  };
}
rows["connection set-up, a second"] = async ({ url }) => {
  const startedAt = performance.now();
  let count = 0;
  while (performance.now() - startedAt < SECONDS * 1000) {
    for (const raw of await Promise.all(Array.from({ length: 10 }, () => Raw.open(url)))) raw.close();
    count += 10;
  }
  return (count * 1000) / (performance.now() - startedAt);
};
async function latencies(url, queue) {
  const publisher = await Raw.open(url);
  const consumer = await Raw.open(url);
  const times = [];
  let tag = 0;
  const found = [];
  consumer.onMethod = (id, at, bytes) => {
    if (id === DELIVER) tag = bytes.readUInt32BE(at + 1 + bytes[at] + 4);
  };
  consumer.onBody = () => {
    found.push(performance.now() - times[tag - 1]);
    consumer.socket.write(ack(tag));
  };
  await consumer.consume(queue, 200);
  const one = publishFrames("", queue, BODY);
  const startedAt = performance.now();
  const total = 5000 * SECONDS;
  while (times.length < total) {
    const due = Math.min(total, Math.floor((performance.now() - startedAt) * 5));
    while (times.length < due) {
      times.push(performance.now());
      publisher.socket.write(one);
    }
    await new Promise((done) => setImmediate(done));
  }
  for (let i = 0; i < 500 && found.length < total; i++) await sleep(10);
  publisher.close();
  consumer.close();
  return found.sort((a, b) => a - b);
}

/** Processes of a RabbitMQ node, by the directory it was given. */
function pidsOf(text) {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return (
        readFileSync(`/proc/${pid}/comm`, "utf8").startsWith("beam") &&
        readFileSync(`/proc/${pid}/environ`, "latin1").includes(text)
      );
    } catch {
      return false;
    }
  });
}

const dir = mkdtempSync(join(tmpdir(), "dlo-bench-amqp-"));
const script = join(import.meta.dirname, "lib-amqp-server.mjs");
const child = spawn(process.execPath, ["--expose-gc", script, dir], { stdio: ["pipe", "pipe", "inherit"] });
const url = await new Promise((done) => child.stdout.once("data", (text) => done(String(text).trim())));
const rabbit = await startPrivateRabbit();
async function collected() {
  const answer = new Promise((done) => child.stdout.once("data", done));
  child.stdin.write("\n");
  await answer;
}
const brokers = [{ name: "dlo", url, pids: [child.pid], settle: collected }];
if (rabbit) brokers.push({ name: "rabbitmq", url: rabbit.url, pids: pidsOf(rabbit.dir) });

try {
  let n = 0;
  for (const [row, run] of Object.entries(rows)) {
    if (!ROWS.test(row)) continue;
    const found = Object.fromEntries(brokers.map(({ name }) => [name, []]));
    // What an idle connection takes is looked at while nothing has been used yet.
    const warmUp = row.startsWith("memory") ? 0 : 1;
    for (let round = -warmUp; round < ROUNDS; round++) {
      for (const broker of brokers) {
        const queue = `bench.${n++}`;
        const setup = await Raw.open(broker.url);
        await setup.queue(queue);
        const figure = await run({ url: broker.url, queue, broker });
        if (round >= 0) found[broker.name].push(figure);
        for (const suffix of ["", ".src", ".dlq"]) await setup.deleteQueue(queue + suffix);
        setup.close();
      }
    }
    const figures = Object.fromEntries(
      Object.entries(found).map(([name, list]) => {
        const figure = row.startsWith("memory") ? Math.max(...list) : median(list);
        return [name, Number(figure.toPrecision(3))];
      }),
    );
    const ratio = figures.rabbitmq === undefined ? null : Number((figures.dlo / figures.rabbitmq).toFixed(2));
    console.log(JSON.stringify({ bench: "amqp", row, ...figures, ratio }));
  }
} finally {
  child.kill("SIGTERM");
  await rabbit?.close();
  rmSync(dir, { recursive: true, force: true });
}
