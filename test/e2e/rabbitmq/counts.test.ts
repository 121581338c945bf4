import { connect } from "amqplib";
import { expect, onTestFinished, type TestContext, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import { lookAt } from "../../../src/engines/rabbitmq/counts.ts";
import { connectRabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import { needPrivateRabbit } from "../../support/rabbitmq-node.ts";

/** Stops the process of a quorum queue, as a slow disk or an election does; answers what lets it go on. */
async function silenced(
  server: { ctl(...args: string[]): Promise<string> },
  queue: string,
): Promise<() => Promise<string>> {
  const call = (what: string): Promise<string> =>
    server.ctl("eval", `sys:${what}(erlang:whereis('%2F_${queue}')).`);
  expect(await call("suspend")).toMatch(/ok/);
  let silent = true;
  const goOn = async (): Promise<string> => {
    if (!silent) return "";
    silent = false;
    return call("resume");
  };
  onTestFinished(() => goOn().then(() => {}));
  return goOn;
}

async function world(ctx: TestContext) {
  const server = await needPrivateRabbit(ctx);
  const rabbit = await connectRabbitMQ({ url: server.url });
  onTestFinished(() => rabbit.close());
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  return { server, rabbit, queue: rabbit.queue("work", { delays: [] }) };
}

test("RabbitMQ says 0 for a quorum queue that does not answer in 250 ms: it is asked again", async (ctx) => {
  const { server, queue } = await world(ctx);
  for (const id of ["a", "b", "c"]) await queue.send(id, id);
  const connection = await connect(server.url);
  onTestFinished(() => connection.close());
  const channel = await connection.createChannel();
  const goOn = await silenced(server, "work");
  // What the checks below would believe.
  expect(await channel.checkQueue("work")).toMatchObject({ messageCount: 0, consumerCount: 0 });
  const asked = Promise.all([
    queue.pending(),
    lookAt(channel, "work").then(({ messageCount }) => messageCount),
  ]);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await goOn();
  expect(await asked).toEqual([3, 3]);

  // One that tells nothing for ten seconds is an error that names it.
  const last = await silenced(server, "work");
  await expect(queue.pending()).rejects.toMatchObject({
    code: "TIMED_OUT",
    message: expect.stringContaining("queue 'work' does not tell"),
  });
  await last();
  expect(await queue.pending()).toBe(3);
});

test("letters of a dead-letter queue that is slow for a moment are listed and replayed all the same", async (ctx) => {
  const { server, rabbit, queue } = await world(ctx);
  const dead = rabbit.deadLetters("work.dead");
  for (const id of ["a", "b"]) {
    await queue.send(id, id);
    const message = await queue.receive();
    await dead.put({
      id,
      body: id,
      reason: "permanent",
      error: "Error: no",
      attempts: 1,
      firstAttemptAt: 1,
      failedAt: 2,
      sourceQueue: "work",
    });
    await queue.ack(message?.id as string, message?.receipt);
  }
  let goOn = await silenced(server, "work.dead");
  const listed = dead.list();
  await new Promise((resolve) => setTimeout(resolve, 700));
  await goOn();
  expect((await listed).map(({ id }) => id)).toEqual(["a", "b"]);
  goOn = await silenced(server, "work.dead");
  const replayed = rabbit.replay({ from: "work.dead" });
  await new Promise((resolve) => setTimeout(resolve, 700));
  await goOn();
  expect(await replayed).toEqual({ sent: ["a", "b"], failed: [] });
});

test("a suspects queue that is silent keeps no message from being handled", async (ctx) => {
  const { server, rabbit, queue } = await world(ctx);
  const connection = await connect(server.url);
  onTestFinished(() => connection.close());
  const channel = await connection.createChannel();
  await queue.send("a", "a");
  const goOn = await silenced(server, "work.suspects");
  const handled: string[] = [];
  const consumer = new Consumer({
    queue: rabbit.queue("work", { delays: [], prefetch: 5 }),
    deadLetters: rabbit.deadLetters("work.dead"),
    handler: ({ id }) => void handled.push(id),
    logger: null,
  });
  const run = consumer.run();
  await expect.poll(() => handled, { timeout: 10_000 }).toEqual(["a"]);
  await expect
    .poll(async () => (await lookAt(channel, "work")).consumerCount, { timeout: 10_000 })
    .toBeGreaterThan(0);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect((await lookAt(channel, "work")).consumerCount).toBe(1);
  await goOn();
  await queue.send("b", "b");
  await expect.poll(() => handled, { timeout: 10_000 }).toEqual(["a", "b"]);
  await consumer.stop();
  await run;
});
