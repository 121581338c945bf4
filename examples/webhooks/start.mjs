// `npm start`: the first run on real input. See docs/tutorial/first-run.md.
//
//   npm start                 load 331 webhooks, handle them, say what became of them
//   npm start -- --fixed      the cause is mended: send every letter back and see the dead letter queue empty
//   npm start -- --fresh      forget the last run and begin again
//   npm start -- --data DIR   somewhere else than ./dlo-data
//
// It can be stopped at any moment, by Ctrl-C or by kill -9, and started again: it goes on where it was.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Consumer } from "dead-letter-office";
import { openBroker } from "dead-letter-office/embedded";
import { serveOffice } from "dead-letter-office/office";
import { allMessages } from "./messages.mjs";
import { startReceiver } from "./receiver.mjs";
import { report, summarize } from "./summary.mjs";

const QUEUE = "webhooks";
const MAX_ATTEMPTS = 3;
const BATCH = 50;

function options() {
  try {
    const { values } = parseArgs({
      options: {
        fixed: { type: "boolean", default: false },
        fresh: { type: "boolean", default: false },
        data: { type: "string", default: "dlo-data" },
      },
    });
    return values;
  } catch (error) {
    console.error(`start: ${error.message}\nusage: npm start -- [--fixed] [--fresh] [--data DIR]`);
    process.exit(2);
  }
}

/** Where the demonstration stands, beside the data: loading -> first -> done -> fixing -> fixed. */
function stage(file) {
  return {
    read() {
      try {
        return JSON.parse(readFileSync(file, "utf8")).stage;
      } catch {
        return "loading";
      }
    },
    write(name) {
      writeFileSync(`${file}.new`, `${JSON.stringify({ stage: name })}\n`);
      renameSync(`${file}.new`, file);
    },
  };
}

const progress = {
  live: process.stderr.isTTY === true,
  show(text) {
    if (this.live) process.stderr.write(`\r\x1b[K${text}`);
  },
  clear() {
    if (this.live) process.stderr.write("\r\x1b[K");
  },
};

/** Puts the messages that are not there yet into the queue; nothing has been taken out before all are there. */
async function load(queue) {
  const messages = allMessages();
  const there = await queue.pending();
  // Whole transactions of a few: a kill in the middle leaves a beginning of the list, and pending() says how long.
  for (let at = there; at < messages.length; at += BATCH)
    await queue.sendMany(messages.slice(at, at + BATCH));
  return messages.length;
}

/** Handles the queue until nothing waits any more, delayed retries included, or until the user stops it. */
async function work(broker, { url, fixed, signal, total }) {
  const queue = broker.queue(QUEUE);
  const consumer = new Consumer({
    queue,
    deadLetters: broker.deadLetters(`${QUEUE}.dead`),
    handler: new URL("./handler.mjs", import.meta.url),
    isolate: "process",
    concurrency: 2,
    maxAttempts: MAX_ATTEMPTS,
    timeoutMs: 3000,
    backoff: { baseMs: 100, factor: 2, maxMs: 1000 },
    crashWaitsMs: [200, 1000],
    warmUpMs: 100,
    worker: { env: { WEBHOOK_RECEIVER: url, WEBHOOK_FIXED: fixed ? "1" : "" } },
    logger: null,
    signal,
  });
  const look = setInterval(() => progress.show(`handled ${total - queue.pending()} of ${total}`), 100);
  try {
    await consumer.run({ until: "idle" });
  } finally {
    clearInterval(look);
  }
  progress.clear();
  return (await queue.pending()) === 0;
}

/** Sends every dead letter back, in order of death, through the same office the command line talks to. */
async function replayAll(client) {
  const plan = await client.plan("replay", { all: true }, { force: true });
  const replayed = await client.replay(plan.letterIds, { actor: "npm start", reason: "the cause is mended" });
  for (const { id, why } of replayed.failed) console.log(`not replayed: ${id}: ${why}`);
  return replayed.done.length;
}

/** A path as short as it can be typed. */
const show = (path) => {
  const near = relative(process.cwd(), path);
  return near.startsWith("..") ? path : near || ".";
};

