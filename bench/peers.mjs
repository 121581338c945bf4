// The same three jobs on this product's embedded engine and on other queues, side by side in one run:
//   many          messages wait; receive, handle (nothing), settle, as many in flight as the queue likes
//   one at a time the same with one in flight
//   fail          every handler throws for good; the message ends as a dead letter
// The others are installed apart (npm ci in bench/); their servers are private ones, started here from the binaries
// that are installed. What is missing is skipped by name. usage: node bench/peers.mjs [--quick] [name ...]
import { bullmq } from "./peers/bullmq.mjs";
import { embedded } from "./peers/embedded.mjs";
import { graphile } from "./peers/graphile.mjs";
import { pgboss } from "./peers/pgboss.mjs";
import { plainjob } from "./peers/plainjob.mjs";
import { Missing, startPostgres, startRedis } from "./peers/servers.mjs";

const quick = process.argv.includes("--quick");
const only = process.argv.slice(2).filter((word) => !word.startsWith("-"));
const peers = [embedded, plainjob, bullmq, pgboss, graphile].filter(
  ({ name }) => only.length === 0 || name === "embedded" || only.some((word) => name.includes(word)),
);
const ROUNDS = quick ? 1 : 3;
/** Row: how many messages (others take their own time), what it must reach, and against whom. */
const ROWS = {
  many: { count: quick ? 2_000 : 10_000, must: 1.7, moonshot: 3, against: () => true },
  "one at a time": { count: quick ? 200 : 500, must: 2, moonshot: 4, against: (name) => name === "bullmq" },
  fail: { count: quick ? 1_000 : 5_000, must: 2, moonshot: 4, against: () => true },
};
const body = { order: 17, pad: "x".repeat(1_000) };
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const say = (row) => console.log(JSON.stringify({ bench: "peers", node: process.version, ...row }));

/** Times from the first handler's start to the last message's end, so that nobody's start-up counts. */
function stopwatch(count) {
  let first = 0;
  let left = count;
  let finish;
  const finished = new Promise((done) => {
    finish = done;
  });
  return {
    started() {
      if (first === 0) first = performance.now();
    },
    ended(howMany = 1) {
      left -= howMany;
      if (left <= 0) finish((performance.now() - first) / 1000);
    },
    rate: async () => count / (await finished),
  };
}

async function opened(peer, servers) {
  try {
    const start = { postgres: startPostgres, redis: startRedis }[peer.server];
    const server = start === undefined ? null : await (servers[peer.server] ??= start());
    return await peer.open(server);
  } catch (error) {
    const why = error instanceof Missing ? error.message : missingPackage(error);
    if (why === null) throw error;
    say({ row: peer.name, skipped: why });
    console.error(`skipped: ${peer.name} (${why})`);
    return null;
  }
}

const missingPackage = (error) =>
  error.code === "ERR_MODULE_NOT_FOUND" || error.code === "MODULE_NOT_FOUND"
    ? "its package is not installed: npm ci in bench/"
    : null;

// An interrupted run takes its servers with it: they end when this process exits.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const rates = {};
const servers = {};
const open = [];
try {
  for (const peer of peers) {
    const bench = await opened(peer, servers);
    if (bench !== null) open.push({ ...peer, bench });
  }
  // The rounds go around the table, so that a slow minute of the machine is everybody's.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [row, { count }] of Object.entries(ROWS)) {
      for (const { name, bench } of open) {
        const n = round === 0 ? Math.min(500, count) : count;
        const watch = stopwatch(n);
        await bench.load(row, Array(n).fill(body));
        const [rate] = await Promise.all([watch.rate(), bench.drain(row, watch)]);
        if (round === 0) continue; // warm-up
        ((rates[row] ??= {})[name] ??= []).push(rate);
      }
    }
  }
} finally {
  for (const { bench } of open) await bench.close();
  for (const server of Object.values(servers)) await (await server.catch(() => null))?.stop();
}

console.error(
  `\n${"".padEnd(16)}${open.map(({ name }) => name.padStart(12)).join("")}   ratio  must  moonshot`,
);
for (const [row, { count, must, moonshot, against }] of Object.entries(ROWS)) {
  const found = Object.fromEntries(open.map(({ name }) => [name, Math.round(median(rates[row][name]))]));
  const rivals = open.filter(({ name }) => name !== "embedded" && against(name));
  const best =
    rivals.length === 0 ? null : rivals.reduce((a, b) => (found[b.name] > found[a.name] ? b : a)).name;
  const ratio = best === null ? null : Math.round((found.embedded / found[best]) * 100) / 100;
  say({ row, messages: count, perSecond: found, against: best, ratio, must, moonshot });
  const cells = open.map(({ name }) => String(found[name]).padStart(12)).join("");
  console.error(
    `${row.padEnd(16)}${cells}${String(ratio ?? "-").padStart(8)}${String(must).padStart(6)}${String(moonshot).padStart(10)}`,
  );
}
for (const { name, durability } of open) console.error(`${name}: ${durability}`);
