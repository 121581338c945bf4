import { connect } from "amqplib";
import { expect, onTestFinished, test } from "vitest";
import { Consumer } from "../../../src/consumer/index.ts";
import { startBroker } from "../../../src/dev/index.ts";
import { connectRabbitMQ, type RabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import { management, needVhost } from "../../support/rabbitmq-node.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";

async function open(url: string, lines: string[] = []): Promise<RabbitMQ> {
  const say = (message: string): void => void lines.push(message);
  const rabbit = await connectRabbitMQ({ url, logger: { info: say, warn: say, error: say } });
  onTestFinished(() => rabbit.close());
  return rabbit;
}

/** A consumer that runs until it is stopped, and that has joined. */
async function working(rabbit: RabbitMQ, maxAttempts: number, name = "work") {
  const queue = rabbit.queue(name, { delays: [] });
  const handled: string[] = [];
  const consumer = new Consumer({
    queue,
    deadLetters: rabbit.deadLetters(`${name}.dead`),
    handler: ({ id }) => void handled.push(id),
    maxAttempts,
    pollMs: 5,
    logger: null,
  });
  const idle = new Promise<void>((resolve) => consumer.on("idle", () => resolve()));
  const run = consumer.run();
  await Promise.race([idle, run]);
  return {
    handled,
    async stop() {
      await consumer.stop();
      await run;
      await queue.close();
    },
  };
}

const clash = {
  code: "CONFLICT",
  message: /'work' has consumers with maxAttempts 3, this one asks for 5; expected the same number/,
};

for (const kind of ["RabbitMQ", "the embedded broker over AMQP"]) {
  test(`${kind}: a consumer with another maxAttempts is refused while one works, and taken when all have stopped`, async (ctx) => {
    const embedded = kind === "RabbitMQ" ? null : await startBroker();
    onTestFinished(() => embedded?.close());
    const { url } = embedded ?? (await needVhost(ctx));
    const [one, two, three] = [await open(url), await open(url), await open(url)];
    await one.setUpTopology({ queue: "work", delays: [] });
    const first = await working(one, 3);
    await expect(working(two, 5)).rejects.toMatchObject(clash);
    const second = await working(two, 3);
    await first.stop();
    await expect(working(three, 5)).rejects.toMatchObject(clash);
    await second.stop();
    const third = await working(three, 5);
    await one.queue("work", { delays: [] }).send("x", "x");
    await expect.poll(() => third.handled, { timeout: 10_000 }).toEqual(["x"]);
    await third.stop();
  });
}

test("the number goes with a process that dies, and comes back with a connection that does", async (ctx) => {
  const { url } = await needVhost(ctx);
  const proxy = await tcpProxy(url);
  onTestFinished(() => proxy.close());
  const one = await open(proxy.through(url));
  const two = await open(url);
  await two.setUpTopology({ queue: "work", delays: [] });
  await working(one, 3);
  proxy.cut();
  await expect.poll(() => one.status.connected, { timeout: 10_000 }).toBe(true);
  await expect
    .poll(
      () =>
        working(two, 5)
          .then(({ stop }) => stop().then(() => "taken"))
          .catch(({ code }) => code),
      {
        timeout: 10_000,
      },
    )
    .toBe("CONFLICT");
  await one.close();
  const other = await working(two, 5);
  await other.stop();
});

test("who may not declare the queue that tells works all the same, and says so; so does who finds another in its place", async (ctx) => {
  const vhost = await needVhost(ctx);
  const rabbit = await open(vhost.url);
  await rabbit.setUpTopology({ queue: "work", delays: [] });
  await rabbit.setUpTopology({ queue: "other", delays: [] });
  const plain = await connect(vhost.url, { noDelay: true });
  onTestFinished(() => plain.close());
  const channel = await plain.createChannel();
  await channel.assertQueue("other.workers", { durable: true });
  const lines: string[] = [];
  const beside = await working(await open(vhost.url, lines), 3, "other");
  expect(lines.join("\n")).toMatch(/queue 'other' with another maxAttempts is not known.*somebody else's/);
  await beside.stop();
  if (!vhost.managementUrl) return;
  const user = `bound-${vhost.name}`;
  await management(vhost, "PUT", `/api/users/${user}`, { password: "p", tags: "" });
  onTestFinished(() => management(vhost, "DELETE", `/api/users/${user}`).then(() => {}));
  const rights = { configure: "^$", write: ".*", read: ".*" };
  await management(vhost, "PUT", `/api/permissions/${vhost.name}/${user}`, rights);
  const url = new URL(vhost.url);
  url.username = user;
  url.password = "p";
  const bound = await working(await open(url.href, lines), 3);
  expect(lines.join("\n")).toMatch(/queue 'work' with another maxAttempts is not known.*access/is);
  await bound.stop();
});
