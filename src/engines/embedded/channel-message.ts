/** Messages of the in-process channel in amqplib's shape, and its publish options as AMQP properties. */
import type { Content, Properties } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import { toProperties } from "./message.ts";

/** A delivered, got or returned message, as amqplib shapes it. */
export interface ChannelMessage {
  readonly content: Buffer;
  readonly fields: MessageFields;
  readonly properties: MessageProperties;
}

export interface MessageFields {
  readonly deliveryTag: number;
  readonly redelivered: boolean;
  readonly exchange: string;
  readonly routingKey: string;
  readonly consumerTag?: string;
  /** Of a `get`: how many are left. */
  readonly messageCount?: number;
  /** Of a return. */
  readonly replyCode?: number;
  readonly replyText?: string;
}

/** The fourteen properties; those not set are undefined, headers is an object always. */
export interface MessageProperties {
  readonly contentType: string | undefined;
  readonly contentEncoding: string | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly deliveryMode: number | undefined;
  readonly priority: number | undefined;
  readonly correlationId: string | undefined;
  readonly replyTo: string | undefined;
  readonly expiration: string | undefined;
  readonly messageId: string | undefined;
  readonly timestamp: number | bigint | undefined;
  readonly type: string | undefined;
  readonly userId: string | undefined;
  readonly appId: string | undefined;
  readonly clusterId: string | undefined;
}

/** What `publish` and `sendToQueue` take besides the content; names and meaning are amqplib's. */
export interface PublishOptions {
  /** ms; text goes to the broker as it is. */
  readonly expiration?: string | number;
  readonly userId?: string;
  readonly CC?: string | readonly string[];
  readonly BCC?: string | readonly string[];
  readonly mandatory?: boolean;
  /** Survives a restart in a durable queue: the same as `deliveryMode: 2`. Default false, as on the wire. */
  readonly persistent?: boolean;
  readonly deliveryMode?: number | boolean;
  readonly priority?: number;
  readonly correlationId?: string;
  readonly replyTo?: string;
  readonly messageId?: string;
  readonly timestamp?: number | Date;
  readonly type?: string;
  readonly appId?: string;
  readonly contentType?: string;
  readonly contentEncoding?: string;
  readonly headers?: Readonly<Record<string, unknown>>;
  /** The product's own: not before this many ms from now, whatever is sent before or after. */
  readonly delayMs?: number;
}

export function toMessage(
  content: Content,
  fields: Omit<MessageFields, "exchange" | "routingKey">,
): ChannelMessage {
  const { properties: p, body } = content;
  return {
    content: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
    fields: { ...fields, exchange: content.exchange, routingKey: content.routingKey },
    properties: {
      contentType: p.contentType,
      contentEncoding: p.contentEncoding,
      headers: p.headers?.toObject() ?? {},
      deliveryMode: p.deliveryMode,
      priority: p.priority,
      correlationId: p.correlationId,
      replyTo: p.replyTo,
      expiration: p.expiration,
      messageId: p.messageId,
      timestamp: p.timestamp,
      type: p.type,
      userId: p.userId,
      appId: p.appId,
      clusterId: p.clusterId,
    },
  };
}

export function propertiesOf(options: PublishOptions): Properties {
  const { persistent, deliveryMode, CC, BCC, headers = {}, ...rest } = options;
  const all: Record<string, unknown> = { ...headers };
  if (CC !== undefined) all.CC = typeof CC === "string" ? [CC] : [...CC];
  if (BCC !== undefined) all.BCC = typeof BCC === "string" ? [BCC] : [...BCC];
  const properties = toProperties({ ...rest }, all);
  if (persistent !== undefined) properties.deliveryMode = persistent ? 2 : 1;
  else if (typeof deliveryMode === "boolean") properties.deliveryMode = deliveryMode ? 2 : 1;
  else if (typeof deliveryMode === "number") properties.deliveryMode = deliveryMode;
  return properties;
}

/** The bytes of a content, copied: the caller may change its buffer while the message waits. */
export function contentBytes(content: unknown): Uint8Array {
  if (content instanceof Uint8Array) return Buffer.from(content);
  throw new DloError("BAD_BODY", `content is of type ${typeof content}; expected a Buffer or Uint8Array`);
}
