import { onTestFinished, type TestContext } from "vitest";
import {
  freshVhost,
  NO_RABBITMQ,
  type PrivateRabbit,
  type RabbitServer,
  sharedRabbit,
  startPrivateRabbit,
  type Vhost,
} from "./rabbitmq-node.mjs";

export * from "./rabbitmq-node.mjs";

type Skippable = Pick<TestContext, "skip">;

/** The run's RabbitMQ, or the test is skipped by name. */
export async function needRabbit(ctx: Skippable): Promise<RabbitServer> {
  const server = await sharedRabbit();
  if (!server) ctx.skip(NO_RABBITMQ);
  return server as RabbitServer;
}

/** A virtual host of this test's own on the run's RabbitMQ, dropped when the test is over; or the test is skipped. */
export async function needVhost(ctx: Skippable, label?: string): Promise<Vhost> {
  const vhost = await freshVhost(await needRabbit(ctx), label);
  onTestFinished(() => vhost.drop());
  return vhost;
}

/** A node this test may kill, closed when the test is over; or the test is skipped. */
export async function needPrivateRabbit(
  ctx: Skippable,
  options: { conf?: string; advanced?: string } = {},
): Promise<PrivateRabbit> {
  const node = await startPrivateRabbit(options);
  if (!node) ctx.skip("RabbitMQ not found: install rabbitmq-server (this test kills the node it talks to)");
  onTestFinished(() => (node as PrivateRabbit).close());
  return node as PrivateRabbit;
}
