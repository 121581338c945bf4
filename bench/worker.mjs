// What a handler in a process of its own costs, and how fast the next message runs after a crash. Build dist/ first.
// JSON lines go to stdout, a table to stderr. usage: node bench/worker.mjs [--quick]
import { fork, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { WorkerPool } from "../dist/worker/index.js";

const quick = process.argv.includes("--quick");
const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const handlerFile = here("worker/handler.mjs");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const round = (value) => Math.round(value * 100) / 100;
const rows = [];

function report(row) {
  rows.push(row);
  console.log(JSON.stringify({ bench: "worker", node: process.version, ...row }));
}

const object = {
  order: 17,
  items: Array.from({ length: 20 }, (_, n) => ({ sku: `sku-${n}`, price: n * 100 })),
};
object.pad = "x".repeat(Math.max(0, 1024 - JSON.stringify(object).length - 9));
const bodies = {
  "JSON value, 1 KB": object,
  "bytes, 1 KB": new Uint8Array(1024).fill(7),
  "text, 1 KB": "x".repeat(1024),
};
const message = (body) => ({ id: "m1", body, receiveCount: 1, firstReceivedAt: 1_700_000_000_000 });

async function microseconds(count, work) {
  const start = performance.now();
  for (let n = 0; n < count; n++) await work();
  return ((performance.now() - start) / count) * 1000;
}

/** The bare channel with an echo at its end: what no supervisor can go below. */
function bareChannel() {
  const child = fork(here("worker/echo.mjs"), [], { serialization: "advanced" });
  let answered;
  child.on("message", () => answered());
  return {
    ask: (value) =>
      new Promise((done) => {
        answered = done;
        child.send(value);
      }),
    end: () => child.kill(),
  };
}

async function addedCost() {
  const { default: handler } = await import(handlerFile);
  const pool = new WorkerPool({ file: handlerFile, timeoutMs: 30_000 });
  await pool.start();
  const bare = bareChannel();
  const count = quick ? 500 : 5_000;
  const rounds = quick ? 3 : 7;
  for (const [name, body] of Object.entries(bodies)) {
    const one = message(body);
    const seen = { inProcess: [], isolated: [], bare: [] };
    for (let n = 0; n <= rounds; n++) {
      const inProcess = await microseconds(count, () => handler(one));
      const isolated = await microseconds(count, () => pool.run(one));
      const channel = await microseconds(count, () => bare.ask(one));
      if (n === 0) continue; // warm-up
      seen.inProcess.push(inProcess);
      seen.isolated.push(isolated);
      seen.bare.push(channel);
    }
    const added = median(seen.isolated) - median(seen.inProcess);
    report({
      row: `added by isolation: ${name}`,
      unit: "us/message",
      value: round(added),
      best: round(Math.min(...seen.isolated) - Math.min(...seen.inProcess)),
      inProcess: round(median(seen.inProcess)),
      isolated: round(median(seen.isolated)),
      bareChannel: round(median(seen.bare)),
      overBareChannel: round(median(seen.isolated) / median(seen.bare)),
      goal: 60,
    });
  }
  bare.end();
  await pool.close();
}

/** From handing over the message that kills its process to the end of the next message's handler. */
async function crashToNext(spare) {
  const pool = new WorkerPool({ file: handlerFile, spare, output: () => true });
  await pool.start();
  const times = [];
  for (let n = 0; n < (quick ? 5 : 25); n++) {
    while (pool.status().idle < 1 + spare) await pause(5);
    await pause(20);
    const start = performance.now();
    const crash = await pool.run(message("die"));
    if (crash.outcome !== "crashed") throw new Error(`expected a crash, got ${JSON.stringify(crash)}`);
    await pool.run(message("live"));
    times.push(performance.now() - start);
  }
  await pool.close();
  times.sort((a, b) => a - b);
  report({
    row: `crash to next message, ${spare === 0 ? "no spare" : "warm spare"}`,
    unit: "ms",
    value: round(median(times)),
    best: round(times[0]),
    p90: round(times[Math.floor(times.length * 0.9)]),
    ...(spare === 0 ? {} : { goal: 15 }),
  });
  return median(times);
}

function children(pid) {
  return readdirSync("/proc").filter((name) => {
    try {
      const fields = readFileSync(`/proc/${name}/stat`, "latin1")
        .replace(/^.*\) /s, "")
        .split(" ");
      return /^\d+$/.test(name) && Number(fields[1]) === pid;
    } catch {
      return false;
    }
  });
}

const gone = (pid) => {
  try {
    return /\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return true;
  }
};

/** How long a child in an endless loop outlives its parent's SIGKILL. */
async function orphans() {
  if (process.platform !== "linux") {
    report({
      row: "orphans after the parent's SIGKILL",
      skipped: "looks for them in /proc, which is Linux's",
    });
    return;
  }
  const times = [];
  for (let n = 0; n < (quick ? 2 : 5); n++) {
    const parent = spawn(process.execPath, [here("worker/parent.mjs")], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await new Promise((done) => parent.stdout.once("data", done));
    const pids = children(parent.pid);
    if (pids.length < 2) throw new Error(`expected two children, found ${pids.length}`);
    parent.kill("SIGKILL");
    const start = performance.now();
    while (!pids.every(gone)) await pause(5);
    times.push(performance.now() - start);
  }
  report({
    row: "last child gone after the parent's SIGKILL, one in an endless loop",
    unit: "ms",
    value: round(Math.max(...times)),
    best: round(Math.min(...times)),
    goal: 1000,
  });
}

await addedCost();
const warm = await crashToNext(1);
const cold = await crashToNext(0);
report({ row: "crash to next message: no spare / warm spare", unit: "ratio", value: round(cold / warm) });
await orphans();

const width = Math.max(...rows.map((row) => row.row.length));
for (const { row, value, best, unit, goal, skipped } of rows) {
  const figure = skipped ? `skipped: ${skipped}` : `${value} ${unit}`;
  const more = [best === undefined ? "" : `best ${best}`, goal === undefined ? "" : `goal ${goal}`];
  console.error(`${row.padEnd(width)}  ${figure.padEnd(20)}  ${more.filter(Boolean).join(", ")}`);
}
