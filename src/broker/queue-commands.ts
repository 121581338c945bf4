import { checkEquivalent, type QueueArguments, queueArguments } from "./arguments.ts";
import type { Channel, Connection, Consumer } from "./consumers.ts";
import { retryRetained } from "./dead-letters.ts";
import { AmqpError } from "./errors.ts";
import { expireHeads, renewLease } from "./expiry.ts";
import type { Machine } from "./machine.ts";
import { effectiveOptions, matchPolicies } from "./policy.ts";
import { Queue } from "./queue.ts";
import { describeReplies } from "./reply-to.ts";
import { HeaderTable } from "./table.ts";
import { removeBinding } from "./topology-commands.ts";
import type { CommandOf, QueueRecord, Reply, Seq } from "./types.ts";
import { checkName } from "./values.ts";

function described(queue: Queue): Reply {
  return {
    type: "queue",
    queue: queue.record.name,
    messageCount: queue.ready,
    consumerCount: queue.consumers.all.size,
  };
}

/** queue.declare: makes it, or checks that the one there is the same. */
export function declareQueue(m: Machine, channel: Channel, c: CommandOf<"queue-declare">): Reply {
  checkName("queue name", c.queue);
  if (c.passive) return describeReplies(m, c.queue) ?? declaredAgain(m, channel, m.queue(c.queue, channel));
  const current = m.queues.get(c.queue);
  if (current !== undefined) {
    checkSame(m, channel, current, c);
    return declaredAgain(m, channel, current);
  }
  if (c.queue.startsWith("amq.") && c.queue !== c.generatedName) {
    throw new AmqpError(403, `queue name '${c.queue}' contains reserved prefix 'amq.*'`);
  }
  const name = c.queue === "" ? freshName(m, c.generatedName) : c.queue;
  const args = queueArguments(c.arguments, m.name("queue", name));
  checkProperties(m, name, args, c);
  const record: QueueRecord = {
    id: m.nextQueueId++,
    name,
    type: args.type,
    durable: c.durable === true,
    autoDelete: c.autoDelete === true,
    exclusive: c.exclusive === true,
    arguments: c.arguments ?? HeaderTable.empty,
  };
  const queue = addQueue(m, record, args, record.exclusive ? channel.connection : undefined);
  if (queue.stored) m.effects.push({ type: "queue-put", queue: record });
  channel.lastQueue = name;
  return described(queue);
}

function declaredAgain(m: Machine, channel: Channel, queue: Queue): Reply {
  expireHeads(m, queue);
  m.touch(queue);
  // Asking for a classic queue keeps it alive; a quorum queue only by use (rule A6).
  if (!queue.quorum) renewLease(m, queue);
  channel.lastQueue = queue.record.name;
  return described(queue);
}

/** The name of a queue that has none: the host's proposal, or a counted one. */
function freshName(m: Machine, proposed: string | undefined): string {
  if (proposed !== undefined && proposed !== "" && !m.queues.has(proposed)) return proposed;
  for (;;) {
    const name = `amq.gen-${m.nextName++}`;
    if (!m.queues.has(name)) return name;
  }
}

function checkProperties(
  m: Machine,
  name: string,
  args: QueueArguments,
  c: CommandOf<"queue-declare">,
): void {
  if (args.type !== "quorum") return;
  const refuse = (property: string): never => {
    throw new AmqpError(406, `invalid property '${property}' for ${m.name("queue", name)}`);
  };
  if (c.exclusive) refuse("exclusive-owner");
  if (!c.durable) refuse("non-durable");
  if (c.autoDelete) refuse("auto-delete");
}

function checkSame(m: Machine, channel: Channel, current: Queue, c: CommandOf<"queue-declare">): void {
  const { record } = current;
  if (current.owner !== (c.exclusive ? channel.connection : undefined)) m.refuseLocked(current);
  const flag = (what: string, asked: boolean | undefined, is: boolean): void => {
    if ((asked === true) === is) return;
    throw new AmqpError(
      406,
      `inequivalent arg '${what}' for ${m.name("queue", record.name)}: received '${asked === true}' but current is '${is}'`,
    );
  };
  // An exclusive queue never outlives its connection, so its durable flag means nothing (rule J2).
  if (!record.exclusive) flag("durable", c.durable, record.durable);
  flag("auto_delete", c.autoDelete, record.autoDelete);
  checkEquivalent(record.arguments, c.arguments, m.name("queue", record.name));
}

/** Puts a queue into the machine, with the policies that apply. */
export function addQueue(
  m: Machine,
  record: QueueRecord,
  args: QueueArguments,
  owner: Connection | undefined,
): Queue {
  const queue = new Queue(record, args, effectiveOptions(args, {}, m.compat), owner);
  applyQueuePolicy(m, queue);
  m.queues.set(record.name, queue);
  m.queuesById.set(record.id, queue);
  owner?.exclusive.add(queue);
  renewLease(m, queue);
  return queue;
}