/** Ends with what is true and what can be done next; a stop in the middle says how to go on. */
function stopped(again) {
  progress.clear();
  console.log(`\nStopped. Nothing is lost: ${again} goes on from here.`);
  return 130;
}

async function firstRun(world) {
  const { broker, place, receiver, signal, directory } = world;
  const queue = broker.queue(QUEUE);
  if (place.read() === "loading") {
    const total = await load(queue);
    place.write("first");
    console.log(`${total} messages are in the queue "${QUEUE}" in ${show(directory)}`);
  } else console.log(`going on with the run in ${show(directory)}`);
  const total = allMessages().length;
  console.log(`handling them in child processes, delivering to a flaky receiver on ${receiver.url}`);
  if (!(await work(broker, { url: receiver.url, fixed: false, signal, total }))) return false;
  place.write("done");
  return true;
}

async function fixedRun(world) {
  const { broker, place, receiver, signal, office } = world;
  place.write("fixing");
  console.log("the cause is mended: handler and receiver are the fixed ones now");
  console.log(`replayed ${await replayAll(office.client)} letters`);
  const total = await broker.queue(QUEUE).pending();
  if (!(await work(broker, { url: receiver.url, fixed: true, signal, total }))) return false;
  place.write("fixed");
  return true;
}

function next(directory) {
  const data = `--data ${show(directory)}`;
  const extra = show(directory) === "dlo-data" ? "" : ` ${data}`;
  console.log(`
Look further:
  npx dlo groups ${data}
  npx dlo ls ${data}
  npx dlo ls ${data} --reason exhausted
  npx dlo show poison-pill ${data}
Mend the cause and send them all back:
  npm start --${extra} --fixed
Or send some back yourself, and have them handled:
  npx dlo replay --where reason:exhausted ${data}
Begin again:
  npm start --${extra} --fresh`);
}

async function tell({ broker, receiver, place, directory }, began) {
  const summary = await summarize(broker.letters, receiver.memory, allMessages().length);
  console.log(`\n${report(summary)}`);
  if (receiver.memory.twice > 0) {
    console.log(
      `(${receiver.memory.twice} came twice after an interruption and were recognised by their id)`,
    );
  }
  if (began !== undefined) console.log(`took ${((performance.now() - began) / 1000).toFixed(1)} s`);
  if (place.read() === "fixed")
    console.log("\nThe dead letter queue is empty. npm start -- --fresh begins again.");
  else next(directory);
}

async function play(world, { fixed }) {
  const { place } = world;
  const began = performance.now();
  const at = place.read();
  if (at === "fixed" || (at === "done" && !fixed)) {
    console.log(`the run in ${show(world.directory)} is complete (--fresh begins again)`);
    await tell(world);
    return 0;
  }
  if (at === "loading" || at === "first") {
    if (!(await firstRun(world))) return stopped("npm start");
    await tell(world, began);
  }
  if (!fixed && at !== "fixing") return 0;
  world.receiver.close();
  world.receiver = await startReceiver(world.journal, { fixed: true });
  if (!(await fixedRun(world))) return stopped("npm start");
  await tell(world, began);
  return 0;
}

async function main() {
  const { data, fresh, fixed } = options();
  const directory = resolve(data);
  if (fresh) rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const stop = new AbortController();
  let asked = 0;
  for (const name of ["SIGINT", "SIGTERM"]) {
    process.on(name, () => {
      if (++asked > 1) process.exit(130);
      progress.clear();
      console.log("stopping: running handlers end first (once more to stop at once)");
      stop.abort();
    });
  }
  const broker = await openBroker({ file: join(directory, "dlo.db") });
  const office = await serveOffice(broker, { directory, command: "npm start" });
  const journal = join(directory, "receiver.tsv");
  const receiver = await startReceiver(journal, { fixed: false });
  const place = stage(join(directory, "stage.json"));
  const world = { broker, office, receiver, journal, place, directory, signal: stop.signal };
  try {
    return await play(world, { fixed });
  } finally {
    world.receiver.close();
    await office.close();
    await broker.close();
  }
}

process.exitCode = await main().catch((error) => {
  progress.clear();
  if (error?.name !== "DloError") throw error;
  console.error(`start: ${error.message}`);
  return 1;
});
