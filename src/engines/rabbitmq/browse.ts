/** Looking at a queue's messages without taking them, and whether that is harmless. */
import type { Channel, ChannelModel, ConsumeMessage } from "amqplib";
import { DloError } from "../../core/index.ts";
import { clashOf } from "./faults.ts";
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

/** More arguments than a queue can have. */
const MOST_ARGUMENTS = 20;

/**
 * The delivery limit that a queue's arguments state, read from RabbitMQ's refusals to declare it otherwise; null: none
 * (or a classic queue, which has none); undefined: not to be found out this way. Changes nothing. The queue must exist.
 */
async function statedLimit(model: ChannelModel, queue: string): Promise<number | null | undefined> {
  const args: Record<string, unknown> = { "x-queue-type": "quorum" };
  for (let tries = 0; tries < MOST_ARGUMENTS; tries++) {
    const refusal = await onOwnChannel(model, `asking for the limit of '${queue}'`, (channel) =>
      channel.assertQueue(queue, { durable: true, arguments: args }),
    ).then(
      () => null,
      (error: unknown) => error,
    );
    if (refusal === null) return null;
    const clash = clashOf(refusal);
    if (clash?.argument === "x-queue-type") return null;
    if (clash?.argument === "x-delivery-limit") return Number(clash.current);
    if (clash === null || !clash.argument.startsWith("x-")) return undefined;
    args[clash.argument] = clash.isNumber ? Number(clash.current) : clash.current;
  }
  return undefined;
}

/**
 * Every look is a return, and after as many returns as its delivery limit a quorum queue gives a message up: from 4.0 on
 * 20 unless it states another, before that only where one is set. So a queue is only read when it has no limit: by
 * the management API, or by its arguments; from 4.0 on surely, as `setUpTopology` makes it, or classic.
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
  await onOwnChannel(model, what, (channel) => channel.checkQueue(queue));
  const known = await managed().catch(() => undefined);
  if (known === null) return;
  if (Number.parseInt(link.server.version, 10) < 4) {
    const limit = known ?? (await statedLimit(model, queue));
    if (typeof limit === "number") throw wouldCount(what, `The limit of this one is ${limit}`);
    return;
  }
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
  throw wouldCount(
    what,
    "Make it with x-queue-type quorum and x-delivery-limit -1 and no other argument, as setUpTopology does" +
      ", or give a managementUrl that tells it has no limit",
  );
}

const wouldCount = (what: string, more: string): DloError =>
  new DloError(
    "UNSUPPORTED",
    `${what}: each look counts towards the queue's delivery limit, and at the limit RabbitMQ drops the letter. ${more}`,
  );
