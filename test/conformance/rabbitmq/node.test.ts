import { connect } from "amqplib";
import { expect, test } from "vitest";
import { needPrivateRabbit, needRabbit, needVhost, sharedRabbit } from "../../support/rabbitmq-node.ts";

test("the run's RabbitMQ is one node, and each test has a virtual host of its own", async (ctx) => {
  const server = await needRabbit(ctx);
  expect(await sharedRabbit()).toEqual(server);
  const one = await needVhost(ctx);
  const two = await needVhost(ctx);
  if (one.name !== null) expect(one.url).not.toBe(two.url);
  const connection = await connect(one.url, { noDelay: true });
  const channel = await connection.createChannel();
  await channel.assertQueue("q", { durable: true });
  channel.sendToQueue("q", Buffer.from("x"));
  await channel.close();
  await connection.close();
});

test("a private node keeps durable messages over kill -9 and a restart", async (ctx) => {
  const node = await needPrivateRabbit(ctx);
  let connection = await connect(node.url, { noDelay: true });
  connection.on("error", () => {});
  const confirm = await connection.createConfirmChannel();
  // Classic: 3.10 writes a new quorum queue's election record late, and killed within about 3 s of the
  // declaration such a queue never has a leader again. Tests that kill a node wait that long first.
  await confirm.assertQueue("q", { durable: true });
  confirm.sendToQueue("q", Buffer.from("kept"), { persistent: true });
  await confirm.waitForConfirms();
  confirm.on("error", () => {});
  await node.restart();
  connection = await connect(node.url, { noDelay: true });
  connection.on("error", () => {});
  const channel = await connection.createChannel();
  const message = await channel.get("q", { noAck: true });
  expect(message ? message.content.toString() : null).toBe("kept");
  await connection.close();
});
