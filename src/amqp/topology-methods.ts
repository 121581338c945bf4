import { AmqpError, type HeaderTable } from "../broker/index.ts";
import { queueName } from "./basic-methods.ts";
import type { Channel } from "./channel.ts";
import * as m from "./methods.ts";
import { ReplyTo } from "./reply-to.ts";
import type { Session } from "./session.ts";

const textOf = (table: HeaderTable, key: string): string | null => {
  const value = table.get(key);
  return value?.t === "S" ? value.v : null;
};

function queueDeclare(channel: Channel, session: Session): void {
  const method = m.readQueueDeclare(session.shared.reader);
  if (method.passive && ReplyTo.is(method.queue)) {
    if (session.shared.replyTo.find(method.queue) === undefined) {
      throw new AmqpError(404, `no queue '${method.queue}' in vhost '${session.vhost}'`);
    }
    channel.after(() => m.writeQueueDeclareOk(session.writer, channel.number, method.queue, 0, 1));
    return;
  }
  const generatedName = method.queue === "" ? `amq.gen-${session.shared.randomName()}` : undefined;
  const name = generatedName ?? method.queue;
  if (!method.passive) mayDeclareQueue(session, name, method.args);
  const reply = channel.submit({
    type: "queue-declare",
    channel: channel.id,
    queue: method.queue,
    ...(generatedName === undefined ? {} : { generatedName }),
    passive: method.passive,
    durable: method.durable,
    exclusive: method.exclusive,
    autoDelete: method.autoDelete,
    arguments: method.args,
  });
  channel.lastQueue = reply.type === "queue" ? reply.queue : name;
  if (method.noWait) return;
  channel.after(() => {
    if (reply.type === "queue") {
      const { queue, messageCount, consumerCount } = reply;
      m.writeQueueDeclareOk(session.writer, channel.number, queue, messageCount, consumerCount);
    }
  });
}

/** Configure on the queue; with a dead-letter exchange also read on the queue and write on the exchange. */
function mayDeclareQueue(session: Session, queue: string, args: HeaderTable): void {
  session.access.check("configure", "queue", queue);
  const deadLetters = textOf(args, "x-dead-letter-exchange");
  if (deadLetters === null) return;
  session.access.check("read", "queue", queue);
  session.access.check("write", "exchange", deadLetters);
}

function queueDelete(channel: Channel, session: Session): void {
  const method = m.readQueueDelete(session.shared.reader);
  const queue = queueName(channel, method.queue);
  session.access.check("configure", "queue", queue);
  const { ifUnused, ifEmpty } = method;
  const reply = channel.submit({ type: "queue-delete", channel: channel.id, queue, ifUnused, ifEmpty });
  const count = reply.type === "count" ? reply.messageCount : 0;
  if (!method.noWait) channel.after(() => m.writeQueueDeleteOk(session.writer, channel.number, count));
}

function queuePurge(channel: Channel, session: Session): void {
  const method = m.readQueuePurge(session.shared.reader);
  const queue = queueName(channel, method.queue);
  session.access.check("read", "queue", queue);
  const reply = channel.submit({ type: "queue-purge", channel: channel.id, queue });
  const count = reply.type === "count" ? reply.messageCount : 0;
  if (!method.noWait) channel.after(() => m.writeQueuePurgeOk(session.writer, channel.number, count));
}

function bindQueue(
  channel: Channel,
  session: Session,
  type: "queue-bind" | "queue-unbind",
  method: Pick<m.QueueBind, "queue" | "exchange" | "routingKey" | "args">,
): void {
  const queue = queueName(channel, method.queue);
  // With both left out, the key is the queue's name too (AMQP 0-9-1, queue.bind).
  const routingKey = method.queue === "" && method.routingKey === "" ? queue : method.routingKey;
  session.access.check("write", "queue", queue);
  session.access.check("read", "exchange", method.exchange);
  const { exchange, args } = method;
  channel.submit({ type, channel: channel.id, queue, exchange, routingKey, arguments: args });
}

function queueBind(channel: Channel, session: Session): void {
  const method = m.readQueueBind(session.shared.reader);
  bindQueue(channel, session, "queue-bind", method);
  if (!method.noWait) channel.after(() => m.writeQueueBindOk(session.writer, channel.number));
}

function queueUnbind(channel: Channel, session: Session): void {
  bindQueue(channel, session, "queue-unbind", m.readQueueUnbind(session.shared.reader));
  channel.after(() => m.writeQueueUnbindOk(session.writer, channel.number));
}

function exchangeDeclare(channel: Channel, session: Session): void {
  const method = m.readExchangeDeclare(session.shared.reader);
  if (!method.passive) {
    session.access.check("configure", "exchange", method.exchange);
    const alternate = textOf(method.args, "alternate-exchange");
    if (alternate !== null) {
      session.access.check("read", "exchange", method.exchange);
      session.access.check("write", "exchange", alternate);
    }
  }
  channel.submit({
    type: "exchange-declare",
    channel: channel.id,
    exchange: method.exchange,
    exchangeType: method.type,
    passive: method.passive,
    durable: method.durable,
    autoDelete: method.autoDelete,
    internal: method.internal,
    arguments: method.args,
  });
  if (!method.noWait) channel.after(() => m.writeExchangeDeclareOk(session.writer, channel.number));
}

function exchangeDelete(channel: Channel, session: Session): void {
  const { exchange, ifUnused, noWait } = m.readExchangeDelete(session.shared.reader);
  session.access.check("configure", "exchange", exchange);
  channel.submit({ type: "exchange-delete", channel: channel.id, exchange, ifUnused });
  if (!noWait) channel.after(() => m.writeExchangeDeleteOk(session.writer, channel.number));
}

function bindExchange(
  channel: Channel,
  session: Session,
  type: "exchange-bind" | "exchange-unbind",
  method: m.ExchangeBind,
): void {
  const { destination, source, routingKey, args } = method;
  session.access.check("write", "exchange", destination);
  session.access.check("read", "exchange", source);
  channel.submit({ type, channel: channel.id, source, destination, routingKey, arguments: args });
}

function exchangeBind(channel: Channel, session: Session): void {
  const method = m.readExchangeBind(session.shared.reader);
  bindExchange(channel, session, "exchange-bind", method);
  if (!method.noWait) channel.after(() => m.writeExchangeBindOk(session.writer, channel.number));
}

function exchangeUnbind(channel: Channel, session: Session): void {
  const method = m.readExchangeUnbind(session.shared.reader);
  bindExchange(channel, session, "exchange-unbind", method);
  if (!method.noWait) channel.after(() => m.writeExchangeUnbindOk(session.writer, channel.number));
}

/** Classes queue and exchange. */
export const TOPOLOGY_METHODS: readonly (readonly [number, (channel: Channel, session: Session) => void])[] =
  [
    [m.QueueDeclareId, queueDeclare],
    [m.QueueDeleteId, queueDelete],
    [m.QueuePurgeId, queuePurge],
    [m.QueueBindId, queueBind],
    [m.QueueUnbindId, queueUnbind],
    [m.ExchangeDeclareId, exchangeDeclare],
    [m.ExchangeDeleteId, exchangeDelete],
    [m.ExchangeBindId, exchangeBind],
    [m.ExchangeUnbindId, exchangeUnbind],
  ];
