import type { Entry } from "./entry.ts";
import type { Queue } from "./queue.ts";
import { SeqMap } from "./seq-map.ts";
import type { ChannelId, ConnectionId, Content, DeliveryTag } from "./types.ts";

/** A client's connection: the process that is blamed when it dies, and the owner of exclusive queues. */
export class Connection {
  readonly id: ConnectionId;
  readonly channels: Set<Channel> = new Set();
  readonly exclusive: Set<Queue> = new Set();

  constructor(id: ConnectionId) {
    this.id = id;
  }
}

/** One delivery that waits for its settlement. */
export class Held {
  readonly tag: DeliveryTag;
  readonly entry: Entry;
  readonly queue: Queue;
  readonly consumer: Consumer | undefined;
  readonly channel: Channel;

  constructor(
    tag: DeliveryTag,
    entry: Entry,
    queue: Queue,
    consumer: Consumer | undefined,
    channel: Channel,
  ) {
    this.tag = tag;
    this.entry = entry;
    this.queue = queue;
    this.consumer = consumer;
    this.channel = channel;
  }
}

/** What a channel in tx mode has put off until tx.commit. */
export type Pending =
  | { kind: "publish"; content: Content; mandatory: boolean; delayMs: number }
  | { kind: "ack"; held: Held[] }
  | { kind: "requeue"; held: Held[] }
  | { kind: "reject"; held: Held[] };

/**
 * A channel. Modes: plain -> confirm (confirm.select), plain -> tx (tx.select); neither can be left.
 */
export class Channel {
  readonly id: ChannelId;
  readonly connection: Connection;
  mode: "plain" | "confirm" | "tx" = "plain";
  nextTag = 1;
  publishTag = 0;
  /** In order of tags. */
  readonly unacked: SeqMap<Held> = new SeqMap();
  readonly consumers: Map<string, Consumer> = new Map();
  /** For consumers to come; 0: no limit. */
  prefetch = 0;
  /** For all consumers of the channel together; 0: no limit. */
  globalPrefetch = 0;
  globalUnacked = 0;
  /** Deliveries its reader still takes (channel-credit). */
  credit: number = Infinity;
  /** The queue declared last: what an empty queue name means. */
  lastQueue = "";
  /** This client says when a handler starts, so a crash blames only what was started. */
  usesBegin = false;
  /** Its consumer of direct replies, and the name answers are published to. */
  replies: { readonly consumerTag: string; readonly name: string } | undefined;
  pending: Pending[] = [];
  nextConsumer = 1;

  constructor(id: ChannelId, connection: Connection) {
    this.id = id;
    this.connection = connection;
  }
}

export class Consumer {
  readonly channel: Channel;
  readonly tag: string;
  readonly queue: Queue;
  readonly noAck: boolean;
  readonly exclusive: boolean;
  readonly prefetch: number;
  readonly priority: number;
  unacked = 0;
  cancelled = false;
  /** Stands in its ring; false while it has no room. */
  listed = false;

  constructor(
    channel: Channel,
    tag: string,
    queue: Queue,
    rules: { noAck: boolean; exclusive: boolean; prefetch: number; priority: number },
  ) {
    this.channel = channel;
    this.tag = tag;
    this.queue = queue;
    this.noAck = rules.noAck;
    this.exclusive = rules.exclusive;
    this.prefetch = rules.prefetch;
    this.priority = rules.priority;
  }

  /** Room in its window and in its channel's. */
  canTake(): boolean {
    if (this.cancelled || this.channel.credit <= 0) return false;
    if (this.noAck) return true;
    if (this.prefetch > 0 && this.unacked >= this.prefetch) return false;
    const { globalPrefetch, globalUnacked } = this.channel;
    return globalPrefetch === 0 || globalUnacked < globalPrefetch;
  }
}

interface Group {
  readonly priority: number;
  /** Consumers with room, next first; the ones before `head` are gone. */
  waiting: Consumer[];
  head: number;
}

/**
 * The consumers of one queue: higher priorities first, round robin among equals. A consumer without room is taken
 * out and put back at the end when it has room again, so that picking does not look at full ones each time.
 */
export class ConsumerRing {
  readonly all: Set<Consumer> = new Set();
  readonly #groups: Group[] = [];

  add(consumer: Consumer): void {
    this.all.add(consumer);
    this.list(consumer);
  }

  remove(consumer: Consumer): void {
    consumer.cancelled = true;
    this.all.delete(consumer);
    const group = this.#groups.find((g) => g.priority === consumer.priority);
    if (group === undefined) return;
    group.waiting = group.waiting.slice(group.head).filter((c) => c !== consumer);
    group.head = 0;
    if (![...this.all].some((c) => c.priority === group.priority)) {
      this.#groups.splice(this.#groups.indexOf(group), 1);
    }
  }

  /** Has room again: back in line. */
  list(consumer: Consumer): void {
    if (consumer.listed || consumer.cancelled) return;
    consumer.listed = true;
    let group = this.#groups.find((g) => g.priority === consumer.priority);
    if (group === undefined) {
      group = { priority: consumer.priority, waiting: [], head: 0 };
      this.#groups.push(group);
      this.#groups.sort((a, b) => b.priority - a.priority);
    }
    group.waiting.push(consumer);
  }

  /** The next consumer with room; it goes to the end of its line. */
  next(): Consumer | undefined {
    for (const group of this.#groups) {
      while (group.head < group.waiting.length) {
        const consumer = group.waiting[group.head] as Consumer;
        if (group.waiting.length === 1 && consumer.canTake()) return consumer;
        group.head++;
        if (group.head > 32 && group.head * 2 > group.waiting.length) {
          group.waiting = group.waiting.slice(group.head);
          group.head = 0;
        }
        if (consumer.canTake()) {
          group.waiting.push(consumer);
          return consumer;
        }
        consumer.listed = false;
      }
      group.waiting.length = 0;
      group.head = 0;
    }
    return undefined;
  }

  /** Those with room, in the order in which they are served. For rules that may pass one over. */
  *willing(): Generator<Consumer> {
    for (const group of this.#groups) {
      for (const consumer of group.waiting.slice(group.head)) if (consumer.canTake()) yield consumer;
    }
  }

  /** Served out of turn: to the end of its line. */
  served(consumer: Consumer): void {
    const group = this.#groups.find((g) => g.priority === consumer.priority);
    if (group === undefined) return;
    group.waiting = group.waiting.slice(group.head).filter((c) => c !== consumer);
    group.head = 0;
    group.waiting.push(consumer);
  }

  /** First in line by priority, then by age: the one active consumer of a queue that has only one. */
  senior(): Consumer | undefined {
    let best: Consumer | undefined;
    for (const consumer of this.all)
      if (best === undefined || consumer.priority > best.priority) best = consumer;
    return best;
  }
}
