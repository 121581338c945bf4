import { type Channel, Consumer, Held } from "./consumers.ts";
import { hold, takeFor, wasDelivered, withCount } from "./deliver.ts";
import { stateOf } from "./entry.ts";
import { AmqpError } from "./errors.ts";
import { expireHeads, renewLease } from "./expiry.ts";
import type { Machine } from "./machine.ts";
import { removeConsumer } from "./queue-commands.ts";
import { consumeReplies, endReplies, REPLY_TO } from "./reply-to.ts";
import type { CommandOf, Reply } from "./types.ts";
import { checkName, integerOf, typeName } from "./values.ts";

export function consume(m: Machine, channel: Channel, c: CommandOf<"consume">): Reply {
  checkName("consumer tag", c.consumerTag);
  if (c.queue === REPLY_TO) return consumeReplies(m, channel, c);
  const queue = m.queue(c.queue, channel);
  const object = m.name("queue", queue.record.name);
  const { replies } = channel;
  if (
    c.consumerTag !== "" &&
    (channel.consumers.has(c.consumerTag) || replies?.consumerTag === c.consumerTag)
  ) {
    throw new AmqpError(530, `attempt to reuse consumer tag '${c.consumerTag}'`);
  }
  if (queue.quorum && channel.globalPrefetch > 0) {
    throw new AmqpError(540, `${object} does not support global qos`);
  }
  const exclusive = c.exclusive === true;
  if (queue.exclusiveConsumer !== undefined || (exclusive && queue.consumers.all.size > 0)) {
    throw new AmqpError(403, `${object} in exclusive use`);
  }
  const priority = priorityOf(c, object);
  const consumerTag = c.consumerTag === "" ? freshTag(channel) : c.consumerTag;
  const { prefetch } = channel;
  const rules = { noAck: c.noAck === true, exclusive, prefetch, priority };
  const consumer = new Consumer(channel, consumerTag, queue, rules);
  channel.consumers.set(consumerTag, consumer);
  queue.consumers.add(consumer);
  if (exclusive) queue.exclusiveConsumer = consumer;
  queue.active ??= consumer;
  renewLease(m, queue);
  return { type: "consume-ok", consumerTag };
}

function priorityOf(c: CommandOf<"consume">, object: string): number {
  const value = c.arguments?.get("x-priority");
  if (value === undefined) return 0;
  const n = integerOf(value);
  if (n === undefined) {
    throw new AmqpError(
      406,
      `invalid arg 'x-priority' for ${object}: "expected integer, got ${typeName(value)}"`,
    );
  }
  return n;
}

function freshTag(channel: Channel): string {
  for (;;) {
    const tag = `amq.ctag-${channel.id}.${channel.nextConsumer++}`;
    if (!channel.consumers.has(tag)) return tag;
  }
}

/** What the consumer holds stays with its channel (rule F4). A tag that is not known is fine. */
export function cancel(m: Machine, channel: Channel, c: CommandOf<"cancel">): void {
  if (channel.replies?.consumerTag === c.consumerTag) endReplies(m, channel);
  const consumer = channel.consumers.get(c.consumerTag);
  if (consumer !== undefined) removeConsumer(m, consumer, channel.connection);
}

export function get(m: Machine, channel: Channel, c: CommandOf<"get">): Reply {
  const queue = m.queue(c.queue, channel);
  renewLease(m, queue);
  expireHeads(m, queue);
  const entry = takeFor(queue, channel.connection);
  if (entry === undefined) return { type: "empty" };
  const content = m.contents.get(entry.seq);
  const deliveryTag = channel.nextTag++;
  const redelivered = wasDelivered(m, queue, entry);
  const shown = withCount(m, queue, entry, content);
  if (c.noAck) {
    entry.firstReceivedAt ||= m.now;
    m.gone(queue, entry);
  } else hold(m, queue, entry, new Held(deliveryTag, entry, queue, undefined, channel));
  // What is next may have been over its time behind this one.
  expireHeads(m, queue);
  return {
    type: "got",
    deliveryTag,
    redelivered,
    messageCount: queue.ready,
    queueId: queue.record.id,
    state: stateOf(entry),
    content: shown,
  };
}
