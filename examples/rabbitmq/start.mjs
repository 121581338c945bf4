// Orders on a real RabbitMQ: one goes through, one is retried, one is wrong for good, one kills its process.
// usage: AMQP_URL=amqp://localhost node examples/rabbitmq/start.mjs      (build dist/ first: npm run build)

import { connectRabbitMQ } from "../../dist/engines/rabbitmq/index.js";
import { Consumer } from "../../dist/index.js";

const url = process.env.AMQP_URL ?? "amqp://localhost";
const rabbit = await connectRabbitMQ({ url }).catch((error) => {
  console.error(`${error.message}\nSet AMQP_URL to a RabbitMQ you may declare queues on.`);
  process.exit(1);
});
console.log(`connected to ${rabbit.server.product} ${rabbit.server.version}`);

// A queue of this run's own, with everything around it: retry ladder, suspects, dead letters, parking.
const work = `dlo-example-${process.pid}`;
const delays = [200, 1_000];
const { deadLetters } = await rabbit.setUpTopology({ queue: work, delays });
const queue = rabbit.queue(work, { delays, prefetch: 20 });

await queue.send({ item: "book", price: 12 }, "good");
await queue.send({ item: "lamp", price: 30, flaky: true }, "flaky");
await queue.send({ item: "chair", price: -1 }, "wrong");
await queue.send({ item: "pill", poison: true }, "poison");

const consumer = new Consumer({
  queue,
  deadLetters: rabbit.deadLetters(deadLetters),
  handler: new URL("./handler.mjs", import.meta.url),
  isolate: "process", // the poison pill costs one child, not this process
  concurrency: 2,
  backoff: { baseMs: 200, factor: 2 },
  crashWaitsMs: [200],
  logger: null,
});
consumer.on("handled", ({ id, attempt }) => console.log(`handled  ${id} (attempt ${attempt})`));
consumer.on("retried", ({ id, attempt, error }) =>
  console.log(`retried  ${id} (attempt ${attempt}): ${error ?? "its process died"}`),
);
consumer.on("dead", ({ id, reason, error }) =>
  console.log(`dead     ${id}: ${reason}${error ? `, ${error}` : ""}`),
);
await consumer.run({ until: "idle" });
await queue.close(); // a window that nobody empties would keep what is sent later

const letters = await rabbit.deadLetters(deadLetters).list();
console.log(`\n${letters.length} dead letters in ${deadLetters}:`);
for (const { id, reason, error, attempts } of letters)
  console.log(`  ${id}  ${reason}  ${attempts} attempts  ${error ?? ""}`);

// The price was corrected at its source: send that one back. It starts again at attempt 1.
const { sent, failed } = await rabbit.replay({ from: deadLetters, ids: ["wrong"] });
console.log(`replayed ${sent.join(", ")}${failed.map(({ id, why }) => `; ${id} not: ${why}`).join("")}`);
const again = await rabbit.queue(work, { delays }).receive();
console.log(`in the queue again: ${again?.id}, attempt ${again?.receiveCount}, life ${again?.generation}`);
await rabbit.close();

// This example's queues go; yours stay.
const { connect } = await import("amqplib");
const connection = await connect(url, { noDelay: true });
const channel = await connection.createChannel();
for (const name of [
  work,
  deadLetters,
  `${work}.parking`,
  `${work}.suspects`,
  ...delays.map((ms) => `${work}.retry.${ms}`),
]) {
  await channel.deleteQueue(name);
}
await channel.close();
await connection.close();
