import { describe, expect, it, onTestFinished } from "vitest";
import { checkLettersKept, startBroker } from "../../../src/dev/index.ts";
import { Consumer, openBroker } from "../../../src/index.ts";

function opened() {
  const broker = openBroker({ file: ":memory:" });
  onTestFinished(() => broker.close());
  return broker;
}

describe("before a consumer starts", () => {
  it("refuses a queue whose letters would vanish, naming it, where they end and what to do", async () => {
    const broker = opened();
    const channel = await broker.createChannel();
    await channel.assertExchange("dlx", "direct");
    await channel.assertExchange("dlx.fanout", "fanout");
    await channel.assertQueue("dlq");
    await channel.bindQueue("dlq", "dlx", "dead");
    await channel.assertQueue("one", { deadLetterExchange: "no.such.exchange" });
    await channel.assertQueue("two", { deadLetterExchange: "dlx" });
    await channel.assertQueue("three", { deadLetterExchange: "dlx.fanout" });
    const refused = (queue: string) => checkLettersKept({ queue, broker }).catch((error) => error);
    expect(await refused("one")).toMatchObject({
      code: "REFUSED",
      message: expect.stringMatching(
        /queue 'one': .*'no\.such\.exchange' does not exist.*; declare exchange no\.such\.exchange/,
      ),
    });
    expect(await refused("two")).toMatchObject({
      code: "REFUSED",
      message: expect.stringMatching(
        /queue 'two': .* at 'dlx'.* key 'two'; set x-dead-letter-routing-key to 'dead'/,
      ),
    });
    expect(await refused("three")).toMatchObject({
      code: "REFUSED",
      message: expect.stringMatching(/queue 'three': .* at 'dlx\.fanout'/),
    });
    await channel.bindQueue("dlq", "dlx", "two");
    await checkLettersKept({ queue: "two", broker });
  });

  it("lets a queue pass in which the broker kills nothing; with a limit and no exchange it refuses", async () => {
    const broker = opened();
    await checkLettersKept({ queue: broker.queue("jobs").name, broker });
    const channel = await broker.createChannel();
    for (const [name, limit, fix] of [
      ["timed", { messageTtl: 1000 }, /what expires is gone.*; .*x-dead-letter-exchange/],
      ["short", { maxLength: 10 }, /length limit pushes out is gone.*; .*x-dead-letter-exchange/],
      [
        "counted",
        { arguments: { "x-queue-type": "quorum" } },
        /delivery limit is gone.*; .*x-dead-letter-exchange/,
      ],
    ] as const) {
      await channel.assertQueue(name, limit);
      await expect(checkLettersKept({ queue: name, broker })).rejects.toMatchObject({
        code: "REFUSED",
        message: expect.stringMatching(fix),
      });
    }
  });

  it("refuses a dead-letter queue that drops what it was given, and a queue that is its own", async () => {
    const broker = opened();
    const channel = await broker.createChannel();
    await channel.assertQueue("orders", { deadLetterExchange: "", deadLetterRoutingKey: "orders.dlq" });
    await channel.assertQueue("orders.dlq", { messageTtl: 60_000 });
    await expect(checkLettersKept({ queue: "orders", broker })).rejects.toThrow(
      /queue 'orders': after 1 min, letters disappear from orders\.dlq/,
    );
    await channel.assertQueue("self", { deadLetterExchange: "", deadLetterRoutingKey: "self" });
    await expect(checkLettersKept({ queue: "self", broker })).rejects.toThrow(/straight back to it/);
  });

  it("names a queue, a virtual host and a place that are not there", async () => {
    const broker = opened();
    await expect(checkLettersKept({ queue: "none", broker })).rejects.toMatchObject({
      code: "QUEUE_NOT_FOUND",
    });
    await expect(checkLettersKept({ queue: "q", broker, vhost: "other" })).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
    await expect(checkLettersKept({ queue: "q" })).rejects.toMatchObject({ code: "BAD_ARGUMENT" });
  });

  it("asks a management API, here the one of the served broker", async () => {
    await using server = await startBroker({ management: true });
    const channel = await server.broker.createChannel();
    await channel.assertQueue("orders", { deadLetterExchange: "no.such" });
    const managementUrl = (server.managementUrl as string).replace("//", "//guest:guest@");
    await expect(checkLettersKept({ queue: "orders", managementUrl })).rejects.toMatchObject({
      code: "REFUSED",
      message: expect.stringContaining("'no.such' does not exist"),
    });
    await channel.assertExchange("no.such", "fanout");
    await channel.assertQueue("orders.dlq");
    await channel.bindQueue("orders.dlq", "no.such", "");
    await checkLettersKept({ queue: "orders", managementUrl });
  });

  it("stands before the run of a consumer", async () => {
    const broker = opened();
    const queue = broker.queue("orders");
    await queue.send({ price: 5 });
    let handled = 0;
    const consumer = new Consumer({
      queue,
      deadLetters: broker.deadLetters("orders.dead"),
      handler: () => void handled++,
    });
    await checkLettersKept({ queue: "orders", broker });
    await consumer.run({ until: "idle" });
    expect(handled).toBe(1);
  });
});
