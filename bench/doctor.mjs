// How long the doctor takes on 10,000 queues: an ordinary topology and shapes that are made to hurt.
//   node tools/build.mjs && node bench/doctor.mjs [queues]
import { examine } from "../dist/topology/index.js";

const N = Number(process.argv[2] ?? 10_000);
const GOAL_MS = 2000;

const queue = (name, args = {}) => ({ name, vhost: "/", durable: true, auto_delete: false, arguments: args });
const exchange = (name, type) => ({
  name,
  vhost: "/",
  type,
  durable: true,
  auto_delete: false,
  internal: false,
  arguments: {},
});
const bind = (source, destination, key = "", type = "queue") => ({
  source,
  vhost: "/",
  destination,
  destination_type: type,
  routing_key: key,
  arguments: {},
});
const dead = (dlx, key) => ({
  "x-dead-letter-exchange": dlx,
  ...(key === undefined ? {} : { "x-dead-letter-routing-key": key }),
});
const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));
const doc = (queues, exchanges, bindings, policies = []) => ({
  vhosts: [{ name: "/" }],
  queues,
  exchanges,
  bindings,
  policies,
});

const shapes = {
  "ordinary: work, wait and dead-letter queue each": () => {
    const n = Math.floor(N / 3);
    return doc(
      times(n, (i) => [
        queue(`s${i}.work`, dead("retry", `s${i}`)),
        queue(`s${i}.wait`, { ...dead("", `s${i}.work`), "x-message-ttl": 30_000 }),
        queue(`s${i}.dlq`),
      ]).flat(),
      [exchange("events", "topic"), exchange("retry", "direct")],
      times(n, (i) => [bind("events", `s${i}.work`, `s${i}.#`), bind("retry", `s${i}.wait`, `s${i}`)]).flat(),
    );
  },
  "every queue broken": () =>
    doc(
      times(N, (i) => queue(`q${i}`, dead(`no-${i}`))),
      times(50, (i) => exchange(`x${i}`, "direct")),
      [],
    ),
  "a chain of letters, each with its own key": () =>
    doc(
      times(N, (i) => queue(`c${i}`, { ...dead("", `c${i + 1}`), "x-message-ttl": 5 })),
      [],
      [],
    ),
  "a ring in which every queue has a TTL": () =>
    doc(
      times(N, (i) => queue(`r${i}`, { ...dead("", `r${(i + 1) % N}`), "x-message-ttl": 5 })),
      [],
      [],
    ),
  "a chain that keeps the original keys": () =>
    doc(
      times(N, (i) => queue(`k${i}`, { ...dead(`x${i}`), "x-message-ttl": 5 })),
      times(N, (i) => exchange(`x${i}`, "topic")),
      times(N - 1, (i) => [bind(`x${i}`, `k${i + 1}`, "#"), bind("amq.topic", `k${i}`, `key.${i}`)]).flat(),
    ),
  "dense topic bindings": () => {
    const n = N / 2;
    return doc(
      times(n, (i) => [queue(`w${i}`, dead("dead")), queue(`w${i}.dlq`)]).flat(),
      [exchange("in", "topic"), exchange("dead", "topic")],
      times(n, (i) => [
        bind("in", `w${i}`, `*.t${i % 97}.#`),
        bind("in", `w${i}`, `#.u${i % 31}.*`),
        bind("dead", `w${i}.dlq`, `*.t${i % 97}.#`),
        bind("dead", `w${i}.dlq`, `a.*.#.u${i % 31}.*`),
      ]).flat(),
    );
  },
  "one fanout for all letters and all queues": () =>
    doc(
      times(N, (i) => queue(`f${i}`, dead("all"))),
      [exchange("all", "fanout")],
      times(N, (i) => bind("all", `f${i}`)),
    ),
  "a thousand policies": () =>
    doc(
      times(N, (i) => queue(`team${i % 1000}.q${i}`)),
      [exchange("dlx", "fanout")],
      [bind("dlx", "team0.q0")],
      times(1000, (i) => ({
        vhost: "/",
        name: `p${i}`,
        pattern: i % 2 ? `^team${i}\\.` : `team${i}\\.q\\d+$`,
        "apply-to": "queues",
        priority: i % 7,
        definition: i % 3 ? { "dead-letter-exchange": "dlx" } : { "message-ttl": 5 },
      })),
    ),
  "a long way between exchanges": () =>
    doc(
      times(N, (i) => queue(`e${i}`, dead("x0", i % 2 ? "a" : "b"))),
      times(2000, (i) => exchange(`x${i}`, "fanout")),
      [...times(1999, (i) => bind(`x${i}`, `x${i + 1}`, "", "exchange")), bind("x1999", "e0")],
    ),
};

let worst = 0;
for (const [name, make] of Object.entries(shapes)) {
  const text = JSON.stringify(make());
  const runs = times(3, () => {
    const start = performance.now();
    const cpu = process.cpuUsage();
    const report = examine(text);
    const { user, system } = process.cpuUsage(cpu);
    return { ms: performance.now() - start, cpuMs: (user + system) / 1000, findings: report.findings.length };
  });
  const ms = runs.map((run) => run.ms).sort((a, b) => a - b)[1];
  const cpuMs = runs.map((run) => run.cpuMs).sort((a, b) => a - b)[1];
  worst = Math.max(worst, ms);
  const size = `${(text.length / 1e6).toFixed(1)} MB`;
  console.log(
    `${ms.toFixed(0).padStart(6)} ms (${cpuMs.toFixed(0)} ms of CPU)  ${name} (${size}, ${runs[0].findings} findings)`,
  );
}
console.log(`doctor: ${N} queues, slowest shape ${worst.toFixed(0)} ms (median of 3; goal ${GOAL_MS} ms)`);
process.exitCode = worst < GOAL_MS ? 0 : 1;
