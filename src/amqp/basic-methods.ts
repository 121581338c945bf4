import { AmqpError } from "../broker/index.ts";
import type { Channel } from "./channel.ts";
import * as m from "./methods.ts";
import { REPLY_TO } from "./reply-to.ts";
import type { Session } from "./session.ts";

/** An empty name means the queue last declared on this channel; @throws AmqpError 404 when there is none. */
export function queueName(channel: Channel, given: string): string {
  if (given !== "") return given;
  if (channel.lastQueue === null) throw new AmqpError(404, "no previously declared queue");
  return channel.lastQueue;
}

function qos(channel: Channel, session: Session): void {
  const { prefetchSize, prefetchCount, global } = m.readBasicQos(session.shared.reader);
  if (prefetchSize !== 0) throw new AmqpError(540, `prefetch_size!=0 (${prefetchSize})`);
  channel.submit({ type: "qos", channel: channel.id, prefetchCount, global });
  channel.after(() => m.writeBasicQosOk(session.writer, channel.number));
}

function consume(channel: Channel, session: Session): void {
  const method = m.readBasicConsume(session.shared.reader);
  const consumerTag = method.consumerTag || `amq.ctag-${session.shared.randomName()}`;
  const queue = queueName(channel, method.queue);
  if (queue === REPLY_TO) {
    consumeReplies(channel, session, consumerTag, method.noAck, method.noWait);
    return;
  }
  session.access.check("read", "queue", queue);
  channel.credit.grant();
  const answer = () => {
    if (!method.noWait) m.writeBasicConsumeOk(session.writer, channel.number, consumerTag);
  };
  channel.answerFirst(answer, {
    type: "consume",
    channel: channel.id,
    queue,
    consumerTag,
    noAck: method.noAck,
    exclusive: method.exclusive,
    noLocal: method.noLocal,
    arguments: method.args,
  });
}

function consumeReplies(
  channel: Channel,
  session: Session,
  tag: string,
  noAck: boolean,
  noWait: boolean,
): void {
  if (!noAck) throw new AmqpError(406, "reply consumer cannot acknowledge");
  if (channel.reply !== null) throw new AmqpError(406, "reply consumer already set");
  let deliveryTag = 0;
  const address = session.shared.replyTo.open(
    session.shared.randomName(),
    (exchange, key, properties, body) => {
      deliveryTag++;
      m.writeBasicDeliver(session.writer, channel.number, tag, deliveryTag, false, exchange, key);
      session.writer.content(channel.number, properties, body, session.frameMax);
      session.flush();
    },
  );
  channel.reply = { address, tag };
  if (!noWait) channel.after(() => m.writeBasicConsumeOk(session.writer, channel.number, tag));
}

function cancel(channel: Channel, session: Session): void {
  const { consumerTag, noWait } = m.readBasicCancel(session.shared.reader);
  if (channel.reply?.tag === consumerTag) {
    session.shared.replyTo.close(channel.reply.address);
    channel.reply = null;
  } else channel.submit({ type: "cancel", channel: channel.id, consumerTag });
  if (!noWait) channel.after(() => m.writeBasicCancelOk(session.writer, channel.number, consumerTag));
}

function get(channel: Channel, session: Session): void {
  const method = m.readBasicGet(session.shared.reader);
  const queue = queueName(channel, method.queue);
  session.access.check("read", "queue", queue);
  const reply = channel.submit({ type: "get", channel: channel.id, queue, noAck: method.noAck });
  channel.after(() => {
    const { writer } = session;
    if (reply.type !== "got") {
      m.writeBasicGetEmpty(writer, channel.number);
      return;
    }
    const { content } = reply;
    m.writeBasicGetOk(
      writer,
      channel.number,
      reply.deliveryTag,
      reply.redelivered,
      content.exchange,
      content.routingKey,
      reply.messageCount,
    );
    writer.content(channel.number, content.properties, content.body, session.frameMax);
  });
}

function ack(channel: Channel, session: Session): void {
  const { deliveryTag, multiple } = m.readBasicAck(session.shared.reader);
  channel.submit({ type: "ack", channel: channel.id, deliveryTag, multiple });
}

function nack(channel: Channel, session: Session): void {
  const { deliveryTag, multiple, requeue } = m.readBasicNack(session.shared.reader);
  channel.submit({ type: "nack", channel: channel.id, deliveryTag, multiple, requeue });
}

function reject(channel: Channel, session: Session): void {
  const { deliveryTag, requeue } = m.readBasicReject(session.shared.reader);
  channel.submit({ type: "reject", channel: channel.id, deliveryTag, requeue });
}

function recover(channel: Channel, session: Session): void {
  const { requeue } = m.readBasicRecover(session.shared.reader);
  const answer = () => m.writeBasicRecoverOk(session.writer, channel.number);
  channel.answerFirst(answer, { type: "recover", channel: channel.id, requeue });
}

function recoverAsync(channel: Channel, session: Session): void {
  const { requeue } = m.readBasicRecoverAsync(session.shared.reader);
  channel.submit({ type: "recover", channel: channel.id, requeue });
}

function flow(channel: Channel, session: Session): void {
  const { active } = m.readChannelFlow(session.shared.reader);
  if (!active) throw new AmqpError(540, "active=false");
  channel.after(() => m.writeChannelFlowOk(session.writer, channel.number, true));
}

function confirmSelect(channel: Channel, session: Session): void {
  const { noWait } = m.readConfirmSelect(session.shared.reader);
  channel.submit({ type: "confirm-select", channel: channel.id });
  if (!noWait) channel.after(() => m.writeConfirmSelectOk(session.writer, channel.number));
}

function tx(type: "tx-select" | "tx-commit" | "tx-rollback"): (channel: Channel, session: Session) => void {
  const [read, write] = {
    "tx-select": [m.readTxSelect, m.writeTxSelectOk] as const,
    "tx-commit": [m.readTxCommit, m.writeTxCommitOk] as const,
    "tx-rollback": [m.readTxRollback, m.writeTxRollbackOk] as const,
  }[type];
  return (channel, session) => {
    read(session.shared.reader);
    channel.submit({ type, channel: channel.id });
    channel.transaction(type);
    channel.after(() => write(session.writer, channel.number));
  };
}

/** RabbitMQ keeps no realms: any access.request is granted. */
function accessRequest(channel: Channel, session: Session): void {
  m.readAccessRequest(session.shared.reader);
  channel.after(() => m.writeAccessRequestOk(session.writer, channel.number));
}

/** Class basic, and the small classes that go with it. */
export const BASIC_METHODS: readonly (readonly [number, (channel: Channel, session: Session) => void])[] = [
  [m.BasicAckId, ack],
  [m.BasicNackId, nack],
  [m.BasicRejectId, reject],
  [m.BasicGetId, get],
  [m.BasicConsumeId, consume],
  [m.BasicCancelId, cancel],
  // The answer to our own basic.cancel, which asks for none; some clients send it all the same.
  [m.BasicCancelOkId, (_, session) => void m.readBasicCancelOk(session.shared.reader)],
  [m.BasicQosId, qos],
  [m.BasicRecoverId, recover],
  [m.BasicRecoverAsyncId, recoverAsync],
  [m.ChannelFlowId, flow],
  [m.ChannelFlowOkId, (_, session) => void m.readChannelFlowOk(session.shared.reader)],
  [m.ConfirmSelectId, confirmSelect],
  [m.TxSelectId, tx("tx-select")],
  [m.TxCommitId, tx("tx-commit")],
  [m.TxRollbackId, tx("tx-rollback")],
  [m.AccessRequestId, accessRequest],
];
