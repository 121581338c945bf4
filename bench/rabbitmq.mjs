// The RabbitMQ engine beside plain amqplib and rascal on the same broker (DLO_RABBITMQ_URL, or a private node).
// Build dist/ first. JSON lines go to stdout, a table to stderr. usage: node bench/rabbitmq.mjs [--quick] [--only=words of a row]

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import amqplib from "amqplib";
import rascal from "rascal";
import { connectRabbitMQ, openLedger } from "../dist/engines/rabbitmq/index.js";
import { Consumer } from "../dist/index.js";
import {
  freshVhost,
  management,
  NO_RABBITMQ,
  sharedRabbit,
  startPrivateRabbit,
} from "../test/support/rabbitmq-node.mjs";

const quick = process.argv.includes("--quick");
const only = process.argv.find((word) => word.startsWith("--only="))?.slice(7);
const COUNT = quick ? 2_000 : 20_000;
const ROUNDS = quick ? 1 : 3;
const BODY = Buffer.from(JSON.stringify({ order: 17, pad: "x".repeat(990) }));
const rows = [];
const silent = { info() {}, warn() {}, error() {} };
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function report(row) {
  rows.push(row);
  console.log(JSON.stringify({ bench: "rabbitmq", ...row }));
}

// Of our own where we may choose: the shovel is a plugin.
const own = process.env.DLO_RABBITMQ_URL ? null : await startPrivateRabbit({ plugins: ["rabbitmq_shovel"] });
const server = own ?? (await sharedRabbit());
if (!server) {
  console.error(NO_RABBITMQ);
  process.exit(0);
}
const vhost = await freshVhost(server, "bench");
const plain = await amqplib.connect(vhost.url, { noDelay: true });
const tools = await plain.createConfirmChannel();
let made = 0;

/** A fresh quorum work queue with everything around it, filled with `count` messages. */
async function filled(rabbit, count, delays = []) {
  const queue = `q${++made}`;
  await rabbit.setUpTopology({ queue, delays });
  for (let n = 0; n < count; n++) {
    tools.sendToQueue(queue, BODY, { persistent: true, contentType: "application/json", messageId: `m${n}` });
    if (n % 1_000 === 999) await tools.waitForConfirms();
  }
  await tools.waitForConfirms();
  return queue;
}

/** Messages a second of a work that says when it has `count`. */
async function rate(count, start) {
  let done;
  const all = new Promise((resolve) => (done = resolve));
  let seen = 0;
  const from = performance.now();
  const stop = await start(() => ++seen === count && done(performance.now()));
  const until = await all;
  await stop();
  return (count / (until - from)) * 1000;
}

/** What amqplib alone needs: consume, parse, ack. */
async function plainConsume(queue, count) {
  const channel = await plain.createChannel();
  await channel.prefetch(100);
  return await rate(count, async (tick) => {
    const { consumerTag } = await channel.consume(queue, (message) => {
      JSON.parse(message.content.toString());
      channel.ack(message);
      tick();
    });
    return async () => {
      await channel.cancel(consumerTag);
      await channel.close();
    };
  });
}

async function ours(rabbit, queue, count, { handler = () => {}, when = "handled", ...more } = {}) {
  const port = rabbit.queue(queue, { delays: [], prefetch: 100, ...more.queue });
  const consumer = new Consumer({
    queue: port,
    deadLetters: rabbit.deadLetters(`${queue}.dead`),
    handler,
    concurrency: 100,
    backoff: 0,
    logger: null,
    ...more.consumer,
  });
  const figure = await rate(count, (tick) => {
    consumer.on(when, tick);
    const running = consumer.run();
    return async () => {
      await consumer.stop();
      await running;
      await port.close();
    };
  });
  return figure;
}

