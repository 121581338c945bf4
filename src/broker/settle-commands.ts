import { MAX_TTL_MS } from "./arguments.ts";
import type { Channel, Held } from "./consumers.ts";
import { unhold } from "./deliver.ts";
import { release } from "./enqueue.ts";
import type { Entry } from "./entry.ts";
import { AmqpError } from "./errors.ts";
import type { Machine } from "./machine.ts";
import { giveBack } from "./returns.ts";
import type { CommandOf, Reply } from "./types.ts";

function heldBy(channel: Channel, tag: number): Held {
  const held = channel.unacked.get(tag);
  if (held === undefined) throw new AmqpError(406, `unknown delivery tag ${tag}`);
  return held;
}

/** The deliveries a settlement covers (rules A4, A7); throws for a tag that is not out. */
function covered(channel: Channel, tag: number, multiple: boolean): Held[] {
  if (multiple && tag === 0) return [...channel.unacked.values()];
  const held = heldBy(channel, tag);
  if (!multiple) return [held];
  const all: Held[] = [];
  for (const one of channel.unacked.values()) {
    if (one.tag > tag) break;
    all.push(one);
  }
  return all;
}

export function ack(m: Machine, channel: Channel, c: CommandOf<"ack">): void {
  if (c.multiple !== true && channel.mode !== "tx") {
    ackOne(m, heldBy(channel, c.deliveryTag));
    return;
  }
  const held = covered(channel, c.deliveryTag, c.multiple === true);
  if (!putOff(channel, "ack", held)) for (const one of held) ackOne(m, one);
}

export function ackOne(m: Machine, held: Held): void {
  unhold(m, held);
  if (held.queue.deleted) m.contents.delete(held.entry.seq);
  else {
    m.gone(held.queue, held.entry);
    // A quorum queue that refuses reopens as it drains; so does an alarm move with the head.
    if (held.queue.refusing) m.touch(held.queue);
  }
}

export function nack(m: Machine, channel: Channel, c: CommandOf<"nack"> | CommandOf<"reject">): void {
  const held = covered(channel, c.deliveryTag, c.type === "nack" && c.multiple === true);
  const kind = c.requeue ? "requeue" : "reject";
  if (putOff(channel, kind, held)) return;
  if (c.requeue) requeueAll(m, held);
  else rejectAll(m, held);
}

/** In tx mode a settlement waits for the commit, out of reach of a second one. */
function putOff(channel: Channel, kind: "ack" | "requeue" | "reject", held: Held[]): boolean {
  if (channel.mode !== "tx") return false;
  for (const one of held) channel.unacked.delete(one.tag);
  if (held.length > 0) channel.pending.push({ kind, held });
  return true;
}

/** Oldest delivery first, queue by queue (rule A5). */
function byQueue(held: readonly Held[]): readonly Held[] {
  const first = held[0];
  if (first === undefined || held.every((h) => h.queue === first.queue)) return held;
  const groups = new Map<object, Held[]>();
  for (const one of held) {
    const group = groups.get(one.queue);
    if (group === undefined) groups.set(one.queue, [one]);
    else group.push(one);
  }
  return [...groups.values()].flat();
}

export function rejectAll(m: Machine, held: readonly Held[]): void {
  for (const { queue, entry } of unholdAll(m, byQueue(held))) {
    if (queue.deleted) m.contents.delete(entry.seq);
    else m.die(queue, entry, m.contents.get(entry.seq), "rejected");
  }
}

export function requeueAll(m: Machine, held: readonly Held[]): void {
  for (const { queue, entry } of unholdAll(m, byQueue(held))) {
    // A client that gives a message back is alive: it is no suspect any more.
    clear(entry);
    giveBack(m, queue, entry, { counts: 1, failed: false, place: "requeue" });
  }
}

function clear(entry: Entry): void {
  entry.suspect = false;
  entry.inCompany = false;
}

function unholdAll(m: Machine, held: readonly Held[]): readonly Held[] {
  for (const one of held) unhold(m, one);
  return held;
}

export function recover(m: Machine, channel: Channel, c: CommandOf<"recover">): void {
  if (!c.requeue) throw new AmqpError(540, "requeue=false");
  requeueAll(m, [...channel.unacked.values()]);
}

/** A handler starts: from here on a crash of this client is the message's fault (until it is settled). */
export function begin(m: Machine, channel: Channel, c: CommandOf<"begin">): void {
  const { entry, queue } = heldBy(channel, c.deliveryTag);
  channel.usesBegin = true;
  if (entry.hold === 2) return;
  entry.starts++;
  entry.hold = 2;
  if (!queue.deleted) m.save(queue, entry);
}

/** Refuses a delay that is no number of ms, or longer than ten years. */
export function checkDelay(delayMs: number | undefined): number {
  if (delayMs === undefined) return 0;
  if (!Number.isFinite(delayMs) || delayMs < 0) {
    throw new AmqpError(406, `invalid delay '${delayMs}': expected a number of ms of at least 0`);
  }
  if (delayMs > MAX_TTL_MS) {
    throw new AmqpError(
      406,
      `invalid delay '${delayMs}': {value_too_large,${delayMs}}, at most ${MAX_TTL_MS} ms`,
    );
  }
  return Math.ceil(delayMs);
}

/** To the back of the queue, perhaps not at once. Neither a death nor counted against a limit. */
export function retry(m: Machine, channel: Channel, c: CommandOf<"retry">): void {
  const delayMs = checkDelay(c.delayMs);
  const held = heldBy(channel, c.deliveryTag);
  const { queue, entry } = held;
  unhold(m, held);
  if (queue.deleted) {
    m.contents.delete(entry.seq);
    return;
  }
  entry.hold = 0;
  clear(entry);
  entry.redelivered = true;
  entry.position = m.nextSeq++;
  if (delayMs > 0) {
    entry.dueAt = m.now + delayMs;
    queue.delays().push(entry);
  } else queue.pushBack(entry);
  m.save(queue, entry);
  m.touch(queue);
}

/** Back to its place as if it had not been started: nothing is counted, and what `begin` counted is taken back. */
export function releaseHeld(m: Machine, channel: Channel, c: CommandOf<"release">): void {
  const held = heldBy(channel, c.deliveryTag);
  const { entry, queue } = held;
  const begun = entry.hold === 2;
  unhold(m, held);
  if (begun) entry.starts--;
  giveBack(m, queue, entry, { counts: 0, failed: false, place: "old" });
}

/** Takes back what came last to a queue, as if it had not been sent. */
export function withdraw(m: Machine, channel: Channel, c: CommandOf<"withdraw">): Reply {
  const queue = m.queue(c.queue, channel);
  const entries = queue.takeBack(c.seqs);
  for (const entry of entries) m.gone(queue, entry);
  m.touch(queue);
  return { type: "count", messageCount: entries.length };
}

/** Takes a delayed message back, or lets it go before its time. */
export function delayed(
  m: Machine,
  channel: Channel,
  c: CommandOf<"delayed-cancel" | "delayed-release">,
): void {
  const queue = m.queue(c.queue, channel);
  const entry = queue.delayed?.cancel(c.seq);
  if (entry === undefined) {
    throw new AmqpError(404, `no delayed message ${c.seq} in ${m.name("queue", queue.record.name)}`);
  }
  if (c.type === "delayed-cancel") m.gone(queue, entry);
  else release(m, queue, entry);
}
