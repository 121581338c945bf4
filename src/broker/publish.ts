import { parseExpiration } from "./arguments.ts";
import type { Channel, Held } from "./consumers.ts";
import { routingKeys } from "./dead-letters.ts";
import { enqueue } from "./enqueue.ts";
import { AmqpError } from "./errors.ts";
import { route } from "./exchange.ts";
import type { Machine } from "./machine.ts";
import { deliverReply, withReplyName } from "./reply-to.ts";
import { ackOne, checkDelay, rejectAll, requeueAll } from "./settle-commands.ts";
import type { HeaderTable } from "./table.ts";
import type { CommandOf, Content, Properties } from "./types.ts";
import { checkName, typeName } from "./values.ts";

const NO_ROUTE = 312;

/** basic.publish. Everything that can be wrong is looked at before anything happens. */
export function publish(m: Machine, channel: Channel, c: CommandOf<"publish">): void {
  const exchange = m.exchange(c.exchange);
  if (exchange.record.internal) {
    throw new AmqpError(403, `cannot publish to internal ${m.name("exchange", c.exchange)}`);
  }
  checkName("routing key", c.routingKey);
  if (c.body.length > m.maxMessageBytes) {
    throw new AmqpError(
      406,
      `message size ${c.body.length} is larger than configured max size ${m.maxMessageBytes}`,
    );
  }
  if (c.properties.expiration !== undefined) parseExpiration(c.properties.expiration);
  const delayMs = checkDelay(c.delayMs);
  const content = contentOf(c, withReplyName(channel, c.properties));
  const mandatory = c.mandatory === true;
  if (channel.mode === "tx") {
    channel.pending.push({ kind: "publish", content, mandatory, delayMs });
    return;
  }
  const ok = send(m, channel, content, mandatory, delayMs);
  if (channel.mode === "confirm") {
    m.effects.push({ type: "confirm", channel: channel.id, publishTag: ++channel.publishTag, ok });
  }
}

/** Routes a message and puts it where it belongs. @returns false when a queue refused it */
function send(m: Machine, channel: Channel, content: Content, mandatory: boolean, delayMs: number): boolean {
  const exchange = m.exchanges.get(content.exchange);
  const queues = exchange === undefined ? [] : route(exchange, content, routingKeys(content), m);
  if (queues.length === 0) {
    if (deliverReply(m, content)) return true;
    if (mandatory) {
      m.effects.push({ type: "return", channel: channel.id, code: NO_ROUTE, text: "NO_ROUTE", content });
    }
    return true;
  }
  const arrival = delayMs > 0 ? { dueAt: m.now + delayMs } : {};
  let ok = true;
  for (const queue of queues) if (!enqueue(m, queue, content, arrival)) ok = false;
  return ok;
}

/** CC and BCC become routing keys; BCC leaves the headers (rule B2). */
function contentOf(c: CommandOf<"publish">, properties: Properties): Content {
  const { exchange, routingKey, body } = c;
  const { headers } = properties;
  if (headers === undefined || headers.bytes.length === 0) return { exchange, routingKey, properties, body };
  const cc = keysIn(headers, "CC");
  const bcc = keysIn(headers, "BCC");
  if (cc === undefined && bcc === undefined) return { exchange, routingKey, properties, body };
  const shown: Properties =
    bcc === undefined ? properties : { ...properties, headers: headers.without(["BCC"]) };
  return { exchange, routingKey, properties: shown, body, keys: { cc: cc ?? [], bcc: bcc ?? [] } };
}

function keysIn(headers: HeaderTable, name: "CC" | "BCC"): string[] | undefined {
  const value = headers.get(name);
  if (value === undefined) return undefined;
  if (value.t !== "A") {
    throw new AmqpError(406, `invalid message: {unacceptable_type_in_header,"${name}",${typeName(value)}}`);
  }
  return value.v.flatMap((item) => (item.t === "S" ? [item.v] : []));
}

function checkTx(channel: Channel): void {
  if (channel.mode !== "tx") throw new AmqpError(406, "channel is not transactional");
}

/** Everything the transaction collected happens now, in its order, in this one command. */
export function commit(m: Machine, channel: Channel): void {
  checkTx(channel);
  const work = channel.pending;
  channel.pending = [];
  for (const one of work) {
    if (one.kind === "publish") send(m, channel, one.content, one.mandatory, one.delayMs);
    else if (one.kind === "ack") for (const held of one.held) ackOne(m, held);
    else if (one.kind === "requeue") requeueAll(m, one.held);
    else rejectAll(m, one.held);
  }
}

/** Publishes are forgotten; what was settled is out again under its tag. */
export function rollback(channel: Channel): void {
  checkTx(channel);
  const back: Held[] = channel.pending.flatMap((p) => (p.kind === "publish" ? [] : p.held));
  channel.pending = [];
  if (back.length === 0) return;
  const all = [...channel.unacked.values(), ...back].sort((a, b) => a.tag - b.tag);
  channel.unacked.clear();
  for (const held of all) channel.unacked.set(held.tag, held);
}
