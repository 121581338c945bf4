import {
  AmqpError,
  Broker,
  type Command,
  type Content,
  type Effect,
  type FieldValue,
  HeaderTable,
} from "../../../src/broker/index.ts";
import {
  type Death,
  LAST_STEPS,
  leftOut,
  type Observation,
  ordered,
  type Run,
  type Script,
  type Seen,
  type Step,
  WAIT_MS,
} from "./script.ts";

const text = (value: FieldValue | undefined): string => (value?.t === "S" ? value.v : "");
const number = (value: FieldValue | undefined): number =>
  value === undefined ? 0 : Number((value as { v: unknown }).v);

function deaths(headers: HeaderTable | undefined): Death[] {
  const list = headers?.get("x-death");
  if (list?.t !== "A") return [];
  return list.v.flatMap((entry) => {
    if (entry.t !== "F") return [];
    const keys = entry.v.get("routing-keys");
    const expiration = entry.v.get("original-expiration");
    return [
      {
        queue: text(entry.v.get("queue")),
        reason: text(entry.v.get("reason")),
        count: number(entry.v.get("count")),
        exchange: text(entry.v.get("exchange")),
        keys: keys?.t === "A" ? keys.v.map(text) : [],
        expiration: expiration ? text(expiration) : null,
      },
    ];
  });
}

function seen(content: Content, redelivered: boolean): Seen {
  return {
    body: String.fromCharCode(...content.body),
    exchange: content.exchange,
    key: content.routingKey,
    redelivered,
    deliveryCount: number(content.properties.headers?.get("x-delivery-count")),
    deaths: ordered(deaths(content.properties.headers)),
  };
}

interface Outstanding {
  readonly tag: number;
  readonly content: Content;
}

/**
 * Runs a script on the pure machine with a clock that moves only at a wait. `racy`: in one step messages entered a
 * queue from several others. RabbitMQ's queues are processes of their own, so their order is chance there.
 */