/** Works the queue's options out anew. Messages that wait keep their deadline (rule C2). */
export function applyQueuePolicy(m: Machine, queue: Queue): void {
  const subject = { kind: queue.record.type, name: queue.record.name };
  const { user, operator, definition } = matchPolicies(m.policies.values(), subject);
  const before = queue.options;
  queue.policy = user?.name ?? null;
  queue.operatorPolicy = operator?.name ?? null;
  queue.options = effectiveOptions(queue.args, definition, m.compat);
  if (before.expires !== queue.options.expires) renewLease(m, queue);
  if (before.atLeastOnce && !queue.options.atLeastOnce) retryRetained(m, queue);
  m.touch(queue);
}

/** queue.delete: one that is not there has no messages. */
export function deleteQueueCommand(m: Machine, channel: Channel, c: CommandOf<"queue-delete">): Reply {
  if (c.queue !== "" && !m.queues.has(c.queue)) return { type: "count", messageCount: 0 };
  const queue = m.queue(c.queue, channel);
  const { name } = queue.record;
  if (c.ifUnused && queue.consumers.all.size > 0) throw new AmqpError(406, `${m.name("queue", name)} in use`);
  if (c.ifEmpty && queue.ready > 0) throw new AmqpError(406, `${m.name("queue", name)} not empty`);
  expireHeads(m, queue);
  const messageCount = queue.ready;
  deleteQueue(m, queue, undefined);
  return { type: "count", messageCount };
}

/**
 * Ends a queue. No death (rule A6): what waits is gone; what is held is gone when it is settled. Consumers are told,
 * except on the connection that is closing.
 */
export function deleteQueue(m: Machine, queue: Queue, closing: Connection | undefined): void {
  queue.deleted = true;
  m.queues.delete(queue.record.name);
  m.queuesById.delete(queue.record.id);
  queue.owner?.exclusive.delete(queue);
  for (const binding of [...queue.incoming]) removeBinding(m, binding, true);
  for (const consumer of [...queue.consumers.all]) {
    queue.consumers.remove(consumer);
    consumer.channel.consumers.delete(consumer.tag);
    if (consumer.channel.connection === closing) continue;
    m.effects.push({
      type: "consumer-cancelled",
      channel: consumer.channel.id,
      consumerTag: consumer.tag,
    });
  }
  for (const entry of queue.readyEntries()) m.contents.delete(entry.seq);
  for (const entry of queue.delayed?.list() ?? []) m.contents.delete(entry.seq);
  for (const entry of queue.retained) m.contents.delete(entry.seq);
  if (queue.stored) m.effects.push({ type: "queue-gone", queueId: queue.record.id });
}

/** queue.purge: ready messages go without a death (rule A6). */
export function purge(m: Machine, channel: Channel, c: CommandOf<"queue-purge">): Reply {
  const queue = m.queue(c.queue, channel);
  expireHeads(m, queue);
  const messageCount = queue.ready;
  const seqs: Seq[] = [];
  for (;;) {
    const entry = queue.takeHead() ?? queue.takeSuspect();
    if (entry === undefined) break;
    m.contents.delete(entry.seq);
    if (entry.persistent) seqs.push(entry.seq);
  }
  if (seqs.length > 0) m.effects.push({ type: "queue-purged", queueId: queue.record.id, seqs });
  m.touch(queue);
  return { type: "count", messageCount };
}

/** A consumer leaves its queue; the queue may choose another or end. */
export function removeConsumer(m: Machine, consumer: Consumer, closing: Connection | undefined): void {
  const { queue, channel } = consumer;
  detach(m, consumer);
  channel.consumers.delete(consumer.tag);
  endIfUnused(m, queue, closing);
}

/** The first half of it: no message goes to this consumer any more. */
export function detach(m: Machine, consumer: Consumer): void {
  const { queue } = consumer;
  queue.consumers.remove(consumer);
  if (queue.exclusiveConsumer === consumer) queue.exclusiveConsumer = undefined;
  if (queue.active === consumer) queue.active = queue.consumers.senior();
  if (queue.consumers.all.size === 0) renewLease(m, queue);
  m.touch(queue);
}

/** An auto-delete queue goes with its last consumer. */
export function endIfUnused(m: Machine, queue: Queue, closing: Connection | undefined): void {
  if (queue.record.autoDelete && queue.consumers.all.size === 0 && !queue.deleted) {
    deleteQueue(m, queue, closing);
  }
}
