/** Bodies and properties between AMQP and the ports: what a handler sees, and what goes back on the wire unchanged. */
import { createHash } from "node:crypto";
import type { MessageProperties, Options } from "amqplib";
import { DloError } from "../../core/index.ts";
import { applicationHeaders, H, type Headers, hopHeaders } from "./headers.ts";

/** How bodies are read and written. */
export interface Codec<B> {
  /** Bytes to body. May throw: the message is then dead-lettered as undecodable, its bytes kept. */
  decode(content: Uint8Array, properties: Readonly<Record<string, unknown>>): B;
  encode(body: B): { readonly content: Uint8Array; readonly contentType?: string };
}

/**
 * JSON where the content type says so or says nothing and the bytes are JSON; text for `text/...`; else the bytes.
 */
export const standardCodec: Codec<unknown> = {
  decode(content, properties) {
    const type = properties["contentType"];
    const bytes = Buffer.from(content.buffer, content.byteOffset, content.byteLength);
    if (properties["contentEncoding"] !== undefined && properties["contentEncoding"] !== "utf-8")
      return bytes;
    if (type === undefined) {
      try {
        return JSON.parse(bytes.toString("utf8"));
      } catch {
        return bytes;
      }
    }
    if (typeof type !== "string") return bytes;
    if (/[/+]json\b/i.test(type)) return JSON.parse(bytes.toString("utf8"));
    return /^text\//i.test(type) ? bytes.toString("utf8") : bytes;
  },
  encode(body) {
    if (body instanceof Uint8Array) return { content: body, contentType: "application/octet-stream" };
    const text = JSON.stringify(body);
    if (text === undefined) {
      throw new DloError("BAD_BODY", `a body must be JSON or bytes, got ${typeof body}`);
    }
    return { content: Buffer.from(text), contentType: "application/json" };
  },
};

const NAMES = [
  "contentType",
  "contentEncoding",
  "correlationId",
  "replyTo",
  "expiration",
  "messageId",
  "timestamp",
  "type",
  "userId",
  "appId",
  "clusterId",
  "priority",
  "deliveryMode",
] as const satisfies readonly (keyof MessageProperties)[];

/** The properties a message was first published with, without headers. */
export function shownProperties(properties: MessageProperties): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const name of NAMES) {
    const value: unknown = properties[name];
    if (value !== undefined) out[name] = value;
  }
  const headers = properties.headers as Headers | undefined;
  if (headers?.[H.expiration] !== undefined) out["expiration"] = headers[H.expiration];
  if (headers?.[H.userId] !== undefined) out["userId"] = headers[H.userId];
  return out;
}

/** What a hop must know of the message it moves. */
export interface Cargo {
  readonly content: Uint8Array;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly headers: Headers | undefined;
}

/** A delivery's cargo as the application sent it. */
export function cargoOf(message: { content: Buffer; properties: MessageProperties }): Cargo {
  return {
    content: message.content,
    properties: shownProperties(message.properties),
    headers: applicationHeaders(message.properties.headers as Headers | undefined),
  };
}

/**
 * Publish options for one hop: everything as it was, with what would act again put aside (expiration would run
 * anew, a foreign user-id is refused by the broker). On a `final` hop, back to the work queue by hand of a replay,
 * the expiration is in its place again.
 */
export function hopOptions(
  cargo: Cargo,
  own: Readonly<Record<string, unknown>>,
  user: string,
  final = false,
): Options.Publish {
  const { expiration, userId, clusterId: _, ...rest } = cargo.properties;
  const aside: Record<string, unknown> = { ...own };
  const options: Record<string, unknown> = { ...rest };
  if (expiration !== undefined) {
    if (final) options["expiration"] = expiration;
    else aside[H.expiration] = expiration;
  }
  if (userId !== undefined) {
    if (userId === user) options["userId"] = userId;
    else aside[H.userId] = userId;
  }
  options["headers"] = hopHeaders(cargo.headers, aside);
  return options as Options.Publish;
}

/**
 * The id of a message: its message-id, or the one we gave it on an earlier hop, or one made of what it is. Two
 * equal messages without an id share it, so publishers should set message-id.
 */
export function idOf(message: {
  content: Buffer;
  properties: MessageProperties;
  fields: { exchange: string; routingKey: string };
}): string {
  const given: unknown = message.properties.messageId;
  if (typeof given === "string" && given !== "") return given;
  const kept: unknown = (message.properties.headers as Headers | undefined)?.[H.id];
  if (typeof kept === "string" && kept !== "") return kept;
  const { timestamp, correlationId } = message.properties as { timestamp?: unknown; correlationId?: unknown };
  return `sha256-${createHash("sha256")
    .update(JSON.stringify([timestamp ?? null, correlationId ?? null]))
    .update(message.content)
    .digest("hex")
    .slice(0, 32)}`;
}
