/**
 * What goes into the broker machine and what comes out. The machine is one virtual host: a state machine
 * `apply(command, now) -> { reply, effects }` without clock, I/O or randomness. Hosts (the embedded engine, the
 * AMQP server, tests) feed commands, write the journal effects in one transaction, and only then let the
 * outward effects (deliver, confirm, return, cancel) go.
 */
import type { HeaderTable } from "./table.ts";

/** Which RabbitMQ line the documented points of difference follow (x-death order, client x-death, CC, nack count). */
export type Compat = "3.x" | "4.x";

/** Given by the host, unique while the machine lives. */
export type ConnectionId = number;
/** Given by the host, unique while the machine lives (not the wire's channel number). */
export type ChannelId = number;
/** Per channel, 1, 2, 3 ... as on the wire. */
export type DeliveryTag = number;
/** Identity of one message in one queue. Rises; never used again in the life of a data file. */
export type Seq = number;
export type QueueId = number;

/**
 * The fourteen properties of basic.* content. `expiration` is text, as on the wire; `timestamp` is seconds, a
 * bigint above 2^53 (some publishers send nanoseconds).
 */
export interface Properties {
  contentType?: string;
  contentEncoding?: string;
  headers?: HeaderTable;
  deliveryMode?: number;
  priority?: number;
  correlationId?: string;
  replyTo?: string;
  expiration?: string;
  messageId?: string;
  timestamp?: number | bigint;
  type?: string;
  userId?: string;
  appId?: string;
  clusterId?: string;
}

/** What a publisher sent, as the broker keeps it. Immutable: a death makes a new one around the same body. */
export interface Content {
  readonly exchange: string;
  readonly routingKey: string;
  readonly properties: Readonly<Properties>;
  readonly body: Uint8Array;
  /**
   * Further routing keys this message was published with (CC and BCC headers, rule B2); absent when there are
   * none. Must be kept with the content: BCC is taken out of the headers at publish and used again at a death.
   */
  readonly keys?: { readonly cc: readonly string[]; readonly bcc: readonly string[] };
}

/** Where contents live while they wait: a Map in tests, a bounded cache over SQLite in the embedded engine. */
export interface ContentStore {
  put(seq: Seq, content: Content): void;
  get(seq: Seq): Content;
  delete(seq: Seq): void;
}

export type ExchangeType = "direct" | "fanout" | "topic" | "headers";
export type QueueType = "classic" | "quorum";

/** What is kept of one message in one queue besides its content. */
export interface MessageState {
  readonly seq: Seq;
  /** Order in the queue; equals seq until the message is sent to the back. */
  readonly position: number;
  /** Body bytes. */
  readonly size: number;
  /** Absolute deadline, epoch ms; 0: never. Fixed at entry into the queue (rule C2). */
  readonly expiresAt: number;
  readonly priority: number;
  readonly redelivered: boolean;
  /** The broker's own count (x-delivery-count): returns, by the rules of the queue type. */
  readonly deliveryCount: number;
  /** Handler starts (`begin`) in this life; the consumer's receiveCount where the host uses `begin`. */
  readonly starts: number;
  /** First delivery or start, epoch ms; 0: never. */
  readonly firstReceivedAt: number;
  /** Not before this time (delayed retry, `delay`); 0: at once. */
  readonly dueAt: number;
  /** Was in flight, started, when its process died. */
  readonly suspect: boolean;
  /** Was in company when it became a suspect: that crash counts only once it crashes alone too. */
  readonly inCompany: boolean;
  /** 0: waiting. 1: handed to a consumer. 2: its handler was begun. What a crash means depends on it. */
  readonly hold: 0 | 1 | 2;
  /** Failed deliveries (crashes, rejects) over all queues; carried through deaths in compat 4.x (rule F7). */
  readonly failures: number;
  /** Its x-death header is the broker's own, not a client's (rule E6). */
  readonly died: boolean;
  /** A dead letter kept inside its queue by at-least-once dead-lettering (rule I2), with the reason; null: no. */
  readonly retained: DeathReason | null;
}

