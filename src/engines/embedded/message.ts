/** Between AMQP properties and the plain objects people see; and what this engine itself writes on a message. */
import { type Content, HeaderTable, type Properties } from "../../broker/index.ts";
import { type Message, parseJson } from "../../core/index.ts";
import type { Resend } from "../../ports/index.ts";
import { BYTES, decodeBody, JSON_TYPE, TEXT } from "./body.ts";

/** Which life of the message this is, where it is not the first. Never shown among the headers. */
export const GENERATION_HEADER = "x-dlo-generation";

/** What the broker writes on a dead letter, and a replay takes off: kept, it would count and route wrongly. */
export const DEATH_HEADERS: readonly string[] = [
  "x-death",
  "x-first-death-reason",
  "x-first-death-queue",
  "x-first-death-exchange",
  "x-last-death-reason",
  "x-last-death-queue",
  "x-last-death-exchange",
  "x-delivery-count",
  "x-acquired-count",
];

type Plain = Readonly<Record<string, unknown>>;

/** Properties as a plain object, and the headers apart. */
export function plainProperties(properties: Readonly<Properties>): { properties: Plain; headers?: Plain } {
  const { headers, ...rest } = properties;
  const plain = headers?.without([GENERATION_HEADER]);
  return plain === undefined || plain.size === 0
    ? { properties: { ...rest } }
    : { properties: { ...rest }, headers: plain.toObject() };
}

const TEXTS = [
  "contentType",
  "contentEncoding",
  "correlationId",
  "replyTo",
  "expiration",
  "messageId",
  "type",
  "userId",
  "appId",
  "clusterId",
] as const;

/** Plain properties as AMQP's, unknown ones left out. `expiration` may be a number, `timestamp` a Date. */
export function toProperties(plain: Plain, headers?: Plain): Properties {
  const properties: Properties = {};
  for (const name of TEXTS) {
    const value = plain[name];
    if (typeof value === "string") properties[name] = value;
    else if (name === "expiration" && typeof value === "number") properties[name] = String(value);
  }
  if (typeof plain.deliveryMode === "number") properties.deliveryMode = plain.deliveryMode;
  if (typeof plain.priority === "number") properties.priority = plain.priority;
  const { timestamp } = plain;
  if (timestamp instanceof Date) properties.timestamp = Math.floor(timestamp.getTime() / 1000);
  else if (typeof timestamp === "number" || typeof timestamp === "bigint") properties.timestamp = timestamp;
  if (headers !== undefined && Object.keys(headers).length > 0)
    properties.headers = HeaderTable.fromObject(headers);
  return properties;
}

/** Marks which life of a message this is. */
export function withGeneration(properties: Properties, generation: number): Properties {
  if (generation <= 1) return properties;
  const headers = properties.headers ?? HeaderTable.empty;
  return { ...properties, headers: headers.with({ [GENERATION_HEADER]: { t: "I", v: generation } }) };
}

export function generationOf(properties: Readonly<Properties>): number {
  const value = properties.headers?.get(GENERATION_HEADER);
  return value !== undefined && typeof value.v === "number" && value.v > 1 ? value.v : 1;
}

/** A message of the queue port that is still being put together. */
export type Draft = { -readonly [K in keyof Message]: Message[K] };

/** The message a content is handed out as, in its `receiveCount`-th start. */
export function messageOf(
  id: string,
  content: Content,
  counts: { readonly receiveCount: number; readonly firstReceivedAt: number },
  receipt: number,
): Draft {
  const { properties, body } = content;
  const { contentType } = properties;
  const { receiveCount, firstReceivedAt } = counts;
  const generation = generationOf(properties);
  const own = isOwn(properties);
  if (own && contentType === TEXT) {
    const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("utf8");
    return { id, body: text, generation, receiveCount, firstReceivedAt, receipt };
  }
  const decoded = contentType === JSON_TYPE ? decodeJson(body) : { body: decodeBody(body, contentType) };
  const message: Draft = { id, ...decoded, generation, receiveCount, firstReceivedAt, receipt };
  if (own) return message;
  // Of one class wherever the bytes come from: the cache, the file, a client's frame.
  const raw = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  return { ...message, ...plainProperties(properties), raw };
}

function decodeJson(bytes: Uint8Array): Pick<Message, "body" | "undecodable"> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = buffer.toString("utf8");
  try {
    return { body: JSON.parse(text) as unknown };
  } catch {
    const parsed = parseJson(text);
    const undecodable = "undecodable" in parsed ? parsed.undecodable : "the body is empty, not JSON";
    return { body: buffer, undecodable };
  }
}

/** Sent by this engine with nothing but a body: there is nothing to tell about its properties. */
function isOwn(p: Readonly<Properties>): boolean {
  return (
    p.deliveryMode === 2 &&
    (p.contentType === TEXT || p.contentType === JSON_TYPE || p.contentType === BYTES) &&
    (p.headers === undefined || p.headers.without([GENERATION_HEADER]).size === 0) &&
    p.contentEncoding === undefined &&
    p.priority === undefined &&
    p.correlationId === undefined &&
    p.replyTo === undefined &&
    p.expiration === undefined &&
    p.timestamp === undefined &&
    p.type === undefined &&
    p.userId === undefined &&
    p.appId === undefined &&
    p.clusterId === undefined
  );
}

const RESEND_FIELDS = new Set(["id", "body", "generation", "headers", "properties", "raw"]);

/** `{ id, body }`, and not a body that happens to be an object. */
export function isResend(message: unknown): message is Resend {
  if (typeof message !== "object" || message === null || Array.isArray(message)) return false;
  if (typeof (message as { id?: unknown }).id !== "string" || !("body" in message)) return false;
  return Object.keys(message).every((key) => RESEND_FIELDS.has(key));
}
