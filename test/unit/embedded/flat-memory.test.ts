import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import { PermanentError } from "../../../src/core/index.ts";
import { type EmbeddedBroker, openBroker } from "../../../src/engines/embedded/index.ts";

const ROUND = 1_000;
const BODY = { order: 1, pad: "x".repeat(1_000) };

/** Bytes in use once everything that can go is gone. */
function inUse(): number {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  gc();
  gc();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

async function consumed(broker: EmbeddedBroker, fails: boolean): Promise<void> {
  const queue = broker.queue("q");
  await queue.sendMany(Array.from({ length: ROUND }, () => ({ body: BODY })));
  const consumer = new Consumer({
    queue,
    deadLetters: broker.deadLetters("q.dead"),
    concurrency: 50,
    logger: null,
    handler: () => {
      if (fails) throw new PermanentError("no");
    },
  });
  await consumer.run({ until: "idle" });
  await queue.close();
}

async function onChannel(broker: EmbeddedBroker): Promise<void> {
  const channel = await broker.createConfirmChannel();
  await channel.assertQueue("c", { deadLetterExchange: "", deadLetterRoutingKey: "c.dead" });
  await channel.assertQueue("c.dead", { maxLength: 10 });
  await channel.prefetch(50);
  let seen = 0;
  let finish = (): void => {};
  const all = new Promise<void>((done) => {
    finish = done;
  });
  await channel.consume("c", (message) => {
    if (message === null) return;
    if (++seen % 3 === 0) channel.reject(message, false);
    else channel.ack(message);
    if (seen === ROUND) finish();
  });
  for (let n = 0; n < ROUND; n++)
    channel.sendToQueue("c", Buffer.alloc(1_000, 1), { persistent: n % 2 === 0 });
  await channel.waitForConfirms();
  await all;
  await channel.close();
}

const WORKS = {
  "messages that are handled": (broker: EmbeddedBroker) => consumed(broker, false),
  "messages that end as letters": (broker: EmbeddedBroker) => consumed(broker, true),
  "messages of channels, acked and rejected": onChannel,
};

test.each(Object.entries(WORKS))(
  "a broker does not grow with the number of %s",
  async (_name, work) => {
    const broker = openBroker(":memory:");
    try {
      for (let round = 0; round < 3; round++) await work(broker);
      const before = inUse();
      for (let round = 0; round < 4; round++) await work(broker);
      // What is known of letters and the records of recent messages may stay; a message of 1 KB must not.
      expect((inUse() - before) / (4 * ROUND)).toBeLessThan(400);
    } finally {
      await broker.close();
    }
  },
  60_000,
);