export type Command =
  | { type: "open-channel"; connection: ConnectionId; channel: ChannelId }
  /** `clean`: the client closed it, so what it held is not suspected; what it held alone is counted. */
  | { type: "close-channel"; channel: ChannelId; clean?: boolean }
  /** `clean`: the client said goodbye, so what it held is not suspected of having killed it. */
  | { type: "close-connection"; connection: ConnectionId; clean?: boolean }
  | {
      type: "exchange-declare";
      channel: ChannelId;
      exchange: string;
      exchangeType: string;
      passive?: boolean;
      durable?: boolean;
      autoDelete?: boolean;
      internal?: boolean;
      arguments?: HeaderTable;
    }
  | { type: "exchange-delete"; channel: ChannelId; exchange: string; ifUnused?: boolean }
  | {
      type: "exchange-bind" | "exchange-unbind";
      channel: ChannelId;
      source: string;
      destination: string;
      routingKey: string;
      arguments?: HeaderTable;
    }
  | {
      type: "queue-declare";
      channel: ChannelId;
      /** Empty: the broker names it (the host supplies `generatedName`). */
      queue: string;
      generatedName?: string;
      passive?: boolean;
      durable?: boolean;
      exclusive?: boolean;
      autoDelete?: boolean;
      arguments?: HeaderTable;
    }
  | { type: "queue-delete"; channel: ChannelId; queue: string; ifUnused?: boolean; ifEmpty?: boolean }
  | { type: "queue-purge"; channel: ChannelId; queue: string }
  | {
      type: "queue-bind" | "queue-unbind";
      channel: ChannelId;
      queue: string;
      exchange: string;
      routingKey: string;
      arguments?: HeaderTable;
    }
  | {
      type: "publish";
      channel: ChannelId;
      exchange: string;
      routingKey: string;
      mandatory?: boolean;
      properties: Properties;
      body: Uint8Array;
      /** Not delivered before now + delayMs (the product's own delay; each message at its own time). */
      delayMs?: number;
    }
  | { type: "confirm-select"; channel: ChannelId }
  | { type: "tx-select" | "tx-commit" | "tx-rollback"; channel: ChannelId }
  | { type: "qos"; channel: ChannelId; prefetchCount: number; global: boolean }
  | {
      type: "consume";
      channel: ChannelId;
      queue: string;
      consumerTag: string;
      noAck?: boolean;
      exclusive?: boolean;
      noLocal?: boolean;
      arguments?: HeaderTable;
    }
  | { type: "cancel"; channel: ChannelId; consumerTag: string }
  /**
   * The channel's reader is this far: the machine pushes at most `credit` more `deliver` effects on this channel
   * (a `get` does not count), then none until the next `channel-credit`, which sets the number anew. A channel
   * without one has no limit. Keeps a consumer without prefetch from pulling a whole queue into memory.
   */
  | { type: "channel-credit"; channel: ChannelId; credit: number }
  | { type: "get"; channel: ChannelId; queue: string; noAck?: boolean }
  | { type: "ack"; channel: ChannelId; deliveryTag: DeliveryTag; multiple?: boolean }
  | { type: "nack"; channel: ChannelId; deliveryTag: DeliveryTag; multiple?: boolean; requeue: boolean }
  | { type: "reject"; channel: ChannelId; deliveryTag: DeliveryTag; requeue: boolean }
  | { type: "recover"; channel: ChannelId; requeue: boolean }
  /** The product's own: count a handler start (consumer-rules section 2). */
  | { type: "begin"; channel: ChannelId; deliveryTag: DeliveryTag }
  /** The product's own: to the back of the queue, optionally not before now + delayMs. Not a death, not limited. */
  | { type: "retry"; channel: ChannelId; deliveryTag: DeliveryTag; delayMs?: number }
  /** The product's own: back to its place, uncounted. */
  | { type: "release"; channel: ChannelId; deliveryTag: DeliveryTag }
  /** Delayed messages of a queue: take one back before it is due, or let it go now. */
  | { type: "delayed-cancel" | "delayed-release"; channel: ChannelId; queue: string; seq: Seq }
  /** What was sent just now is taken back, all or none (then the count is 0): its sender is told that it was refused. */
  | { type: "withdraw"; channel: ChannelId; queue: string; seqs: readonly Seq[] }
  | { type: "policy-set"; policy: Policy }
  | { type: "policy-clear"; name: string; operator?: boolean }
  /** Time has passed: expire, release delayed messages, end idle queues. */
  | { type: "tick" };

/** The command (or commands) of one type. */
export type CommandOf<T extends Command["type"]> = Command extends infer C
  ? C extends { type: Command["type"] }
    ? T extends C["type"]
      ? C
      : never
    : never
  : never;

