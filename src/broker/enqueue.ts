import { schedule } from "./alarms.ts";
import { deliver, nextConsumer } from "./deliver.ts";
import { Entry, stateOf } from "./entry.ts";
import { deadline, expireHeads } from "./expiry.ts";
import { enforceLimits, refuses } from "./limits.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";
import type { Content, QueueId, Seq } from "./types.ts";

/** How a message comes to a queue, besides its content. */
export interface Arrival {
  /** Not before this time; 0: now. */
  readonly dueAt?: number;
  readonly died?: boolean;
  readonly failures?: number;
  /** The message in another queue that this one continues. */
  readonly from?: { queueId: QueueId; seq: Seq };
}

/**
 * A message enters a queue. It is handed over at once when nothing waits and a consumer has room, so that it never
 * counts against a limit or a TTL of 0 (rules C5, D1); else it waits, and the limit is enforced.
 * @returns false when the queue refused it; with reject-publish-dlx its death is already decided
 */
export function enqueue(m: Machine, queue: Queue, content: Content, arrival: Arrival): boolean {
  if (queue.ready > 0) expireHeads(m, queue);
  const dueAt = arrival.dueAt ?? 0;
  const size = content.body.length;
  const entry = newEntry(m, queue, content, size, dueAt);
  if (arrival.died) entry.died = true;
  entry.failures = arrival.failures ?? 0;
  if (dueAt === 0 && refuses(queue, size)) {
    if (queue.options.overflow === "reject-publish-dlx") m.die(queue, entry, content, "maxlen", false);
    return false;
  }
  const consumer = dueAt === 0 && queue.ready === 0 ? directConsumer(queue) : undefined;
  if (consumer?.noAck) {
    deliver(m, queue, entry, content, consumer, false);
    return true;
  }
  m.contents.put(entry.seq, content);
  if (entry.persistent) {
    const put = { type: "message-put" as const, queueId: queue.record.id, state: stateOf(entry), content };
    m.effects.push(arrival.from === undefined ? put : { ...put, from: arrival.from });
  }
  if (consumer !== undefined) deliver(m, queue, entry, content, consumer, true);
  else place(m, queue, entry);
  return true;
}

function newEntry(m: Machine, queue: Queue, content: Content, size: number, dueAt: number): Entry {
  const seq = m.nextSeq++;
  const persistent = queue.stored && (queue.quorum || content.properties.deliveryMode === 2);
  // The TTL of a delayed message begins when it is due.
  const expiresAt = dueAt > 0 ? 0 : deadline(queue, content, m.now);
  const entry = new Entry(seq, seq, size, expiresAt, persistent);
  entry.dueAt = dueAt;
  if (queue.prioritized) entry.priority = queue.levelOf(content.properties.priority);
  return entry;
}

function directConsumer(queue: Queue): ReturnType<typeof nextConsumer> {
  if (queue.consumers.all.size === 0) return undefined;
  if (queue.suspectOut !== undefined) return undefined;
  return nextConsumer(queue);
}

function place(m: Machine, queue: Queue, entry: Entry): void {
  if (entry.dueAt > 0) {
    queue.delays().push(entry);
    schedule(m, queue);
    return;
  }
  queue.pushBack(entry);
  enforceLimits(m, queue);
  m.touch(queue);
}

/** Messages whose delay is over go to the end of the queue; their TTL begins now. */
export function releaseDue(m: Machine, queue: Queue): void {
  while ((queue.delayed?.nextDueAt() ?? Infinity) <= m.now && m.budget-- > 0) {
    const entry = queue.delayed?.pop();
    if (entry === undefined) return;
    release(m, queue, entry);
  }
}

/** Takes a message out of its delay into the queue. A full queue that refuses takes it: it was promised. */
export function release(m: Machine, queue: Queue, entry: Entry): void {
  const content = m.contents.get(entry.seq);
  entry.dueAt = 0;
  entry.position = m.nextSeq++;
  // A retried message keeps the deadline it has; a new one gets its own now.
  if (entry.expiresAt === 0) entry.expiresAt = deadline(queue, content, m.now);
  if (queue.prioritized) entry.priority = queue.levelOf(content.properties.priority);
  const consumer = queue.ready === 0 ? directConsumer(queue) : undefined;
  if (consumer === undefined) {
    m.save(queue, entry);
    queue.pushBack(entry);
    enforceLimits(m, queue);
    m.touch(queue);
    return;
  }
  if (!consumer.noAck) m.save(queue, entry);
  deliver(m, queue, entry, content, consumer, true);
}
