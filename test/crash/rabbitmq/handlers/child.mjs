// A consumer process of the crash tests. Its job comes as JSON in DLO_TEST_JOB; it works on what is built.

import { connectRabbitMQ, openLedger } from "../../../../dist/engines/rabbitmq/index.js";
import { Consumer } from "../../../../dist/index.js";
import handler from "./handler.mjs";

const job = JSON.parse(process.env.DLO_TEST_JOB);
const quiet = { info() {}, warn() {}, error() {} };
const rabbit = await connectRabbitMQ({ url: job.url, logger: quiet });
const ledger = job.ledger ? await openLedger(job.ledger) : undefined;
const queue = rabbit.queue(job.queue, {
  type: job.type ?? "quorum",
  delays: job.delays,
  prefetch: job.prefetch,
  ...(ledger ? { ledger } : {}),
});
const consumer = new Consumer({
  queue,
  deadLetters: rabbit.deadLetters(`${job.queue}.dead`),
  handler: job.isolate ? new URL("./handler.mjs", import.meta.url) : handler,
  isolate: job.isolate ? "process" : "none",
  ...(job.isolate ? { worker: { heapLimitMb: 48 } } : {}),
  ...(job.timeoutMs ? { timeoutMs: job.timeoutMs } : {}),
  maxAttempts: job.maxAttempts ?? 3,
  concurrency: job.concurrency,
  backoff: 50,
  crashWaitsMs: [20],
  warmUpMs: 20,
  pollMs: 20,
  logger: quiet,
});
process.once("SIGTERM", () => void consumer.stop());
process.send?.("ready");
await consumer.run({ until: job.until ?? "idle" });
await rabbit.close();
await ledger?.close();
process.exit(0);
