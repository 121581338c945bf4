import { hasFor } from "./deliver.ts";
import { stateOf } from "./entry.ts";
import type { ExchangeInfo, QueueInfo, Unsettled } from "./host.ts";
import type { Machine } from "./machine.ts";
import type { QueueOptions } from "./policy.ts";
import type { Queue } from "./queue.ts";
import type { BindingRecord, ChannelId, Content, DeathReason, LostWhy, MessageState } from "./types.ts";

/** A queue as the machine knows it. Bytes are of bodies. */
export interface QueueView extends QueueInfo {
  readonly readyBytes: number;
  readonly unackedBytes: number;
  readonly delayedBytes: number;
  /** Dead letters kept by at-least-once until they find a place. */
  readonly retained: number;
  readonly retainedBytes: number;
  /** Arguments and policies together: how it behaves now. */
  readonly options: QueueOptions;
}

/** How many dead letters of a queue vanished for one reason. */
export interface LostCount {
  readonly queue: string;
  readonly reason: DeathReason;
  readonly why: LostWhy;
  readonly count: number;
}

/** A message seen without taking it. */
export interface Seen {
  readonly state: MessageState;
  readonly content: Content;
}

export function viewQueue(queue: Queue): QueueView {
  const view = {
    record: queue.record,
    ready: queue.ready,
    readyBytes: queue.readyBytes,
    unacked: queue.unacked,
    unackedBytes: queue.unackedBytes,
    delayed: queue.delayed?.length ?? 0,
    delayedBytes: queue.delayed?.bytes ?? 0,
    retained: queue.retained.length,
    retainedBytes: queue.retainedBytes,
    consumers: queue.consumers.all.size,
    options: queue.options,
  };
  return {
    ...view,
    ...(queue.policy === null ? {} : { policy: queue.policy }),
    ...(queue.operatorPolicy === null ? {} : { operatorPolicy: queue.operatorPolicy }),
  };
}

export function viewUnsettled(m: Machine, channel: ChannelId): Unsettled | null {
  const found = m.channels.get(channel);
  for (const held of found?.unacked.values() ?? []) {
    return { oldest: held.tag, queue: held.queue.record.name, latest: (found?.nextTag ?? 1) - 1 };
  }
  return null;
}

/** What has no channel any more shall look, and be told so. */
export function viewWaits(m: Machine, name: string, channel: ChannelId): boolean {
  const queue = m.queues.get(name);
  if (queue === undefined || queue.ready === 0) return false;
  const connection = m.channels.get(channel)?.connection;
  return connection === undefined || hasFor(queue, connection);
}

export function viewExchanges(m: Machine): ExchangeInfo[] {
  return [...m.exchanges.values()].map(({ record, policy }) =>
    policy === null ? { record } : { record, policy },
  );
}

export function viewBindings(m: Machine): BindingRecord[] {
  return [...m.exchanges.values()].flatMap((x) => [...x.bindings.values()].map((b) => b.record));
}

export function viewLost(m: Machine): LostCount[] {
  return [...m.lost].flatMap(([queue, counters]) =>
    [...counters].map(([key, count]) => {
      const [reason, why] = key.split("/") as [DeathReason, LostWhy];
      return { queue, reason, why, count };
    }),
  );
}

/** The first `limit` waiting messages, untouched: no count, no flag, no order changes. */
export function peek(m: Machine, queue: Queue, limit: number): Seen[] {
  const seen: Seen[] = [];
  for (const entry of queue.readyEntries()) {
    if (seen.length >= limit) break;
    seen.push({ state: stateOf(entry), content: m.contents.get(entry.seq) });
  }
  return seen;
}

/** The first `limit` delayed messages, the earliest due first. */
export function peekDelayed(m: Machine, queue: Queue, limit: number): Seen[] {
  const entries = queue.delayed?.list() ?? [];
  return entries.slice(0, limit).map((e) => ({ state: stateOf(e), content: m.contents.get(e.seq) }));
}