/** rascal's own answer to a failing message: republish it, and at last nack it to the dead letter exchange. */
async function rascalRepublish(count) {
  const queue = `q${++made}`;
  const broker = await rascal.BrokerAsPromised.create(
    rascal.withDefaultConfig({
      vhosts: {
        [vhost.name ?? "/"]: {
          connection: { url: vhost.url },
          exchanges: [`${queue}.x`],
          queues: {
            [queue]: {
              options: {
                arguments: {
                  "x-queue-type": "quorum",
                  "x-dead-letter-exchange": "",
                  "x-dead-letter-routing-key": `${queue}.dead`,
                },
              },
            },
            [`${queue}.dead`]: { options: { arguments: { "x-queue-type": "quorum" } } },
          },
          bindings: [`${queue}.x -> ${queue}`],
          publications: { work: { queue } },
          subscriptions: { work: { queue, prefetch: 100, contentType: "application/json" } },
        },
      },
    }),
  );
  broker.on("error", () => {});
  for (let n = 0; n < count; n++) {
    tools.sendToQueue(queue, BODY, { persistent: true, contentType: "application/json", messageId: `m${n}` });
  }
  await tools.waitForConfirms();
  const subscription = await broker.subscribe("work");
  subscription.on("error", () => {});
  const recovery = [{ strategy: "republish", attempts: 2 }, { strategy: "nack" }];
  const figure = await rate(count, async (tick) => {
    subscription.on("message", (_message, _content, ackOrNack) => ackOrNack(new Error("no"), recovery));
    const timer = setInterval(async () => {
      const { messageCount } = await tools.checkQueue(`${queue}.dead`);
      if (messageCount >= count) {
        clearInterval(timer);
        for (let n = 0; n < count; n++) tick();
      }
    }, 20);
    return async () => clearInterval(timer);
  });
  await broker.shutdown();
  return figure;
}

/** The bare calls of two retries and a letter: what the broker and amqplib allow at most, one frame a settlement. */
async function plainRetries(count) {
  const queue = await filled(rabbit, count);
  const channel = await plain.createConfirmChannel();
  await channel.prefetch(100);
  return await rate(count, async (tick) => {
    await channel.consume(queue, (message) => {
      const returns = message.fields.redelivered ? message.properties.headers["x-delivery-count"] : 0;
      if (returns < 2) return channel.reject(message, true);
      channel.sendToQueue(
        `${queue}.dead`,
        message.content,
        { ...message.properties, mandatory: true },
        () => {
          channel.ack(message);
          tick();
        },
      );
    });
    return () => channel.close();
  });
}

/** A dead-letter queue with LETTERS letters of its work queue. */
async function letters() {
  const queue = await filled(rabbit, 0);
  for (let n = 0; n < LETTERS; n++) {
    tools.sendToQueue(`${queue}.dead`, BODY, {
      persistent: true,
      contentType: "application/json",
      messageId: `m${n}`,
      headers: { "x-dlo-reason": "exhausted", "x-dlo-source-queue": queue, "x-dlo-attempts": 3 },
    });
    if (n % 1_000 === 999) await tools.waitForConfirms();
  }
  await tools.waitForConfirms();
  return queue;
}

async function replay() {
  const queue = await letters();
  const from = performance.now();
  const { sent } = await rabbit.replay({ from: `${queue}.dead` });
  return (sent.length / (performance.now() - from)) * 1000;
}

async function plainReplay() {
  const queue = await letters();
  const channel = await plain.createConfirmChannel();
  await channel.prefetch(500);
  return await rate(LETTERS, async (tick) => {
    await channel.consume(`${queue}.dead`, (message) => {
      channel.sendToQueue(queue, message.content, { ...message.properties }, () => {
        channel.ack(message);
        tick();
      });
    });
    return () => channel.close();
  });
}

