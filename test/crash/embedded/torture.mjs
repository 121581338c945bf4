// Kills workers on one data file, again and again, and checks what is left against what was promised.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { openBroker } from "../../../dist/engines/embedded/index.js";

const CHILD = fileURLToPath(new URL("./child.mjs", import.meta.url));
const MAX_ATTEMPTS = 3;

/** Runs one life. `killAfterMs`: SIGKILL so long after it is ready. Answers the signal that ended it, or null. */
export async function live(file, log, job, killAfterMs, env = process.env) {
  const child = spawn(process.execPath, [CHILD, file, log, JSON.stringify(job)], {
    stdio: ["ignore", "pipe", "pipe"],
    env,
  });
  let errors = "";
  child.stderr.on("data", (chunk) => (errors += chunk));
  let timer;
  child.stdout.once("data", () => {
    if (killAfterMs !== undefined) timer = setTimeout(() => child.kill("SIGKILL"), killAfterMs);
  });
  const [code, signal] = await once(child, "close");
  clearTimeout(timer);
  if (code !== 0 && signal !== "SIGKILL") throw new Error(`the worker failed (${code ?? signal}): ${errors}`);
  return signal;
}

function readLog(log) {
  const facts = { sent: new Set(), done: new Map(), starts: new Map(), died: new Set() };
  if (!existsSync(log)) return facts;
  for (const line of readFileSync(log, "utf8").split("\n")) {
    const [what, id] = line.split(" ");
    if (what === "sent") facts.sent.add(id);
    if (what === "died") facts.died.add(id);
    if (what === "start") facts.starts.set(id, (facts.starts.get(id) ?? 0) + 1);
    if (what === "done") facts.done.set(id, (facts.done.get(id) ?? 0) + 1);
  }
  return facts;
}

/** What is wrong with the file, in words; empty: every promise was kept. */
export async function verdict(file, log) {
  const { sent, done, starts, died } = readLog(log);
  const broker = openBroker({ file });
  const queue = broker.queue("q");
  const waiting = new Set();
  // A suspect is given out alone, so what was received is settled before more is asked for.
  for (let got = queue.receiveMany(1e6); got.length > 0; got = queue.receiveMany(1e6)) {
    for (const { id } of got) waiting.add(id);
    await queue.ackMany(got);
  }
  const letters = broker.deadLetters("q.dlq").list();
  await broker.close();
  const entries = new Map();
  for (const letter of letters) entries.set(letter.id, [...(entries.get(letter.id) ?? []), letter]);
  const wrong = [];
  for (const id of sent)
    if (!waiting.has(id) && !entries.has(id) && !done.has(id))
      wrong.push(`lost: ${id} was confirmed and is nowhere`);
  for (const id of died)
    if (!entries.has(id)) wrong.push(`lost: the letter of ${id} was confirmed and is nowhere`);
  for (const [id, many] of entries) {
    if (many.length > 1) wrong.push(`doubled: ${id} has ${many.length} entries`);
    if (waiting.has(id)) wrong.push(`doubled: ${id} is dead and waits`);
    const letter = many[0];
    const kind = id.split("-")[0];
    if (kind === "bad" && !["permanent", "poison"].includes(letter.reason))
      wrong.push(`${id} died as ${letter.reason}`);
    if (letter.body.id !== id || letter.body.fill.length !== 1000) wrong.push(`${id} lost its body`);
    // Killed by our own hand three times, an innocent looks like a pill (a start may be counted and cut off before the
    // handler could say so); one that was never started must not.
    if (["ok", "once"].includes(kind) && !starts.has(id))
      wrong.push(`innocent: ${id} died as ${letter.reason} and was never started`);
  }
  for (const [id, count] of starts) if (count > MAX_ATTEMPTS) wrong.push(`${id} was started ${count} times`);
  return { wrong, sent: sent.size, waiting: waiting.size, dead: entries.size, done: done.size };
}
