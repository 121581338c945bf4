import {
  AmqpError,
  type BindingRecord,
  Broker,
  type BrokerOptions,
  type Command,
  type Content,
  type ContentStore,
  type Effect,
  type ExchangeRecord,
  HeaderTable,
  type JournalEffect,
  type MessageState,
  type OutwardEffect,
  type Policy,
  type Properties,
  type QueueRecord,
  type Reply,
  type Restored,
} from "../../../src/broker/index.ts";

export type Delivery = Extract<OutwardEffect, { type: "deliver" }>;
export type Lost = Extract<OutwardEffect, { type: "lost" }>;
type Got = Extract<Reply, { type: "got" }>;

export const text = (content: Content): string => new TextDecoder().decode(content.body);
const bytes = (body: string): Uint8Array => new TextEncoder().encode(body);

/** A content store that throws on anything that is not there, so that a leak or a double delete is seen. */
export class Contents implements ContentStore {
  readonly map: Map<number, Content> = new Map();
  put(seq: number, content: Content): void {
    this.map.set(seq, content);
  }
  get(seq: number): Content {
    const content = this.map.get(seq);
    if (content === undefined) throw new Error(`no content ${seq}`);
    return content;
  }
  delete(seq: number): void {
    if (!this.map.delete(seq)) throw new Error(`content ${seq} deleted twice`);
  }
}

const bindingId = (b: BindingRecord): string =>
  JSON.stringify([b.source, b.destinationType, b.destination, b.routingKey, [...b.arguments.bytes]]);

/** What a real journal does with the effects, in memory: rows only, no knowledge of the machine. */
export class Journal {
  readonly queues: Map<number, QueueRecord> = new Map();
  readonly exchanges: Map<string, ExchangeRecord> = new Map();
  readonly bindings: Map<string, BindingRecord> = new Map();
  readonly policies: Map<string, Policy> = new Map();
  readonly rows: Map<number, { queueId: number; state: MessageState; content: Content }> = new Map();
  readonly handed: Map<number, number> = new Map();
  nextSeq = 1;

  /** One command, one transaction. */
  write(effects: readonly Effect[]): void {
    for (const effect of effects) this.#one(effect as JournalEffect);
  }

  #one(e: JournalEffect): void {
    switch (e.type) {
      case "queue-put":
        this.queues.set(e.queue.id, e.queue);
        return;
      case "queue-gone":
        this.queues.delete(e.queueId);
        for (const [seq, row] of this.rows) if (row.queueId === e.queueId) this.rows.delete(seq);
        return;
      case "exchange-put":
        this.exchanges.set(e.exchange.name, e.exchange);
        return;
      case "exchange-gone":
        this.exchanges.delete(e.name);
        return;
      case "binding-put":
        this.bindings.set(bindingId(e.binding), e.binding);
        return;
      case "binding-gone":
        if (!this.bindings.delete(bindingId(e.binding))) throw new Error("unknown binding gone");
        return;
      case "policy-put":
        this.policies.set(`${e.policy.operator === true}/${e.policy.name}`, e.policy);
        return;
      case "policy-gone":
        this.policies.delete(`${e.operator}/${e.name}`);
        return;
      case "message-put":
        if (this.rows.has(e.state.seq)) throw new Error(`row ${e.state.seq} put twice`);
        if (e.from !== undefined && !this.rows.has(e.from.seq))
          throw new Error(`row ${e.from.seq} is not there`);
        this.rows.set(e.state.seq, { queueId: e.queueId, state: e.state, content: e.content });
        this.nextSeq = Math.max(this.nextSeq, e.state.seq + 1, e.state.position + 1);
        return;
      case "message-state": {
        const row = this.rows.get(e.state.seq);
        if (row === undefined) throw new Error(`state of row ${e.state.seq}, which is not there`);
        this.rows.set(e.state.seq, { ...row, state: e.state });
        this.nextSeq = Math.max(this.nextSeq, e.state.position + 1);
        return;
      }
      case "message-gone":
        if (!this.rows.delete(e.seq)) throw new Error(`row ${e.seq} gone twice`);
        return;
      case "queue-purged":
        for (const seq of e.seqs) if (!this.rows.delete(seq)) throw new Error(`row ${seq} purged twice`);
        return;
      case "queue-handed":
        this.handed.set(e.queueId, Math.max(e.upTo, this.handed.get(e.queueId) ?? -Infinity));
        return;
    }
  }

  read(contents: Contents): Restored {
    const rows = [...this.rows.values()].sort((a, b) => a.state.position - b.state.position);
    for (const { state, content } of rows) contents.put(state.seq, content);
    return {
      queues: [...this.queues.values()],
      exchanges: [...this.exchanges.values()],
      bindings: [...this.bindings.values()],
      policies: [...this.policies.values()],
      messages: rows.map(({ queueId, state }) => ({ queueId, state })),
      handed: [...this.handed],
      nextSeq: this.nextSeq,
    };
  }
}

export interface QueueOptions {
  durable?: boolean;
  exclusive?: boolean;
  autoDelete?: boolean;
  on?: number;
}

/** A broker with a fake clock, a journal, and short words for its commands. Channel 1 is open; others open on use. */
export class World {
  now = 1_800_000_000_000;
  contents: Contents = new Contents();
  readonly journal: Journal = new Journal();
  readonly options: BrokerOptions;
  broker: Broker;
  /** Of the last command. */
  effects: readonly Effect[] = [];
  readonly deliveries: Delivery[] = [];
  readonly lost: Lost[] = [];
  #open: Map<number, number> = new Map();

