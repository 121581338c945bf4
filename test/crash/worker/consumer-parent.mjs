// A consumer process with isolated handlers on a data file, to be killed: argv: data file, handler file.

import { openBroker } from "../../../dist/engines/embedded/index.js";
import { Consumer } from "../../../dist/index.js";

const [file, handler] = process.argv.slice(2);
const broker = openBroker({ file });
const queue = broker.queue("orders");
const consumer = new Consumer({
  queue,
  deadLetters: broker.deadLetters("orders.dead"),
  handler,
  isolate: "process",
  concurrency: 4,
  maxAttempts: 5,
  backoff: 1,
  crashWaitsMs: [1],
  warmUpMs: 1,
  logger: null,
});
console.log("up");
await consumer.run({ until: "idle" });
await broker.close();
console.log("done");
