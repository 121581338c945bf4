/** Looking at a queue's messages without taking them, and whether that is harmless. */
import type { Channel, ConsumeMessage } from "amqplib";
import { DloError } from "../../core/index.ts";
import type { Link } from "./link.ts";
import { onOwnChannel } from "./topology.ts";

/** The largest prefetch of AMQP. (Its 0, no limit, is 2,000 on quorum queues.) */
const MOST_PREFETCH = 0xffff;

/**
 * Up to `most` deliveries unacked at once, from the front: by a consumer, and by another one whenever the last has its
 * full window. Deliveries of consumers go back in their order when the channel closes; those of gets do not.
 *
 * @param onMessage answers whether it leaves the message unacked. Null: the queue was deleted.
 * @throws amqplib's error when the first consumer is refused; for a later one the channel closes.
 */
export async function consumeWhole(
  channel: Channel,
  queue: string,
  most: number,
  onMessage: (message: ConsumeMessage | null) => boolean,
  page: number = MOST_PREFETCH,
): Promise<void> {
  let room = 0;
  let asked = 0;
  const open = async (): Promise<void> => {
    const window = Math.max(1, Math.min(page, most - asked));
    room += window;
    asked += window;
    await channel.prefetch(window);
    // RabbitMQ gives back by the order of the tags.
    const consumerTag = `look-${String(asked).padStart(12, "0")}`;
    await channel.consume(queue, show, { consumerTag });
  };
  const show = (message: ConsumeMessage | null): void => {
    if (onMessage(message) && message !== null) room--;
    else return;
    if (room === 0 && asked < most) open().catch(() => channel.close().catch(() => {}));
  };
  await open();
}

/**
 * From 4.0 a quorum queue gives a message up after 20 returns, and every look is one. So there a queue is only read
 * when it surely has no limit: by the management API, or since it is as `setUpTopology` makes it, or classic.
 *
 * @param managed the limit by the management API (null: none); undefined where that cannot be asked.
 * @throws DloError UNSUPPORTED, QUEUE_NOT_FOUND, NOT_CONNECTED
 */
export async function mayLook(
  link: Link,
  queue: string,
  managed: () => Promise<number | null | undefined>,
): Promise<void> {
  const { model } = link;
  const what = `reading '${queue}'`;
  if (!model) throw new DloError("NOT_CONNECTED", `${what}: no connection to ${link.where}`);
  if (Number.parseInt(link.server.version, 10) < 4) return;
  await onOwnChannel(model, what, (channel) => channel.checkQueue(queue));
  if ((await managed().catch(() => undefined)) === null) return;
  for (const args of [{ "x-queue-type": "quorum", "x-delivery-limit": -1 }, {}]) {
    const same = onOwnChannel(model, what, (channel) =>
      channel.assertQueue(queue, { durable: true, arguments: args }),
    );
    const yes = await same.then(
      () => true,
      () => false,
    );
    if (yes) return;
  }
  throw new DloError(
    "UNSUPPORTED",
    `${what}: each look counts towards the queue's delivery limit, and at the limit RabbitMQ drops the letter. ` +
      "Make it with x-queue-type quorum and x-delivery-limit -1 and no other argument, as setUpTopology does" +
      ", or give a managementUrl that tells it has no limit",
  );
}