  constructor(options: BrokerOptions = {}) {
    this.options = options;
    this.broker = new Broker({ ...options, contents: this.contents });
    this.open(1);
  }

  do(command: Command): Reply {
    const { reply, effects } = this.broker.apply(command, this.now);
    this.journal.write(effects);
    this.effects = effects;
    for (const effect of effects) {
      if (effect.type === "deliver") this.deliveries.push(effect);
      if (effect.type === "lost") this.lost.push(effect);
    }
    return reply;
  }

  /** The code and text a refused command answers. */
  refusal(command: Command): string {
    try {
      this.do(command);
    } catch (error) {
      if (error instanceof AmqpError) return `${error.code} ${error.message}`;
      throw error;
    }
    return "accepted";
  }

  open(channel: number, connection: number = channel): number {
    this.#open.set(channel, connection);
    this.do({ type: "open-channel", connection, channel });
    return channel;
  }

  queue(queue: string, args: Record<string, unknown> = {}, { on = 1, ...flags }: QueueOptions = {}): Reply {
    const table = HeaderTable.fromObject(args);
    return this.do({ type: "queue-declare", channel: on, queue, durable: true, ...flags, arguments: table });
  }

  exchange(
    exchange: string,
    exchangeType: string,
    flags: Partial<Command> & { arguments?: HeaderTable } = {},
  ): void {
    const command = { type: "exchange-declare", channel: 1, exchange, exchangeType, durable: true, ...flags };
    this.do(command as Command);
  }

  bind(queue: string, exchange: string, routingKey = "", args: Record<string, unknown> = {}): void {
    const table = HeaderTable.fromObject(args);
    this.do({ type: "queue-bind", channel: 1, queue, exchange, routingKey, arguments: table });
  }

  /** Persistent unless said. */
  publish(exchange: string, routingKey: string, body: string, properties: Properties = {}, extra = {}): void {
    const all: Properties = { deliveryMode: 2, ...properties };
    this.do({
      type: "publish",
      channel: 1,
      exchange,
      routingKey,
      properties: all,
      body: bytes(body),
      ...extra,
    });
  }

  send(queue: string, ...bodies: string[]): void {
    for (const body of bodies) this.publish("", queue, body);
  }

  get(queue: string, on = 1, noAck = false): Got {
    const reply = this.do({ type: "get", channel: on, queue, noAck });
    if (reply.type !== "got") throw new Error(`${queue} is empty`);
    return reply;
  }

  consume(queue: string, on = 1, extra: Partial<Extract<Command, { type: "consume" }>> = {}): string {
    const reply = this.do({ type: "consume", channel: on, queue, consumerTag: "", ...extra });
    return reply.type === "consume-ok" ? reply.consumerTag : "";
  }

  qos(prefetchCount: number, on = 1, global = false): void {
    this.do({ type: "qos", channel: on, prefetchCount, global });
  }

  ack(deliveryTag: number, on = 1, multiple = false): void {
    this.do({ type: "ack", channel: on, deliveryTag, multiple });
  }

  reject(deliveryTag: number, requeue: boolean, on = 1): void {
    this.do({ type: "reject", channel: on, deliveryTag, requeue });
  }

  nack(deliveryTag: number, requeue: boolean, on = 1, multiple = true): void {
    this.do({ type: "nack", channel: on, deliveryTag, multiple, requeue });
  }

  crash(connection: number): void {
    this.do({ type: "close-connection", connection });
  }

  /** Moves the clock from alarm to alarm. */
  pass(ms: number): void {
    const end = this.now + ms;
    for (let next = this.broker.nextWakeAt(); next <= end; next = this.broker.nextWakeAt()) {
      this.now = Math.max(this.now, next);
      this.do({ type: "tick" });
    }
    this.now = end;
  }

  /** The process dies here and starts again after `downMs`; channel 1 is open again. */
  restart(downMs = 0): void {
    this.now += downMs;
    this.contents = new Contents();
    const restored = this.journal.read(this.contents);
    this.broker = new Broker({ ...this.options, contents: this.contents });
    this.broker.restore(restored);
    this.do({ type: "tick" });
    this.open(1);
  }

  /** Bodies that wait, in order, without taking them. */
  waiting(queue: string): string[] {
    return this.broker.peek(queue, Infinity).map((m) => text(m.content));
  }

  bodies(on?: number): string[] {
    return this.deliveries.filter((d) => on === undefined || d.channel === on).map((d) => text(d.content));
  }

  /** x-death of the first waiting message: `queue reason count`, in order. */
  deaths(queue: string): string[] {
    const first = this.broker.peek(queue, 1)[0];
    const value = first?.content.properties.headers?.get("x-death");
    if (value?.t !== "A") return [];
    return value.v.map((item) => {
      if (item.t !== "F") return "junk";
      const of = (key: string): unknown => item.v.get(key)?.v;
      return `${of("queue")} ${of("reason")} ${of("count")}`;
    });
  }
}

export const args = (object: Record<string, unknown>): HeaderTable => HeaderTable.fromObject(object);

/** A queue whose dead letters go to queue `to`. */
export const dlx = (to: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  "x-dead-letter-exchange": "",
  "x-dead-letter-routing-key": to,
  ...more,
});

export const quorum = (more: Record<string, unknown> = {}): Record<string, unknown> => ({
  "x-queue-type": "quorum",
  ...more,
});