/** A policy as in RabbitMQ: one per queue applies (highest priority), operator policies are a second layer. */
export interface Policy {
  readonly name: string;
  readonly pattern: string;
  readonly applyTo: "all" | "queues" | "exchanges" | "classic_queues" | "quorum_queues";
  readonly priority: number;
  readonly definition: Readonly<Record<string, string | number | boolean>>;
  readonly operator?: boolean;
}

/** Why a dead letter would vanish. */
export type LostWhy = "no-dlx" | "dlx-missing" | "unroutable" | "cycle" | "refused";

export type DeathReason = "rejected" | "expired" | "maxlen" | "delivery_limit";

export interface QueueRecord {
  readonly id: QueueId;
  readonly name: string;
  readonly type: QueueType;
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly exclusive: boolean;
  readonly arguments: HeaderTable;
}

export interface ExchangeRecord {
  readonly name: string;
  readonly type: ExchangeType;
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly internal: boolean;
  readonly arguments: HeaderTable;
}

export interface BindingRecord {
  readonly source: string;
  readonly destination: string;
  readonly destinationType: "queue" | "exchange";
  readonly routingKey: string;
  readonly arguments: HeaderTable;
}

/** To be written, all of one `apply` in one transaction. Only what must survive a restart is emitted. */
export type JournalEffect =
  | { type: "queue-put"; queue: QueueRecord }
  | { type: "queue-gone"; queueId: QueueId }
  | { type: "exchange-put"; exchange: ExchangeRecord }
  | { type: "exchange-gone"; name: string }
  | { type: "binding-put" | "binding-gone"; binding: BindingRecord }
  | { type: "policy-put"; policy: Policy }
  | { type: "policy-gone"; name: string; operator: boolean }
  | {
      type: "message-put";
      queueId: QueueId;
      state: MessageState;
      content: Content;
      /** A death or a move: the row this one continues, so that the journal may keep the body where it is. */
      from?: { queueId: QueueId; seq: Seq };
    }
  /** The whole state of a message whose row exists changed. */
  | { type: "message-state"; queueId: QueueId; state: MessageState }
  /**
   * First deliveries in order: every message of this queue with a position up to here has been handed out at
   * least once (its row is not written). Keep the highest per queue and give it back to `restore` as `handed`.
   */
  | { type: "queue-handed"; queueId: QueueId; upTo: number }
  | { type: "message-gone"; queueId: QueueId; seq: Seq }
  | { type: "queue-purged"; queueId: QueueId; seqs: readonly Seq[] };

/** To be let go after the journal effects of the same `apply` are durable. */
export type OutwardEffect =
  | {
      type: "deliver";
      channel: ChannelId;
      consumerTag: string;
      deliveryTag: DeliveryTag;
      redelivered: boolean;
      queueId: QueueId;
      state: MessageState;
      content: Content;
    }
  | { type: "confirm"; channel: ChannelId; publishTag: number; ok: boolean }
  | { type: "return"; channel: ChannelId; code: number; text: string; content: Content }
  | { type: "consumer-cancelled"; channel: ChannelId; consumerTag: string }
  | {
      type: "lost";
      queue: string;
      reason: DeathReason;
      why: LostWhy;
      exchange: string;
      routingKey: string;
      seq: Seq;
      content: Content;
    };

export type Effect = JournalEffect | OutwardEffect;

export type Reply =
  | { type: "ok" }
  | { type: "queue"; queue: string; messageCount: number; consumerCount: number }
  | { type: "count"; messageCount: number }
  | { type: "consume-ok"; consumerTag: string }
  | {
      type: "got";
      deliveryTag: DeliveryTag;
      redelivered: boolean;
      messageCount: number;
      queueId: QueueId;
      state: MessageState;
      content: Content;
    }
  | { type: "empty" };

/**
 * What a journal gives back after a restart. Contents of the messages must be in the ContentStore already (or
 * be loaded by it on demand). `messages` must come in rising `position` within each queue.
 */
export interface Restored {
  readonly queues: Iterable<QueueRecord>;
  readonly exchanges: Iterable<ExchangeRecord>;
  readonly bindings: Iterable<BindingRecord>;
  readonly policies: Iterable<Policy>;
  readonly messages: Iterable<{ readonly queueId: QueueId; readonly state: MessageState }>;
  /** The highest `queue-handed` of each queue. */
  readonly handed?: Iterable<readonly [QueueId, number]>;
  /** Seqs and positions below this were used before (one above the highest ever journaled). */
  readonly nextSeq?: number;
  readonly nextQueueId?: QueueId;
}

export interface Applied {
  readonly reply: Reply;
  readonly effects: readonly Effect[];
}
