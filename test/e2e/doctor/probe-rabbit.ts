/** A virtual host of a real RabbitMQ as a broker to probe. */
import { connect } from "amqplib";
import type { Definitions, ProbeBroker } from "../../rules/topology/probe.ts";
import { freshVhost, management, type RabbitServer } from "../../support/rabbitmq-node.ts";

export interface RabbitProbe extends ProbeBroker {
  close(): Promise<void>;
}

/** Imports the definitions into a virtual host of their own. */
export async function rabbitWith(server: RabbitServer, definitions: Definitions): Promise<RabbitProbe> {
  const vhost = await freshVhost(server, "probe");
  const path = `/api/definitions/${encodeURIComponent(vhost.name!)}`;
  await management(server, "POST", path, definitions);
  const overview = (await management(server, "GET", "/api/overview")) as { rabbitmq_version: string };
  const connection = await connect(vhost.url, { noDelay: true });
  connection.on("error", () => {});
  const channel = await connection.createConfirmChannel();
  return {
    version: overview.rabbitmq_version,
    async publish(exchange, key, id) {
      await new Promise<void>((done, failed) => {
        const options = { messageId: id, persistent: true };
        channel.publish(exchange, key, Buffer.from("x"), options, (error) =>
          error ? failed(error) : done(),
        );
      }).catch(() => {}); // a full queue that refuses answers with a nack
    },
    async get(queue) {
      const got = await channel.get(queue);
      return got ? { id: String(got.properties.messageId), tag: got.fields.deliveryTag } : null;
    },
    async ack(tag) {
      channel.ack({ fields: { deliveryTag: tag } } as never);
    },
    async reject(tag, requeue) {
      channel.reject({ fields: { deliveryTag: tag } } as never, requeue);
    },
    visited: () => null,
    wait: (ms) => new Promise((done) => setTimeout(done, ms)),
    async close() {
      await channel.close().catch(() => {});
      await connection.close().catch(() => {});
      await vhost.drop();
    },
  };
}
