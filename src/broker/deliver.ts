import { type Channel, type Connection, type Consumer, Held } from "./consumers.ts";
import { type Entry, stateOf } from "./entry.ts";
import { expireHeads } from "./expiry.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";
import { HeaderTable } from "./table.ts";
import type { Content, Effect } from "./types.ts";

/** Hands out ready messages while there is a consumer with room. */
export function dispatch(m: Machine, queue: Queue): void {
  while (queue.ready > 0 && queue.consumers.all.size > 0) {
    expireHeads(m, queue);
    // What is over its time and could not be looked at in this tick must not be handed out.
    if (m.budget <= 0) return;
    if (queue.isolates && (queue.suspects.length > 0 || queue.suspectOut !== undefined)) {
      if (!dispatchAround(m, queue)) return;
      continue;
    }
    if (queue.ready === 0) return;
    const consumer = nextConsumer(queue);
    if (consumer === undefined) return;
    const entry = queue.takeHead();
    if (entry === undefined) return;
    deliver(m, queue, entry, m.contents.get(entry.seq), consumer, true);
  }
}

/** The consumer whose turn it is, if one has room and nothing stands in the way of an ordinary delivery. */
export function nextConsumer(queue: Queue): Consumer | undefined {
  if (queue.args.singleActive) {
    return queue.active?.canTake() ? queue.active : undefined;
  }
  return queue.consumers.next();
}

/**
 * What a connection may be given now. A suspect goes out only to a connection that holds nothing else of this queue,
 * and while it is out that connection gets nothing more of it; one at a time. While a suspect waits and none is out,
 * connections are left to drain so that its turn comes.
 */
function lineFor(queue: Queue, connection: Connection): "suspects" | "others" | "nothing" {
  const out = queue.suspectOut;
  if (out !== undefined) return out.connection === connection ? "nothing" : "others";
  if (queue.suspects.length === 0) return "others";
  return (queue.heldBy.get(connection) ?? 0) > 0 ? "nothing" : "suspects";
}

/** Takes the next message out that this connection may be given. */
export function takeFor(queue: Queue, connection: Connection): Entry | undefined {
  const line = lineFor(queue, connection);
  if (line === "others") return queue.takeHead();
  return line === "suspects" ? queue.takeSuspect() : undefined;
}

/** Whether there is one. */
export function hasFor(queue: Queue, connection: Connection): boolean {
  const line = lineFor(queue, connection);
  return line === "suspects" || (line === "others" && queue.ready > queue.suspects.length);
}

/** One delivery of a queue that has suspects; false: nobody may be given one. */
function dispatchAround(m: Machine, queue: Queue): boolean {
  const willing = queue.args.singleActive
    ? [queue.active].filter((c) => c?.canTake())
    : queue.consumers.willing();
  for (const consumer of willing) {
    if (consumer === undefined) continue;
    const entry = takeFor(queue, consumer.channel.connection);
    if (entry === undefined) continue;
    queue.consumers.served(consumer);
    deliver(m, queue, entry, m.contents.get(entry.seq), consumer, true);
    return true;
  }
  return false;
}

/** Hands one message to a consumer. `stored`: its content (and row) exist; a new one that is not acked needs none. */
export function deliver(
  m: Machine,
  queue: Queue,
  entry: Entry,
  content: Content,
  consumer: Consumer,
  stored: boolean,
): void {
  const { channel } = consumer;
  const deliveryTag = channel.nextTag++;
  channel.credit--;
  const redelivered = wasDelivered(m, queue, entry);
  const shown = withCount(m, queue, entry, content);
  if (consumer.noAck) {
    entry.firstReceivedAt ||= m.now;
    m.effects.push(deliverEffect(queue, entry, shown, consumer, deliveryTag, redelivered));
    if (stored) m.gone(queue, entry);
    return;
  }
  consumer.unacked++;
  channel.globalUnacked++;
  hold(m, queue, entry, new Held(deliveryTag, entry, queue, consumer, channel));
  m.effects.push(deliverEffect(queue, entry, shown, consumer, deliveryTag, redelivered));
}

function deliverEffect(
  queue: Queue,
  entry: Entry,
  content: Content,
  consumer: Consumer,
  deliveryTag: number,
  redelivered: boolean,
): Effect {
  return {
    type: "deliver",
    channel: consumer.channel.id,
    consumerTag: consumer.tag,
    deliveryTag,
    redelivered,
    queueId: queue.record.id,
    state: stateOf(entry),
    content,
  };
}

/** Books a delivery that waits for its settlement, and what a restart must know of it. */
export function hold(m: Machine, queue: Queue, entry: Entry, held: Held): void {
  const { channel } = held;
  channel.unacked.set(held.tag, held);
  queue.unacked++;
  queue.unackedBytes += entry.size;
  if (queue.isolates) {
    queue.heldBy.set(channel.connection, (queue.heldBy.get(channel.connection) ?? 0) + 1);
    if (entry.suspect) queue.suspectOut = { entry, connection: channel.connection };
  }
  const first = !entry.redelivered && entry.deliveryCount === 0 && entry.starts === 0;
  entry.hold = 1;
  entry.firstReceivedAt ||= m.now;
  if (!entry.persistent) return;
  if (first && !queue.prioritized && entry.position > queue.handedUpTo) {
    queue.handedUpTo = entry.position;
    m.effects.push({ type: "queue-handed", queueId: queue.record.id, upTo: entry.position });
  } else if (queue.quorum || queue.isolates || first) m.save(queue, entry);
}

/** Ends the hold on a message: it left its consumer, whatever becomes of it. */
export function unhold(m: Machine, held: Held): void {
  const { queue, entry, channel, consumer } = held;
  channel.unacked.delete(held.tag);
  if (!queue.deleted) {
    queue.unacked--;
    queue.unackedBytes -= entry.size;
    if (queue.isolates) {
      const count = (queue.heldBy.get(channel.connection) ?? 1) - 1;
      if (count > 0) queue.heldBy.set(channel.connection, count);
      else queue.heldBy.delete(channel.connection);
      if (queue.suspectOut?.entry === entry) queue.suspectOut = undefined;
      m.touch(queue);
    }
  }
  if (consumer === undefined) return;
  consumer.unacked--;
  channel.globalUnacked--;
  if (channel.globalPrefetch > 0) wake(m, channel);
  else wakeConsumer(m, consumer);
}

/** Every consumer of a channel may have room again. */
export function wake(m: Machine, channel: Channel): void {
  for (const consumer of channel.consumers.values()) wakeConsumer(m, consumer);
}

function wakeConsumer(m: Machine, consumer: Consumer): void {
  if (consumer.cancelled) return;
  consumer.queue.consumers.list(consumer);
  m.touch(consumer.queue);
}

/** From 4.0 on a failure in an earlier queue shows as a redelivery too (rule F7). */
export function wasDelivered(m: Machine, queue: Queue, entry: Entry): boolean {
  return entry.redelivered || (m.compat === "4.x" && queue.quorum && entry.failures > 0);
}

/** The content as the client sees it: a quorum queue writes its count on it. */
export function withCount(m: Machine, queue: Queue, entry: Entry, content: Content): Content {
  if (!queue.quorum) return content;
  const carried = m.compat === "4.x" ? entry.failures : 0;
  const count = entry.deliveryCount > 0 ? entry.deliveryCount : carried;
  if (count === 0) return content;
  const headers = (content.properties.headers ?? HeaderTable.empty).with({
    "x-delivery-count": { t: "l", v: BigInt(count) },
  });
  return { ...content, properties: { ...content.properties, headers } };
}
