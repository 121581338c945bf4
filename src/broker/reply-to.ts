import type { Channel } from "./consumers.ts";
import { Entry, stateOf } from "./entry.ts";
import { AmqpError } from "./errors.ts";
import type { Machine } from "./machine.ts";
import type { CommandOf, Content, Properties, Reply } from "./types.ts";

/**
 * Direct reply-to: a client consumes this pseudo-queue and names it in replyTo; whoever answers publishes to the
 * default exchange under the name that was put in its place, and the answer goes straight to the client's channel.
 * No queue, no journal: an answer to a channel that is gone is gone.
 */
export const REPLY_TO = "amq.rabbitmq.reply-to";
const PREFIX = `${REPLY_TO}.`;

/** basic.consume of the pseudo-queue: once per channel, without acks. */
export function consumeReplies(m: Machine, channel: Channel, c: CommandOf<"consume">): Reply {
  if (c.noAck !== true) throw new AmqpError(406, "reply consumer cannot acknowledge");
  if (channel.replies !== undefined) throw new AmqpError(406, "reply consumer already set");
  if (c.consumerTag !== "" && channel.consumers.has(c.consumerTag)) {
    throw new AmqpError(530, `attempt to reuse consumer tag '${c.consumerTag}'`);
  }
  const consumerTag =
    c.consumerTag === "" ? `amq.ctag-${channel.id}.${channel.nextConsumer++}` : c.consumerTag;
  const name = `${PREFIX}${channel.id}.${m.nextName++}`;
  channel.replies = { consumerTag, name };
  m.replyNames.set(name, channel);
  return { type: "consume-ok", consumerTag };
}

/** The channel takes no more answers. */
export function endReplies(m: Machine, channel: Channel): void {
  if (channel.replies !== undefined) m.replyNames.delete(channel.replies.name);
  channel.replies = undefined;
}

/** The properties a request goes out with: replyTo names this channel. */
export function withReplyName(channel: Channel, properties: Properties): Properties {
  if (properties.replyTo !== REPLY_TO) return properties;
  if (channel.replies === undefined) throw new AmqpError(406, "fast reply consumer does not exist");
  return { ...properties, replyTo: channel.replies.name };
}

/** A passive declaration asks whether somebody still waits for the answer. */
export function describeReplies(m: Machine, name: string): Reply | undefined {
  if (name !== REPLY_TO && !m.replyNames.has(name)) return undefined;
  return { type: "queue", queue: name, messageCount: 0, consumerCount: name === REPLY_TO ? 0 : 1 };
}

/** @returns whether the message was an answer that somebody waits for */
export function deliverReply(m: Machine, content: Content): boolean {
  if (content.exchange !== "" || !content.routingKey.startsWith(PREFIX)) return false;
  const channel = m.replyNames.get(content.routingKey);
  if (channel?.replies === undefined) return false;
  const seq = m.nextSeq++;
  m.effects.push({
    type: "deliver",
    channel: channel.id,
    consumerTag: channel.replies.consumerTag,
    deliveryTag: channel.nextTag++,
    redelivered: false,
    queueId: 0,
    state: stateOf(new Entry(seq, seq, content.body.length, 0, false)),
    content,
  });
  return true;
}
