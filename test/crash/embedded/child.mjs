// One life of a worker on a data file, until it is killed or has drained the queue. Writes a line to its log for
// everything that happened to it, so that whoever killed it can compare the file with what was promised.
//   node child.mjs FILE LOG '{"run":1,"send":20,"window":5,"durability":"full","crash":{"at":7,"side":"before"}}'
// Lines: sent ID (confirmed) · start ID N (handler entered) · done ID (handler returned) · died ID (letter durable)
import { closeSync, openSync, writeSync } from "node:fs";
import { DLQConsumer } from "../../../dist/consumer/index.js";
import { PermanentError } from "../../../dist/core/index.js";
import { openBroker } from "../../../dist/engines/embedded/index.js";
import { Transaction } from "../../../dist/engines/embedded/transaction.js";

const [, , file, logFile, text] = process.argv;
const job = JSON.parse(text);
const log = openSync(logFile, "a");
const say = (line) => writeSync(log, `${line}\n`);
const die = () => process.kill(process.pid, "SIGKILL");

// Named points: the n-th commit of this life, before or after it.
if (job.crash) {
  const { commit } = Transaction.prototype;
  let commits = 0;
  Transaction.prototype.commit = function () {
    if (++commits !== job.crash.at) return commit.call(this);
    if (job.crash.side === "after") commit.call(this);
    die();
    for (;;);
  };
}

const broker = openBroker({ file, durability: job.durability ?? "full" });
const queue = broker.queue("q");
const dead = broker.deadLetters("q.dlq");

// A letter is promised when this resolves.
const { bury } = queue;
queue.bury = async (id, ...rest) => {
  const kept = await bury.call(queue, id, ...rest);
  say(`died ${id}`);
  return kept;
};

/** What becomes of a message is in its id: ok, fail (always), once (fails once), bad (permanent), pill. */
async function handler({ id, receiveCount }) {
  say(`start ${id} ${receiveCount}`);
  const kind = id.split("-")[0];
  if (kind === "pill") {
    die();
    for (;;);
  }
  if (kind === "bad") throw new PermanentError("never");
  if (kind === "fail" || (kind === "once" && receiveCount === 1)) throw new Error(`no ${id}`);
  if (job.slowMs) await new Promise((done) => setTimeout(done, job.slowMs));
  say(`done ${id}`);
}

const KINDS = ["ok", "ok", "once", "ok", "fail", "ok", "bad", "ok"];

async function send() {
  for (let n = 0; n < job.send; n += 4) {
    const ids = [0, 1, 2, 3].map((i) => {
      const kind = job.pills && n + i === job.pills ? "pill" : KINDS[(n + i) % KINDS.length];
      return `${kind}-${job.run}-${n + i}`;
    });
    await Promise.all(
      ids.map((id) => queue.send({ id, fill: "x".repeat(1000) }, id).then(() => say(`sent ${id}`))),
    );
  }
}

let sending = true;

async function consume() {
  const consumer = new DLQConsumer(queue, dead, handler, { now: Date.now }, 3);
  for (;;) {
    const outcomes = await Promise.all(Array.from({ length: job.window ?? 1 }, () => consumer.processOne()));
    if (outcomes.some((outcome) => outcome !== null)) continue;
    if (!sending) return;
    await new Promise((done) => setImmediate(done));
  }
}

say(`open ${job.run}`);
process.stdout.write("ready\n");
const sent = send().then(() => {
  sending = false;
});
// Together: whenever it is cut, however slow the machine, it has done some of everything.
if (!job.together) await sent;
await Promise.all([sent, consume()]);
say(`drained ${job.run}`);
await broker.close();
closeSync(log);
