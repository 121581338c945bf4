// Case B1: one life of a service whose consumer runs in this very process, until nothing is left or a message ends it.
//   node pill-child.mjs FILE LOG one|loop
// Lines: up · start ID · end ID · OUTCOME (of `one`)
import { appendFileSync } from "node:fs";
import { Consumer, DLQConsumer } from "../../../dist/consumer/index.js";
import { openBroker } from "../../../dist/engines/embedded/index.js";

const [, , file, log, how] = process.argv;
const say = (line) => appendFileSync(log, `${line}\n`);
const hold = [];

async function handler({ id, body }) {
  say(`start ${id}`);
  if (body === "kill") {
    process.kill(process.pid, "SIGKILL");
    await new Promise(() => {});
  }
  if (body === "allocate") for (;;) hold.push(new Array(10_000).fill(hold.length));
  say(`end ${id}`);
}

const broker = openBroker({ file });
const queue = broker.queue("q");
const deadLetters = broker.deadLetters("q.dead");
say("up");
if (how === "loop") {
  await new Consumer({ queue, deadLetters, handler, warmUpMs: 1, logger: null }).run({ until: "idle" });
} else {
  const consumer = new DLQConsumer(queue, deadLetters, handler);
  for (let outcome = await consumer.processOne(); outcome !== null; outcome = await consumer.processOne())
    say(outcome);
}
await broker.close();