/** RabbitMQ's own way: a dynamic shovel that ends with the letters that are there; null without the plugin. */
async function shovelled() {
  const queue = await letters();
  const path = `/api/parameters/shovel/${encodeURIComponent(vhost.name)}/${queue}`;
  const from = performance.now();
  try {
    await management(server, "PUT", path, {
      value: {
        "src-protocol": "amqp091",
        "src-uri": vhost.url,
        "src-queue": `${queue}.dead`,
        "src-delete-after": "queue-length",
        "src-prefetch-count": 1_000,
        "dest-protocol": "amqp091",
        "dest-uri": vhost.url,
        "dest-queue": queue,
        "ack-mode": "on-confirm",
      },
    });
  } catch (error) {
    console.error(`no shovel here: ${error.message}`);
    return null;
  }
  while ((await tools.checkQueue(queue)).messageCount < LETTERS) await pause(10);
  return (LETTERS / (performance.now() - from)) * 1000;
}

/** Ours and its peers in turn, round by round; a row for each peer. A peer that answers null is left out. */
async function inTurn(name, ours, peers) {
  if (only !== undefined && !name.includes(only)) return;
  const works = [{ run: ours }, ...peers];
  const figures = works.map(() => []);
  for (let round = 0; round < ROUNDS; round++) {
    const order = round % 2 === 0 ? [...works.keys()] : [...works.keys()].reverse();
    for (const at of order) figures[at].push(await works[at].run());
  }
  const [own, ...others] = figures;
  for (const [at, { against, must = null }] of peers.entries()) {
    if (others[at].includes(null)) continue;
    const ratio = median(own.map((figure, round) => figure / others[at][round]));
    report({
      row: name,
      against,
      ratio: Number(ratio.toFixed(2)),
      must,
      perSecond: Math.round(median(own)),
      peerPerSecond: Math.round(median(others[at])),
    });
  }
}

const rabbit = await connectRabbitMQ({ url: vhost.url, logger: silent });
const folder = mkdtempSync(join(tmpdir(), "dlo-bench-"));
const ledger = await openLedger(join(folder, "starts.db"));
const fail = () => {
  throw new Error("no");
};

const plainAmqplib = (count) => async () => plainConsume(await filled(rabbit, count), count);
await inTurn(
  "consume + ack through Consumer, prefetch 100",
  async () => ours(rabbit, await filled(rabbit, COUNT), COUNT),
  [{ against: "plain amqplib", must: 0.85, run: plainAmqplib(COUNT) }],
);
await inTurn(
  "the same, starts counted in a ledger",
  async () => ours(rabbit, await filled(rabbit, COUNT), COUNT, { queue: { ledger } }),
  [{ against: "plain amqplib", run: plainAmqplib(COUNT) }],
);
const ISOLATED = Math.round(COUNT / 5);
await inTurn(
  "the same, handlers in two child processes",
  async () =>
    ours(rabbit, await filled(rabbit, ISOLATED), ISOLATED, {
      handler: new URL("./worker/handler.mjs", import.meta.url),
      consumer: { isolate: "process", concurrency: 2 },
    }),
  [{ against: "plain amqplib", run: plainAmqplib(ISOLATED) }],
);
const FAILING = quick ? 500 : 5_000;
await inTurn(
  "two retries, then dead-lettered",
  async () => ours(rabbit, await filled(rabbit, FAILING), FAILING, { handler: fail, when: "dead" }),
  [
    {
      against: "rascal's republish recovery",
      must: 40,
      run: () => rascalRepublish(quick ? 100 : 300),
    },
    { against: "plain amqplib: returned twice, published, acked", run: () => plainRetries(FAILING) },
  ],
);
const LETTERS = quick ? 5_000 : 100_000;
await inTurn("replay from a dead letter queue", replay, [
  { against: "a shovel, on-confirm", must: 0.75, run: shovelled },
  { against: "a plain amqplib loop with confirms", run: plainReplay },
]);

console.error("\nrow | against | ratio | must | per second | peer");
for (const { row, against, ratio, must, perSecond, peerPerSecond } of rows) {
  console.error(`${row} | ${against} | ${ratio} | ${must ?? "-"} | ${perSecond} | ${peerPerSecond}`);
}
await rabbit.close();
await ledger.close();
await plain.close();
await vhost.drop();
await own?.close();
rmSync(folder, { recursive: true, force: true });
await pause(50);
process.exit(0);