export function runOnMachine(script: Script): Run & { readonly racy: boolean } {
  const broker = new Broker({ compat: "3.x" });
  let now = 1_000_000;
  let channels = 0;
  let bodies = 0;
  let deliveries: [Seen[], Seen[]] = [[], []];
  const sessions: { channel: number; outstanding: Outstanding[] }[] = [];
  const confirms: boolean[] = [];
  let entered: Record<number, Set<number | "publisher">> = {};
  let racy = false;

  const absorb = (effects: readonly Effect[]) => {
    for (const effect of effects) {
      if (effect.type === "message-put") {
        const sources = (entered[effect.queueId] ??= new Set());
        sources.add(effect.from?.queueId ?? "publisher");
        racy ||= sources.size > 1;
      }
      if (effect.type === "confirm") confirms.push(effect.ok);
      if (effect.type === "deliver") {
        const index = sessions.findIndex((s) => s.channel === effect.channel) as 0 | 1;
        sessions[index]!.outstanding.push({ tag: effect.deliveryTag, content: effect.content });
        deliveries[index].push(seen(effect.content, effect.redelivered));
      }
    }
  };
  const apply = (command: Command) => {
    const { reply, effects } = broker.apply(command, now);
    absorb(effects);
    return reply;
  };
  const open = () => {
    const channel = ++channels;
    apply({ type: "open-channel", connection: 1, channel });
    return channel;
  };
  const control = open();
  const publisher = open();
  apply({ type: "confirm-select", channel: publisher });
  sessions.push({ channel: open(), outstanding: [] }, { channel: open(), outstanding: [] });

  for (const x of script.exchanges)
    apply({ type: "exchange-declare", channel: control, exchange: x.name, exchangeType: x.type });
  for (const q of script.queues)
    apply({
      type: "queue-declare",
      channel: control,
      queue: q.name,
      durable: true,
      arguments: HeaderTable.fromObject(q.args),
    });
  for (const b of script.bindings)
    apply({ type: "queue-bind", channel: control, queue: b.queue, exchange: b.exchange, routingKey: b.key });

  const ready = () =>
    Object.fromEntries(
      script.queues.map((q) => {
        const reply = apply({ type: "queue-declare", channel: control, queue: q.name, passive: true });
        return [q.name, reply.type === "queue" ? reply.messageCount : -1];
      }),
    );

  /** One consumer a queue and a session: RabbitMQ's queues are processes, two of them deliver in any order. */
  const consumed = new Map<string, number>();
  const reopen = (index: number) => {
    sessions[index] = { channel: open(), outstanding: [] };
    for (const [queue, session] of consumed) if (session === index) consumed.delete(queue);
  };

  const perform = (step: Step): string | Seen | null => {
    switch (step.do) {
      case "publish": {
        confirms.length = 0;
        const headers = step.cc ? HeaderTable.fromObject({ CC: step.cc }) : undefined;
        apply({
          type: "publish",
          channel: publisher,
          exchange: step.exchange,
          routingKey: step.key,
          properties: {
            deliveryMode: 2,
            ...(step.expiration === undefined ? {} : { expiration: step.expiration }),
            ...(step.priority === undefined ? {} : { priority: step.priority }),
            ...(headers ? { headers } : {}),
          },
          body: Uint8Array.from(`m${++bodies}`, (c) => c.charCodeAt(0)),
        });
        apply({ type: "tick" });
        return confirms.map((ok) => (ok ? "ack" : "nack")).join();
      }
      case "republish": {
        const session = sessions[step.session]!;
        if (session.outstanding.length === 0) return null;
        const { content } = session.outstanding[step.pick % session.outstanding.length]!;
        confirms.length = 0;
        const { exchange, key: routingKey } = step;
        apply({
          type: "publish",
          channel: publisher,
          exchange,
          routingKey,
          properties: content.properties,
          body: content.body,
        });
        apply({ type: "tick" });
        return confirms.map((ok) => (ok ? "ack" : "nack")).join();
      }
      case "get": {
        const session = sessions[step.session]!;
        if (leftOut(script, step, consumed.get(step.queue))) return null;
        const reply = apply({ type: "get", channel: session.channel, queue: step.queue });
        if (reply.type !== "got") return null;
        session.outstanding.push({ tag: reply.deliveryTag, content: reply.content });
        return seen(reply.content, reply.redelivered);
      }
      case "consume": {
        const session = sessions[step.session]!;
        if (consumed.has(step.queue) || [...consumed.values()].includes(step.session)) return null;
        consumed.set(step.queue, step.session);
        apply({ type: "qos", channel: session.channel, prefetchCount: step.prefetch, global: false });
        apply({
          type: "consume",
          channel: session.channel,
          queue: step.queue,
          consumerTag: `c${step.queue}`,
        });
        return null;
      }
      case "settle": {
        const session = sessions[step.session]!;
        if (session.outstanding.length === 0) return null;
        const at = step.pick % session.outstanding.length;
        const { tag } = session.outstanding[at]!;
        const multiple = step.multiple && step.how !== "reject";
        session.outstanding.splice(multiple ? 0 : at, multiple ? at + 1 : 1);
        if (step.how === "ack") apply({ type: "ack", channel: session.channel, deliveryTag: tag, multiple });
        else if (step.how === "nack")
          apply({
            type: "nack",
            channel: session.channel,
            deliveryTag: tag,
            multiple,
            requeue: step.requeue,
          });
        else apply({ type: "reject", channel: session.channel, deliveryTag: tag, requeue: step.requeue });
        return null;
      }
      case "crash":
        apply({ type: "close-channel", channel: sessions[step.session]!.channel });
        reopen(step.session);
        return null;
      case "recover": {
        const session = sessions[step.session]!;
        session.outstanding = [];
        apply({ type: "recover", channel: session.channel, requeue: true });
        return null;
      }
      case "purge": {
        const reply = apply({ type: "queue-purge", channel: control, queue: step.queue });
        return reply.type === "count" ? `purged ${reply.messageCount}` : null;
      }
      case "wait":
        now += WAIT_MS;
        return null;
    }
  };

  const observations: Observation[] = [];
  for (const [index, step] of [...script.steps, ...LAST_STEPS].entries()) {
    deliveries = [[], []];
    entered = {};
    let result: string | Seen | null;
    try {
      result = perform(step);
      apply({ type: "tick" });
    } catch (error) {
      if (!(error instanceof AmqpError)) throw error;
      result = `error ${error.code}`;
      if ("session" in step) reopen(step.session);
    }
    observations.push({ step: index, result, deliveries, ready: ready() });
  }
  const left = Object.fromEntries(
    script.queues.map((q) => {
      const found: Seen[] = [];
      for (;;) {
        const reply = apply({ type: "get", channel: control, queue: q.name, noAck: true });
        if (reply.type !== "got") return [q.name, found];
        found.push(seen(reply.content, reply.redelivered));
      }
    }),
  );
  return { observations, left, racy };
}
