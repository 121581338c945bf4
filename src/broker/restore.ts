import { schedule } from "./alarms.ts";
import { queueArguments } from "./arguments.ts";
import { retryRetained } from "./dead-letters.ts";
import { type Entry, entryFrom, stateOf } from "./entry.ts";
import { Binding, Exchange } from "./exchange.ts";
import { renewLease } from "./expiry.ts";
import type { Machine } from "./machine.ts";
import { keyOf } from "./policy-commands.ts";
import { FRONT, type Queue } from "./queue.ts";
import { addQueue } from "./queue-commands.ts";
import { applyExchangePolicy, isStored } from "./topology-commands.ts";
import type { BindingRecord, MessageState, QueueId, Restored } from "./types.ts";

/**
 * Puts a fresh machine into the state after a restart: what was out is ready again, at its place and redelivered,
 * counted as a crash counts; whoever had been begun is a suspect. Nothing is written and nobody dies yet: that is
 * left to the first command, because only a command has effects.
 */
export function restore(m: Machine, records: Restored): void {
  for (const policy of records.policies) m.policies.set(keyOf(policy.name, policy.operator === true), policy);
  for (const record of records.exchanges) m.exchanges.set(record.name, new Exchange(record));
  for (const exchange of m.exchanges.values()) applyExchangePolicy(m, exchange);
  for (const record of records.queues) {
    addQueue(m, record, queueArguments(record.arguments, m.name("queue", record.name)), undefined);
    m.nextQueueId = Math.max(m.nextQueueId, record.id + 1);
  }
  for (const record of records.bindings) restoreBinding(m, record);
  for (const [id, upTo] of records.handed ?? []) {
    const queue = m.queuesById.get(id);
    if (queue !== undefined) queue.handedUpTo = upTo;
  }
  for (const { queueId, state } of records.messages) restoreMessage(m, queueId, state);
  m.nextSeq = Math.max(m.nextSeq, records.nextSeq ?? 1);
  m.nextQueueId = Math.max(m.nextQueueId, records.nextQueueId ?? 1);
  m.afterRestore.push(() => {
    for (const queue of m.queues.values()) {
      renewLease(m, queue);
      if (queue.retained.length > 0) retryRetained(m, queue);
      m.touch(queue);
      schedule(m, queue);
    }
  });
}

function restoreBinding(m: Machine, record: BindingRecord): void {
  const source = m.exchanges.get(record.source);
  const ends = record.destinationType === "queue" ? m.queues : m.exchanges;
  const destination = ends.get(record.destination);
  if (source === undefined || destination === undefined) return;
  source.add(new Binding(source, destination, record));
}

function restoreMessage(m: Machine, queueId: QueueId, state: MessageState): void {
  const queue = m.queuesById.get(queueId);
  if (queue === undefined) return;
  const entry = entryFrom(state);
  m.nextSeq = Math.max(m.nextSeq, entry.seq + 1, entry.position + 1);
  if (entry.position < 0) queue.nextFront = Math.max(queue.nextFront, entry.position + 1);
  if (entry.retained !== null) {
    queue.retained.push(entry);
    queue.retainedBytes += entry.size;
    return;
  }
  if (entry.dueAt > 0) {
    queue.delays().push(entry);
    return;
  }
  const handed = isFresh(entry) && entry.position <= queue.handedUpTo;
  if (entry.hold > 0 || handed) wasOut(m, queue, entry);
  else queue.pushBack(entry);
}

/** Its row was never written since it came. */
function isFresh(e: Entry): boolean {
  return !e.redelivered && e.deliveryCount === 0 && e.starts === 0 && e.position > FRONT / 2;
}

function wasOut(m: Machine, queue: Queue, entry: Entry): void {
  const begun = entry.hold === 2;
  // A row that says "held" must not be read as a second crash after the next one.
  if (entry.hold > 0) m.afterRestore.push(() => m.save(queue, entry));
  entry.hold = 0;
  entry.redelivered = true;
  if (begun) entry.suspect = true;
  // With isolation only what was begun can be blamed; the broker's own end says nothing about the rest.
  if (queue.quorum && (begun || !queue.isolates)) {
    entry.deliveryCount++;
    entry.failures++;
    if (entry.deliveryCount > queue.options.deliveryLimit) {
      m.afterRestore.push(() => m.die(queue, entry, m.contents.get(entry.seq), "delivery_limit"));
      return;
    }
  }
  queue.pushBack(entry);
}

/** Everything a journal would hold now: what a restart gives back. */
export function snapshot(m: Machine): Restored {
  const queues = [...m.queues.values()].filter((q) => q.stored);
  const exchanges = [...m.exchanges.values()].filter((x) => x.record.durable && !isBuiltIn(x.record.name));
  const bindings = [...m.exchanges.values()].flatMap((x) => [...x.bindings.values()].filter(isStored));
  return {
    queues: queues.map((q) => q.record),
    exchanges: exchanges.map((x) => x.record),
    bindings: bindings.map((b) => b.record),
    policies: [...m.policies.values()],
    messages: queues.flatMap((q) => messagesOf(m, q)),
    handed: queues.map((q) => [q.record.id, q.handedUpTo] as const),
    nextSeq: m.nextSeq,
    nextQueueId: m.nextQueueId,
  };
}

function isBuiltIn(name: string): boolean {
  return name === "" || name.startsWith("amq.");
}

function messagesOf(m: Machine, queue: Queue): { queueId: QueueId; state: MessageState }[] {
  const held = [...m.channels.values()].flatMap((channel) => [
    ...channel.unacked.values(),
    ...channel.pending.flatMap((p) => (p.kind === "publish" ? [] : p.held)),
  ]);
  const entries = [
    ...queue.readyEntries(),
    ...held.filter((h) => h.queue === queue).map((h) => h.entry),
    ...(queue.delayed?.list() ?? []),
    ...queue.retained,
  ];
  return entries
    .filter((e) => e.persistent)
    .sort((a, b) => a.position - b.position)
    .map((e) => ({ queueId: queue.record.id, state: stateOf(e) }));
}
