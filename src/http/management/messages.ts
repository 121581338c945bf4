import type { Content, Properties, VirtualHost } from "../../broker/index.ts";
import { ApiError, plain, type Session, table, withSession } from "./context.ts";

type Json = Record<string, unknown>;

const TEXT_PROPERTIES = {
  content_type: "contentType",
  content_encoding: "contentEncoding",
  correlation_id: "correlationId",
  reply_to: "replyTo",
  expiration: "expiration",
  message_id: "messageId",
  type: "type",
  user_id: "userId",
  app_id: "appId",
  cluster_id: "clusterId",
} as const;
const NUMBER_PROPERTIES = {
  delivery_mode: "deliveryMode",
  priority: "priority",
  timestamp: "timestamp",
} as const;

/** Properties by their management names, as a client sends them. */
function propertiesOf(value: unknown): Properties {
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return {};
  if (typeof value !== "object" || Array.isArray(value))
    throw new ApiError(400, "bad_request", "properties must be an object");
  const given = value as Json;
  const out: Properties = {};
  for (const [name, key] of Object.entries(TEXT_PROPERTIES)) {
    if (given[name] !== undefined) out[key] = String(given[name]);
  }
  for (const [name, key] of Object.entries(NUMBER_PROPERTIES)) {
    if (given[name] === undefined) continue;
    if (!Number.isSafeInteger(given[name]))
      throw new ApiError(400, "bad_request", `${name} must be a whole number`);
    out[key] = given[name] as number;
  }
  if (given["headers"] !== undefined) out.headers = table(given["headers"], "headers");
  return out;
}

function propertiesView(properties: Readonly<Properties>): Json {
  const out: Json = {};
  for (const [name, key] of Object.entries({ ...TEXT_PROPERTIES, ...NUMBER_PROPERTIES })) {
    if (properties[key] !== undefined) out[name] = properties[key];
  }
  if (properties.headers) out["headers"] = plain(properties.headers.toObject());
  return out;
}

/** `POST /api/exchanges/VHOST/NAME/publish`: `{ routed }`, answered after the message is durable. */
export function publish(vhost: VirtualHost, exchange: string, body: Json): Promise<Json> {
  const { routing_key: key, payload, payload_encoding: encoding } = body;
  if (typeof key !== "string") throw new ApiError(400, "bad_request", "key_missing: routing_key");
  if (typeof payload !== "string") throw new ApiError(400, "bad_request", "key_missing: payload");
  if (encoding !== undefined && encoding !== "string" && encoding !== "base64")
    throw new ApiError(
      400,
      "bad_request",
      `payload_encoding must be string or base64, got ${JSON.stringify(encoding)}`,
    );
  const properties = propertiesOf(body["properties"]);
  const bytes = new Uint8Array(Buffer.from(payload, encoding === "base64" ? "base64" : "utf8"));
  let session: Session;
  return withSession(vhost, (opened) => {
    session = opened;
    opened.submit({
      type: "publish",
      channel: opened.channel,
      exchange,
      routingKey: key,
      mandatory: true,
      properties,
      body: bytes,
    });
  }).then(() => ({ routed: session.returned.length === 0 }));
}

const ACK_MODES = ["ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false"];

function payloadView(content: Content, encoding: unknown, truncate: unknown): Json {
  const bytes = Buffer.from(content.body);
  const cut = Number.isSafeInteger(truncate) ? bytes.subarray(0, truncate as number) : bytes;
  const isText = encoding !== "base64" && Buffer.from(cut.toString("utf8"), "utf8").equals(cut);
  return {
    payload_bytes: bytes.length,
    payload: cut.toString(isText ? "utf8" : "base64"),
    payload_encoding: isText ? "string" : "base64",
  };
}

/**
 * `POST /api/queues/VHOST/NAME/get`. Looking with requeue is a real delivery, as on RabbitMQ: it sets the
 * redelivered flag and, on a quorum queue, counts.
 */
export async function get(vhost: VirtualHost, queue: string, body: Json): Promise<Json[]> {
  const mode = body["ackmode"] ?? (body["requeue"] === false ? "ack_requeue_false" : "ack_requeue_true");
  if (!ACK_MODES.includes(mode as string))
    throw new ApiError(
      400,
      "bad_request",
      `ackmode must be one of ${ACK_MODES.join(", ")}, got ${JSON.stringify(mode)}`,
    );
  const count = Number(body["count"] ?? 1);
  if (!Number.isSafeInteger(count) || count < 1)
    throw new ApiError(
      400,
      "bad_request",
      `count must be a whole number of at least 1, got ${JSON.stringify(body["count"])}`,
    );
  return withSession(vhost, (session) => {
    const found: Json[] = [];
    const tags: number[] = [];
    while (found.length < count) {
      const reply = session.submit({
        type: "get",
        channel: session.channel,
        queue,
        noAck: mode === "ack_requeue_false",
      });
      if (reply.type !== "got") break;
      tags.push(reply.deliveryTag);
      found.push({
        ...payloadView(reply.content, body["encoding"], body["truncate"]),
        redelivered: reply.redelivered,
        exchange: reply.content.exchange,
        routing_key: reply.content.routingKey,
        message_count: reply.messageCount,
        properties: propertiesView(reply.content.properties),
      });
    }
    if (mode !== "ack_requeue_false") {
      const requeue = mode !== "reject_requeue_false";
      // Last first, so that each goes back in front of the ones taken after it, on every queue type.
      for (const deliveryTag of requeue ? tags.toReversed() : tags)
        session.submit({ type: "reject", channel: session.channel, deliveryTag, requeue });
    }
    return found;
  });
}
