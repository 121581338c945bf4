/**
 * A channel on the broker in its own process, with amqplib's methods and message shapes. Every promise resolves
 * when what it stands for is durable by the broker's durability.
 *
 * open -> closed (close(), or the broker ends) ; open -> failed (a refused command: its promise is rejected or, for
 * methods without one, `error` is emitted; then `close`). A failed channel gives back what it held; the broker and
 * all other channels go on.
 */

import { randomBytes } from "node:crypto";
import { EventEmitter } from "node:events";
import { type Command, HeaderTable, type OutwardEffect, type Reply } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import {
  type ChannelMessage,
  contentBytes,
  type PublishOptions,
  propertiesOf,
  toMessage,
} from "./channel-message.ts";
import { type QueueOptions, queueArguments } from "./options.ts";
import type { Connection, Vhost } from "./vhost.ts";

export interface ExchangeOptions {
  /** Default true. */
  readonly durable?: boolean;
  readonly internal?: boolean;
  readonly autoDelete?: boolean;
  readonly alternateExchange?: string;
  readonly arguments?: Readonly<Record<string, unknown>>;
}

export interface ConsumeOptions {
  readonly consumerTag?: string;
  readonly noAck?: boolean;
  readonly exclusive?: boolean;
  readonly priority?: number;
  readonly arguments?: Readonly<Record<string, unknown>>;
}

/** Gets each message, and null when the broker ends the consumer (its queue is gone). */
export type OnMessage = (message: ChannelMessage | null) => void;

/** What was asserted. */
export interface QueueOk {
  readonly queue: string;
  readonly messageCount: number;
  readonly consumerCount: number;
}

type Args = Readonly<Record<string, unknown>>;
type CommandBody = Command extends infer C
  ? C extends { channel: number }
    ? Omit<C, "channel">
    : never
  : never;

const table = (args: Args | undefined): HeaderTable =>
  args === undefined || Object.keys(args).length === 0 ? HeaderTable.empty : HeaderTable.fromObject(args);

/** See the head of this file. Events: `error` (AmqpError), `return` (message), `close`. */
export class Channel extends EventEmitter {
  readonly #vhost: Vhost;
  readonly #connection: Connection;
  readonly #channel: number;
  readonly #consumers = new Map<string, OnMessage>();
  #state: "open" | "closed" | "failed" = "open";

  /** @internal */
  constructor(vhost: Vhost) {
    super();
    this.#vhost = vhost;
    const sink = {
      effect: (effect: OutwardEffect) => this.#hear(effect),
      flush: () => {},
      ended: () => this.#end("closed"),
    };
    this.#connection = vhost.connect(sink, "channel");
    this.#channel = this.#connection.openChannel();
  }

