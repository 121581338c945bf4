// The handler of the crash tests: notes each start and end in a file, and ends its process where the message says so.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const { log } = JSON.parse(process.env.DLO_TEST_JOB);
const note = (what, id) => appendFileSync(log, `${what} ${id} ${process.pid}\n`);

export default async function handler(message) {
  note("start", message.id);
  const { how, ms = 0 } = message.body;
  if (how === "kill") {
    if (ms > 0) await sleep(ms);
    process.kill(process.pid, "SIGKILL");
    for (;;);
  }
  if (how === "hang") for (;;);
  if (how === "oom") {
    const eaten = [];
    for (;;) eaten.push(new Array(100_000).fill(eaten.length));
  }
  if (how === "throw") throw new Error("again");
  if (ms > 0) await sleep(ms);
  note("end", message.id);
}
