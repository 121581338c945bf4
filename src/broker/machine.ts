import type { Channel, Connection } from "./consumers.ts";
import type { Entry } from "./entry.ts";
import { stateOf } from "./entry.ts";
import { AmqpError } from "./errors.ts";
import { Exchange } from "./exchange.ts";
import type { Queue } from "./queue.ts";
import { Heap } from "./ready.ts";
import { HeaderTable } from "./table.ts";
import type {
  Compat,
  ConnectionId,
  Content,
  ContentStore,
  DeathReason,
  Effect,
  ExchangeType,
  LostWhy,
  Policy,
  QueueId,
  Seq,
} from "./types.ts";

/** Settings of a {@link Broker}; everything has a default. */
export interface BrokerOptions {
  /** Which RabbitMQ line the documented differences follow; "4.x" unless said. */
  readonly compat?: Compat;
  /** Named in error texts; "/" unless said. */
  readonly vhost?: string;
  /** Where contents live; a plain Map unless said. */
  readonly contents?: ContentStore;
  readonly limits?: {
    /** Largest body in bytes; 16 MiB, or 128 MiB in compat 3.x, unless said. */
    readonly maxMessageBytes?: number;
  };
}

const MIB = 1024 * 1024;

/** How far one death may lead to the next within one command. Beyond any real topology; ends a loop of them. */
export const MAX_CHAIN = 1000;

/** Queues with counters of their own; the rest share one, for brokers that name queues without end. */
const MAX_COUNTED_QUEUES = 10_000;

/** A death that was decided and not yet carried out. */
export interface Pending {
  readonly queue: Queue;
  readonly entry: Entry;
  readonly content: Content;
  readonly reason: DeathReason;
  /** Lies in the queue (content store, perhaps journal); false: it was refused at the door. */
  readonly stored: boolean;
  readonly chain: number;
}

/** The machine's whole state. The rules are functions over it, one file per subject. */
export class Machine {
  readonly compat: Compat;
  readonly vhost: string;
  readonly contents: ContentStore;
  readonly maxMessageBytes: number;
  readonly exchanges: Map<string, Exchange> = new Map();
  readonly queues: Map<string, Queue> = new Map();
  readonly queuesById: Map<QueueId, Queue> = new Map();
  readonly connections: Map<ConnectionId, Connection> = new Map();
  readonly channels: Map<number, Channel> = new Map();
  /** Channels that wait for direct replies, by the name they gave out. */
  readonly replyNames: Map<string, Channel> = new Map();
  /** By name; operator policies under `operator/name`. */
  readonly policies: Map<string, Policy> = new Map();
  /** Dead letters that vanished: queue -> `reason/why` -> how many. */
  readonly lost: Map<string, Map<string, number>> = new Map();
  readonly alarms: Heap<{ at: number; queue: Queue }> = new Heap((a, b) => a.at < b.at);

  nextSeq = 1;
  nextQueueId = 1;
  nextName = 1;
  now = 0;
  effects: Effect[] = [];
  deaths: Pending[] = [];
  /** How many deaths led to the one being carried out. */
  chain = 0;
  /** How many more messages this command may let expire or fall due; only a tick has a limit. */
  budget: number = Infinity;
  /** One command has gone on for so long that what still dies must be going round. */
  runaway = false;
  touched: Queue[] = [];
  /** Work that a restore left for the first command after it. */
  afterRestore: (() => void)[] = [];

  constructor(options: BrokerOptions) {
    this.compat = options.compat ?? "4.x";
    this.vhost = options.vhost ?? "/";
    this.contents = options.contents ?? new MapContents();
    this.maxMessageBytes = options.limits?.maxMessageBytes ?? (this.compat === "4.x" ? 16 : 128) * MIB;
    for (const [name, type, internal] of BUILT_IN) {
      this.exchanges.set(
        name,
        new Exchange({
          name,
          type,
          durable: true,
          autoDelete: false,
          internal,
          arguments: HeaderTable.empty,
        }),
      );
    }
  }

  /** `queue 'q' in vhost '/'`, as RabbitMQ names things. */
  name(kind: "queue" | "exchange", name: string): string {
    return `${kind} '${name}' in vhost '${this.vhost}'`;
  }

  channel(id: number): Channel {
    const channel = this.channels.get(id);
    if (channel === undefined) throw new AmqpError(504, `channel ${id} is not open`);
    return channel;
  }

  exchange(name: string): Exchange {
    const exchange = this.exchanges.get(name);
    if (exchange === undefined) throw new AmqpError(404, `no ${this.name("exchange", name)}`);
    return exchange;
  }

  /** A queue that this channel's connection may use. An empty name is the channel's last declared queue. */
  queue(name: string, channel: Channel): Queue {
    if (name === "" && channel.lastQueue === "") throw new AmqpError(404, "no previously declared queue");
    const queue = this.queues.get(name === "" ? channel.lastQueue : name);
    if (queue === undefined) {
      throw new AmqpError(404, `no ${this.name("queue", name === "" ? channel.lastQueue : name)}`);
    }
    if (queue.owner !== undefined && queue.owner !== channel.connection) this.refuseLocked(queue);
    return queue;
  }

  refuseLocked(queue: Queue): never {
    throw new AmqpError(
      405,
      `cannot obtain exclusive access to locked ${this.name("queue", queue.record.name)}. It could be originally ` +
        "declared on another connection or the exclusive property value does not match that of the original declaration.",
    );
  }

  /** The queue has something to do before this command ends. */
  touch(queue: Queue): void {
    if (queue.touched || queue.deleted) return;
    queue.touched = true;
    this.touched.push(queue);
  }

  /** Decides a death; it is carried out after those decided before it. */
  die(queue: Queue, entry: Entry, content: Content, reason: DeathReason, stored = true): void {
    this.deaths.push({ queue, entry, content, reason, stored, chain: this.chain });
  }

  /** The message has left its queue for good. */
  gone(queue: Queue, entry: Entry): void {
    this.contents.delete(entry.seq);
    if (entry.persistent) {
      this.effects.push({ type: "message-gone", queueId: queue.record.id, seq: entry.seq });
    }
  }

  /** Writes what changed about a message that has a row. */
  save(queue: Queue, entry: Entry): void {
    if (!entry.persistent) return;
    this.effects.push({ type: "message-state", queueId: queue.record.id, state: stateOf(entry) });
  }

  countLost(name: string, reason: DeathReason, why: LostWhy): void {
    const queue = this.lost.size < MAX_COUNTED_QUEUES || this.lost.has(name) ? name : "(other queues)";
    let counters = this.lost.get(queue);
    if (counters === undefined) this.lost.set(queue, (counters = new Map()));
    const key = `${reason}/${why}`;
    counters.set(key, (counters.get(key) ?? 0) + 1);
  }
}

const BUILT_IN: readonly (readonly [string, ExchangeType, boolean])[] = [
  ["", "direct", false],
  ["amq.direct", "direct", false],
  ["amq.fanout", "fanout", false],
  ["amq.topic", "topic", false],
  ["amq.headers", "headers", false],
  ["amq.match", "headers", false],
];

class MapContents implements ContentStore {
  readonly #map: Map<Seq, Content> = new Map();

  put(seq: Seq, content: Content): void {
    this.#map.set(seq, content);
  }

  get(seq: Seq): Content {
    const content = this.#map.get(seq);
    if (content === undefined) throw new Error(`no content of message ${seq}`);
    return content;
  }

  delete(seq: Seq): void {
    this.#map.delete(seq);
  }
}