  #hear(effect: OutwardEffect): void {
    switch (effect.type) {
      case "deliver": {
        const { deliveryTag, redelivered, consumerTag, content } = effect;
        this.#consumers.get(consumerTag)?.(toMessage(content, { deliveryTag, redelivered, consumerTag }));
        return;
      }
      case "consumer-cancelled": {
        const onMessage = this.#consumers.get(effect.consumerTag);
        this.#drop(effect.consumerTag);
        onMessage?.(null);
        return;
      }
      case "return": {
        const { code, text, content } = effect;
        const fields = { deliveryTag: 0, redelivered: false, replyCode: code, replyText: text };
        this.emit("return", toMessage(content, fields));
        return;
      }
      case "confirm":
        this.confirmed(effect.publishTag, effect.ok);
        return;
      default:
    }
  }

  /** @internal For the confirm channel. */
  protected confirmed(_tag: number, _ok: boolean): void {}

  /** Applies a command; a refusal fails the channel and is thrown. */
  protected submit(body: CommandBody): Reply {
    if (this.#state !== "open") throw new DloError("CLOSED", `this channel is ${this.#state}`);
    try {
      return this.#connection.submit({ ...body, channel: this.#channel } as Command);
    } catch (error) {
      // The broker's own trouble (a full disk) is no fault of the channel.
      if (!(error instanceof DloError)) this.#end("failed", error);
      throw error;
    }
  }

  /** A command without a promise: a refusal is emitted, or thrown where nobody listens. */
  protected tell(body: CommandBody): boolean {
    try {
      this.submit(body);
      return true;
    } catch (error) {
      if (error instanceof DloError || this.listenerCount("error") === 0) throw error;
      this.emit("error", error);
      return false;
    }
  }

  /** A command with a promise. */
  async #ask<T>(body: CommandBody, answer: (reply: Reply) => T): Promise<T> {
    const reply = this.submit(body);
    return this.#committed(answer(reply));
  }

  #committed<T>(value: T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#vhost.host.committer.after((error) => (error === null ? resolve(value) : reject(error)));
    });
  }

  #end(state: "closed" | "failed", error?: unknown): void {
    if (this.#state !== "open") return;
    this.#state = state;
    for (const tag of [...this.#consumers.keys()]) this.#drop(tag);
    this.#connection.close();
    this.ended(error ?? new DloError("CLOSED", "the channel was closed"));
    setImmediate(() => this.emit("close"));
  }

  /** @internal For the confirm channel. */
  protected ended(_why: unknown): void {}

  async assertExchange(
    exchange: string,
    type: string,
    options: ExchangeOptions = {},
  ): Promise<{ exchange: string }> {
    const alternate = options.alternateExchange;
    const args = {
      ...options.arguments,
      ...(alternate === undefined ? {} : { "alternate-exchange": alternate }),
    };
    return this.#ask(
      {
        type: "exchange-declare",
        exchange,
        exchangeType: type,
        durable: options.durable ?? true,
        autoDelete: options.autoDelete ?? false,
        internal: options.internal ?? false,
        arguments: table(args),
      },
      () => ({ exchange }),
    );
  }

  /** Fails the channel (404) when there is no such exchange. */
  async checkExchange(exchange: string): Promise<void> {
    const declare = { type: "exchange-declare", exchange, exchangeType: "direct", passive: true } as const;
    return this.#ask(declare, () => undefined);
  }

  async deleteExchange(exchange: string, options: { ifUnused?: boolean } = {}): Promise<void> {
    return this.#ask({ type: "exchange-delete", exchange, ...options }, () => undefined);
  }

  async bindExchange(destination: string, source: string, routingKey: string, args?: Args): Promise<void> {
    const bind = { type: "exchange-bind", source, destination, routingKey, arguments: table(args) } as const;
    return this.#ask(bind, () => undefined);
  }

  async unbindExchange(destination: string, source: string, routingKey: string, args?: Args): Promise<void> {
    const unbind = {
      type: "exchange-unbind",
      source,
      destination,
      routingKey,
      arguments: table(args),
    } as const;
    return this.#ask(unbind, () => undefined);
  }

  /** Makes the queue, or checks that it is as described. Without a name the broker gives one. */
  async assertQueue(queue: string = "", options: QueueOptions = {}): Promise<QueueOk> {
    const declare: CommandBody = {
      type: "queue-declare",
      queue,
      durable: options.durable ?? true,
      exclusive: options.exclusive ?? false,
      autoDelete: options.autoDelete ?? false,
      arguments: queueArguments(options),
      ...(queue === "" ? { generatedName: `amq.gen-${randomBytes(16).toString("base64url")}` } : {}),
    };
    return this.#ask(declare, queueOk);
  }

  /** Fails the channel (404) when there is no such queue. */
  async checkQueue(queue: string): Promise<QueueOk> {
    return this.#ask({ type: "queue-declare", queue, passive: true }, queueOk);
  }

  async bindQueue(queue: string, exchange: string, routingKey: string, args?: Args): Promise<void> {
    const bind = { type: "queue-bind", queue, exchange, routingKey, arguments: table(args) } as const;
    return this.#ask(bind, () => undefined);
  }

  async unbindQueue(queue: string, exchange: string, routingKey: string, args?: Args): Promise<void> {
    const unbind = { type: "queue-unbind", queue, exchange, routingKey, arguments: table(args) } as const;
    return this.#ask(unbind, () => undefined);
  }

  async purgeQueue(queue: string): Promise<{ messageCount: number }> {
    return this.#ask({ type: "queue-purge", queue }, counted);
  }

  async deleteQueue(
    queue: string,
    options: { ifUnused?: boolean; ifEmpty?: boolean } = {},
  ): Promise<{ messageCount: number }> {
    return this.#ask({ type: "queue-delete", queue, ...options }, counted);
  }

  /** Answers true; false after a refusal that was emitted. What it sends is durable with this turn's commit. */
  publish(exchange: string, routingKey: string, content: Uint8Array, options: PublishOptions = {}): boolean {
    return this.tell({
      type: "publish",
      exchange,
      routingKey,
      mandatory: options.mandatory ?? false,
      properties: propertiesOf(options),
      body: contentBytes(content),
      ...(options.delayMs === undefined ? {} : { delayMs: options.delayMs }),
    });
  }

  /** {@link publish} through the default exchange. */
  sendToQueue(queue: string, content: Uint8Array, options: PublishOptions = {}): boolean {
    return this.publish("", queue, content, options);
  }

  /** Starts a consumer; `onMessage` is called after the commit that hands the message out. */
  async consume(
    queue: string,
    onMessage: OnMessage,
    options: ConsumeOptions = {},
  ): Promise<{ consumerTag: string }> {
    const consumerTag = options.consumerTag || `amq.ctag-${randomBytes(16).toString("base64url")}`;
    const { priority } = options;
    const args = { ...options.arguments, ...(priority === undefined ? {} : { "x-priority": priority }) };
    this.submit({
      type: "consume",
      queue,
      consumerTag,
      noAck: options.noAck ?? false,
      exclusive: options.exclusive ?? false,
      arguments: table(args),
    });
    this.#consumers.set(consumerTag, onMessage);
    this.#vhost.host.holdOpen(1);
    return this.#committed({ consumerTag });
  }

  #drop(consumerTag: string): void {
    if (this.#consumers.delete(consumerTag)) this.#vhost.host.holdOpen(-1);
  }

  /** Ends a consumer; what it holds stays with the channel. */
  async cancel(consumerTag: string): Promise<{ consumerTag: string }> {
    const done = this.#ask({ type: "cancel", consumerTag }, () => ({ consumerTag }));
    this.#drop(consumerTag);
    return done;
  }

  /** One message, or false. */
  async get(queue: string, options: { noAck?: boolean } = {}): Promise<ChannelMessage | false> {
    return this.#ask({ type: "get", queue, noAck: options.noAck ?? false }, (reply) => {
      if (reply.type !== "got") return false;
      const { deliveryTag, redelivered, messageCount, content } = reply;
      return toMessage(content, { deliveryTag, redelivered, messageCount });
    });
  }

  ack(message: ChannelMessage, allUpTo: boolean = false): void {
    this.tell({ type: "ack", deliveryTag: message.fields.deliveryTag, multiple: allUpTo });
  }

  ackAll(): void {
    this.tell({ type: "ack", deliveryTag: 0, multiple: true });
  }

  nack(message: ChannelMessage, allUpTo: boolean = false, requeue: boolean = true): void {
    this.tell({ type: "nack", deliveryTag: message.fields.deliveryTag, multiple: allUpTo, requeue });
  }

  nackAll(requeue: boolean = true): void {
    this.tell({ type: "nack", deliveryTag: 0, multiple: true, requeue });
  }

  reject(message: ChannelMessage, requeue: boolean = true): void {
    this.tell({ type: "reject", deliveryTag: message.fields.deliveryTag, requeue });
  }

  /** How many unacked messages consumers started from now on may hold; 0: any number. */
  async prefetch(count: number, global: boolean = false): Promise<void> {
    return this.#ask({ type: "qos", prefetchCount: count, global }, () => undefined);
  }

  /** Gives back everything unacked. */
  async recover(): Promise<void> {
    return this.#ask({ type: "recover", requeue: true }, () => undefined);
  }

  /** Closes the channel; what it held goes back. */
  async close(): Promise<void> {
    this.#end("closed");
    if (!this.#vhost.host.isClosed) return this.#committed(undefined);
  }
}

function queueOk(reply: Reply): QueueOk {
  if (reply.type !== "queue") throw new DloError("INTERNAL", "a queue was declared and not described");
  const { queue, messageCount, consumerCount } = reply;
  return { queue, messageCount, consumerCount };
}

function counted(reply: Reply): { messageCount: number } {
  return { messageCount: reply.type === "count" ? reply.messageCount : 0 };
}
