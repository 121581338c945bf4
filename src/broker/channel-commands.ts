import { Channel, Connection, type Held } from "./consumers.ts";
import { unhold, wake } from "./deliver.ts";
import type { Entry } from "./entry.ts";
import { AmqpError } from "./errors.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";
import { deleteQueue, detach, endIfUnused } from "./queue-commands.ts";
import { endReplies } from "./reply-to.ts";
import { giveBack } from "./returns.ts";
import type { CommandOf } from "./types.ts";

export function openChannel(m: Machine, c: CommandOf<"open-channel">): void {
  if (m.channels.has(c.channel)) throw new AmqpError(504, `channel ${c.channel} is open already`);
  let connection = m.connections.get(c.connection);
  if (connection === undefined) {
    connection = new Connection(c.connection);
    m.connections.set(c.connection, connection);
  }
  const channel = new Channel(c.channel, connection);
  connection.channels.add(channel);
  m.channels.set(c.channel, channel);
}

/** A channel that is not open (any more) is closed already. */
export function closeChannel(m: Machine, c: CommandOf<"close-channel">): void {
  const channel = m.channels.get(c.channel);
  if (channel !== undefined) close(m, [channel], channel.connection, c.clean === true ? "channel" : "lost");
}

/** The connection and all it owns go: channels, consumers, exclusive queues. */
export function closeConnection(m: Machine, c: CommandOf<"close-connection">): void {
  const connection = m.connections.get(c.connection);
  if (connection === undefined) return;
  close(m, [...connection.channels], connection, c.clean === true ? "connection" : "lost");
  m.connections.delete(connection.id);
  for (const queue of [...connection.exclusive]) deleteQueue(m, queue, connection);
}

/** How it ended: nobody said so (or the server did), or the client closed its channel, or its whole connection. */
type End = "lost" | "channel" | "connection";

/**
 * First every consumer leaves, so that nothing goes out again to those who are dying; then what they held goes back
 * in the order of its delivery (rule F4); then queues that lived by them end.
 */
function close(m: Machine, channels: readonly Channel[], connection: Connection, end: End): void {
  const queues = new Set<Queue>();
  for (const channel of channels) {
    for (const consumer of channel.consumers.values()) {
      queues.add(consumer.queue);
      detach(m, consumer);
    }
    channel.consumers.clear();
  }
  const held = channels.map((channel) =>
    [...channel.unacked.values(), ...uncommitted(channel)].sort((a, b) => a.tag - b.tag),
  );
  // How many each queue had out with this connection, before the first of them is back.
  const windows = new Map<Queue, number>();
  for (const { queue } of held.flat()) windows.set(queue, queue.heldBy.get(connection) ?? 1);
  for (const [i, channel] of channels.entries()) {
    for (const one of held[i] ?? []) returnFromDead(m, one, end, windows.get(one.queue) ?? 1);
    channel.unacked.clear();
    endReplies(m, channel);
    m.channels.delete(channel.id);
    connection.channels.delete(channel);
  }
  for (const queue of queues) endIfUnused(m, queue, connection);
}

/** Acks that a transaction had collected and not committed. */
function uncommitted(channel: Channel): Held[] {
  return channel.pending.flatMap((p) => (p.kind === "publish" ? [] : p.held));
}

/**
 * What closes with messages out is taken for a crash: whatever ended it may have been one of them. A client that said
 * goodbye lives, so nothing is suspect; but one that closes its channel at every failure shall not go round for ever,
 * so what a closed channel held alone is counted all the same.
 */
function returnFromDead(m: Machine, held: Held, end: End, window: number): void {
  const { queue, entry, channel } = held;
  const begun = entry.hold === 2;
  unhold(m, held);
  let counts = 1;
  if (channel.usesBegin) {
    // This client says what it started: nothing else can have killed it.
    counts = begun && end !== "connection" ? 1 : 0;
    if (counts > 0) entry.suspect = true;
  } else if (queue.isolates) counts = countAlone(entry, end, window === 1);
  giveBack(m, queue, entry, { counts, failed: true, place: "front" });
}

/**
 * Whoever was alone is counted. In company nobody is, and each is tried alone from now on; who then crashes alone was
 * the one, so its crash in company is counted with that. An innocent never gets so far.
 */
function countAlone(entry: Entry, end: End, alone: boolean): number {
  if (end === "lost") entry.suspect = true;
  if (!alone) {
    if (end === "lost") entry.inCompany = true;
    return 0;
  }
  if (end === "connection") return 0;
  const counts = entry.inCompany ? 2 : 1;
  entry.inCompany = false;
  return counts;
}

export function qos(m: Machine, channel: Channel, c: CommandOf<"qos">): void {
  if (!Number.isInteger(c.prefetchCount) || c.prefetchCount < 0) {
    throw new AmqpError(406, `prefetch count ${c.prefetchCount} is not a whole number of at least 0`);
  }
  if (!c.global) {
    channel.prefetch = c.prefetchCount;
    return;
  }
  channel.globalPrefetch = c.prefetchCount;
  wake(m, channel);
}

export function selectMode(channel: Channel, mode: "confirm" | "tx"): void {
  if (channel.mode !== mode && channel.mode !== "plain") {
    throw new AmqpError(406, `cannot switch from ${channel.mode} to ${mode} mode`);
  }
  channel.mode = mode;
}

/** The channel's reader takes this many more deliveries. */
export function setCredit(m: Machine, channel: Channel, c: CommandOf<"channel-credit">): void {
  channel.credit = c.credit;
  wake(m, channel);
}
