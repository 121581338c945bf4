import amqp from "amqplib";
import fc from "fast-check";
import { expect, it } from "vitest";
import { Broker, type Command } from "../../../src/broker/index.ts";
import { needVhost } from "../../support/rabbitmq-node.ts";

// Topic matching: every key of a random lot against every pattern of a random lot, on the machine and on RabbitMQ.

const word = fc.constantFrom("a", "b", "", "#", "*");
const plainWord = fc.constantFrom("a", "b", "", "c");
const dotted = (words: fc.Arbitrary<string>) =>
  fc.array(words, { minLength: 1, maxLength: 5 }).map((list) => list.join("."));
const sample = (arbitrary: fc.Arbitrary<string>, count: number, seed: number) => [
  ...new Set(fc.sample(arbitrary, { numRuns: count, seed })),
];

const patterns = sample(dotted(word), 90, 7);
const keys = sample(dotted(plainWord), 70, 8);

/** For each key the patterns that match it, by asking which queues got it. */
function onMachine(): Map<string, string[]> {
  const broker = new Broker({ compat: "3.x" });
  const apply = (command: Command) => broker.apply(command, 1).reply;
  apply({ type: "open-channel", connection: 1, channel: 1 });
  apply({ type: "exchange-declare", channel: 1, exchange: "t", exchangeType: "topic" });
  for (const pattern of patterns) {
    apply({ type: "queue-declare", channel: 1, queue: `p ${pattern}` });
    apply({ type: "queue-bind", channel: 1, queue: `p ${pattern}`, exchange: "t", routingKey: pattern });
  }
  const found = new Map<string, string[]>();
  for (const key of keys) {
    apply({
      type: "publish",
      channel: 1,
      exchange: "t",
      routingKey: key,
      properties: {},
      body: new Uint8Array(),
    });
    const got = patterns.filter(
      (pattern) => apply({ type: "get", channel: 1, queue: `p ${pattern}`, noAck: true }).type === "got",
    );
    found.set(key, got);
  }
  return found;
}

it("agrees with RabbitMQ on every pair of key and pattern, empty words included", async (ctx) => {
  const vhost = await needVhost(ctx, "topic");
  const connection = await amqp.connect(vhost.url, { noDelay: true });
  try {
    const channel = await connection.createConfirmChannel();
    const name = `topic${process.pid}${Date.now()}`;
    await channel.assertExchange(name, "topic", { durable: false, autoDelete: true });
    const got = new Map<string, string[]>(keys.map((key) => [key, []]));
    // One queue a pattern; which of them got a key is read off the queue a message came from.
    for (const pattern of patterns) {
      const own = (await channel.assertQueue("", { exclusive: true })).queue;
      await channel.bindQueue(own, name, pattern);
      await channel.consume(own, (message) => message && got.get(message.fields.routingKey)?.push(pattern), {
        noAck: true,
      });
    }
    for (const key of keys) channel.publish(name, key, Buffer.alloc(0));
    await channel.waitForConfirms();
    const expected = onMachine();
    const total = (found: Map<string, string[]>) =>
      [...found.values()].reduce((sum, list) => sum + list.length, 0);
    const until = Date.now() + 5_000;
    while (total(got) < total(expected) && Date.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 20));
    for (const list of got.values()) list.sort((a, b) => patterns.indexOf(a) - patterns.indexOf(b));
    expect(Object.fromEntries(got)).toEqual(Object.fromEntries(expected));
    expect(total(got)).toBeGreaterThan(300);
    console.log(`${keys.length * patterns.length} pairs compared, ${total(got)} matched`);
  } finally {
    await connection.close();
  }
});
