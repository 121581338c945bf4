/**
 * Runs dead-lettering scenarios (test/data/scenarios.json) against the machine in process. The clock is fake: a
 * `sleep` moves it, and a wait moves it from one alarm of the machine to the next until what is waited for is there.
 */

import type { Command, Properties, Reply } from "../../../src/broker/index.ts";
import {
  AmqpError,
  Broker,
  type Compat,
  type Content,
  type Effect,
  type FieldValue,
  HeaderTable,
} from "../../../src/broker/index.ts";

type Json = Record<string, unknown>;
export interface Step extends Json {
  do: string;
}
export interface Scenario {
  id: string;
  type?: string;
  profile?: Compat;
  title?: string;
  settle?: number;
  steps: Step[];
  final?: Record<string, "gone" | (string | Json)[]>;
}

interface Got {
  content: Content;
  redelivered: boolean;
  deliveryTag: number;
}
interface Session {
  connection: number;
  channel: number;
}
interface ConsumerState {
  got: Got[];
  session: Session;
  tag: string;
  ack: boolean;
}

export class ScenarioFailure extends Error {}

function need(condition: boolean, text: string): asserts condition {
  if (!condition) throw new ScenarioFailure(text);
}

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** Encodes as amqplib does, because scenarios were measured with it: the narrowest integer, doubles for fractions. */
export function fieldOf(value: unknown): FieldValue {
  if (typeof value === "string") return { t: "S", v: value };
  if (typeof value === "boolean") return { t: "t", v: value };
  if (value === null) return { t: "V", v: null };
  if (Array.isArray(value)) return { t: "A", v: value.map(fieldOf) };
  if (typeof value === "object") return { t: "F", v: tableOf(value as Json) };
  const n = value as number;
  if (!Number.isInteger(n)) return { t: "d", v: n };
  if (n >= -128 && n < 128) return { t: "b", v: n };
  if (n >= -0x8000 && n < 0x8000) return { t: "s", v: n };
  if (n >= -0x80000000 && n < 0x80000000) return { t: "I", v: n };
  return { t: "l", v: BigInt(n) };
}

export function tableOf(object: Json | undefined): HeaderTable {
  const entries = Object.entries(object ?? {}).map(([k, v]) => [k, fieldOf(v)] as const);
  return HeaderTable.empty.with(Object.fromEntries(entries));
}

/** As the wire would show it to a JavaScript client; a timestamp is only known to be one. */
function plain(value: FieldValue): unknown {
  switch (value.t) {
    case "A":
      return value.v.map(plain);
    case "F":
      return Object.fromEntries(value.v.keys().map((k) => [k, plain(value.v.get(k) as FieldValue)]));
    case "T":
      return { $timestamp: true };
    case "l":
      return Number(value.v);
    default:
      return value.v;
  }
}

/** One scenario in a broker of its own. */
class Run {
  now = 1_800_000_000_000;
  readonly broker: Broker;
  readonly #sessions = new Map<string, Session>();
  readonly #messages = new Map<string, { got: Got; session: Session }>();
  readonly #consumers = new Map<string, ConsumerState>();
  readonly #byTag = new Map<string, ConsumerState>();
  readonly #returns: unknown[] = [];
  readonly #confirms: boolean[] = [];
  #ids = 0;
  readonly #main: number;
  readonly #control: Session;
  readonly #publisher: Session;

  constructor(compat: Compat) {
    this.broker = new Broker({ compat });
    this.#main = ++this.#ids;
    this.#control = this.#open(this.#main);
    this.#publisher = this.#open(this.#main);
    this.apply({ type: "confirm-select", channel: this.#publisher.channel });
  }

  #open(connection: number): Session {
    const channel = ++this.#ids;
    this.apply({ type: "open-channel", connection, channel });
    return { connection, channel };
  }

  #session(name = "main"): Session {
    let session = this.#sessions.get(name);
    if (session === undefined) {
      session = this.#open(name === "main" ? this.#main : ++this.#ids);
      this.#sessions.set(name, session);
    }
    return session;
  }

  apply(command: Command): Reply {
    const { reply, effects } = this.broker.apply(command, this.now);
    for (const effect of effects) this.#take(effect);
    return reply;
  }

  #take(effect: Effect): void {
    if (effect.type === "return") this.#returns.push(effect);
    if (effect.type === "confirm") this.#confirms.push(effect.ok);
    if (effect.type !== "deliver") return;
    const consumer = this.#byTag.get(`${effect.channel}/${effect.consumerTag}`);
    need(consumer !== undefined, `delivery to unknown consumer ${effect.consumerTag}`);
    consumer.got.push(effect);
    if (consumer.ack) this.apply({ type: "ack", channel: effect.channel, deliveryTag: effect.deliveryTag });
  }

  tick(): void {
    if (this.broker.nextWakeAt() <= this.now) this.apply({ type: "tick" });
  }

  advance(ms: number): void {
    const end = this.now + ms;
    for (let next = this.broker.nextWakeAt(); next <= end; next = this.broker.nextWakeAt()) {
      this.now = Math.max(this.now, next);
      this.apply({ type: "tick" });
    }
    this.now = end;
  }

  /** Lets time go on until it is true, or the time is over. */
  until(done: () => boolean, ms: number): boolean {
    const end = this.now + ms;
    while (!done()) {
      const next = this.broker.nextWakeAt();
      if (next > end) {
        this.advance(end - this.now);
        return done();
      }
      this.advance(Math.max(0, next - this.now));
    }
    return true;
  }

  count(queue: string): number | "gone" {
    try {
      const reply = this.apply({
        type: "queue-declare",
        channel: this.#control.channel,
        queue,
        passive: true,
      });
      return reply.type === "queue" ? reply.messageCount : "gone";
    } catch (error) {
      if (error instanceof AmqpError && error.code === 404) return "gone";
      throw error;
    }
  }

  expectError(want: { code: number; text?: string }, command: (channel: number) => Command): void {
    const { channel } = this.#open(this.#main);
    try {
      this.apply(command(channel));
    } catch (error) {
      need(error instanceof AmqpError, `not an AMQP error: ${String(error)}`);
      need(error.code === want.code, `expected error ${want.code}, got ${error.code} ${error.message}`);
      need(error.message.includes(want.text ?? ""), `wanted "${want.text}", got "${error.message}"`);
      this.apply({ type: "close-channel", channel });
      return;
    }
    need(false, `expected channel error ${want.code}, got none`);
  }

  compare(got: Got, wanted: Json, where: string): void {
    const { out, want } = this.#project(got, wanted);
    need(
      JSON.stringify(out) === JSON.stringify(want),
      `${where}: wanted ${JSON.stringify(want)} got ${JSON.stringify(out)}`,
    );
  }

  #project(got: Got, wanted: Json): { out: Json; want: Json } {
    const out: Json = {};
    const want: Json = { ...wanted };
    const { content } = got;
    const headers = content.properties.headers ?? HeaderTable.empty;
    const header = (k: string): unknown => {
      const value = headers.get(k);
      return value === undefined ? null : plain(value);
    };
    for (const k of Object.keys(wanted)) {
      if (k === "body") out[k] = decode(content.body).replace(/\.+$/, "");
      else if (k === "key") out[k] = content.routingKey;
      else if (k === "exchange") out[k] = content.exchange;
      else if (k === "redelivered") out[k] = got.redelivered;
      else if (k === "deliveryCount") out[k] = header("x-delivery-count") ?? 0;
      else if (k === "deaths" || k === "deathsLoose") {
        const list = header("x-death") as Json[] | null;
        const wantedList = wanted[k] as Json[] | null;
        const keys = (i: number): string[] =>
          Object.keys(wantedList?.[i] ?? { queue: 1, reason: 1, count: 1, exchange: 1, "routing-keys": 1 });
        const picked = list?.map((d, i) => Object.fromEntries(keys(i).map((x) => [x, d[x] ?? null]))) ?? null;
        const rest = (all: Json[]): Json[] => [
          all[0] as Json,
          ...all
            .slice(1)
            .map((x) => JSON.stringify(x))
            .sort()
            .map((x) => JSON.parse(x) as Json),
        ];
        const loose = k === "deathsLoose" && picked !== null;
        out[k] = loose ? rest(picked) : picked;
        if (loose) want[k] = rest(wantedList as Json[]);
      } else if (k === "headers") {
        out[k] = Object.fromEntries(Object.keys(wanted[k] as Json).map((x) => [x, header(x)]));
      } else if (k === "props") {
        const properties = content.properties as unknown as Json;
        out[k] = Object.fromEntries(Object.keys(wanted[k] as Json).map((x) => [x, properties[x] ?? null]));
      } else need(false, `unknown expectation ${k}`);
    }
    return { out, want };
  }

  #find(ref: string): { got: Got; session: Session } {
    const known = this.#messages.get(ref);
    if (known !== undefined) return known;
    const [name, body] = ref.split(":");
    const consumer = this.#consumers.get(name as string);
    need(consumer !== undefined, `no message ${ref}`);
    const got = consumer.got.findLast((x) => decode(x.content.body) === body);
    need(got !== undefined, `consumer ${name} has no message ${body}`);
    return { got, session: consumer.session };
  }

  step(s: Step): void {
    const op = this.#ops[s.do];
    need(op !== undefined, `unknown step ${s.do}`);
    this.tick();
    op(s as never);
  }

  readonly #ops: Record<string, (s: never) => void> = {
    exchange: (s: { name: string; type?: string; args?: Json; alternate?: string }) => {
      const args = s.alternate === undefined ? s.args : { ...s.args, "alternate-exchange": s.alternate };
      const { channel } = this.#control;
      const exchangeType = s.type ?? "direct";
      this.apply({
        type: "exchange-declare",
        channel,
        exchange: s.name,
        exchangeType,
        arguments: tableOf(args),
      });
    },
    queue: (
      s: { name: string; args?: Json; session?: string; error?: { code: number; text?: string } } & Json,
    ) => {
      const command = (channel: number): Command => ({
        type: "queue-declare",
        channel,
        queue: s.name,
        durable: s.durable !== false,
        exclusive: s.exclusive === true,
        autoDelete: s.autoDelete === true,
        arguments: tableOf(s.args),
      });
      if (s.error) this.expectError(s.error, command);
      else this.apply(command(this.#session(s.session).channel));
    },
    bind: (s: { queue: string; exchange: string; key?: string; args?: Json }) => this.#bind("queue-bind", s),
    unbind: (s: { queue: string; exchange: string; key?: string; args?: Json }) =>
      this.#bind("queue-unbind", s),
    publish: (s: { bodies?: string[]; body: string } & Json) => {
      for (const body of s.bodies ?? [s.body]) this.#publish(s, body);
    },
    get: (s: { queue: string; session?: string; noAck?: boolean; as?: string; expect?: Json | null }) => {
      const session = this.#session(s.session);
      const reply = this.apply({
        type: "get",
        channel: session.channel,
        queue: s.queue,
        noAck: s.noAck === true,
      });
      if (s.expect === null) {
        need(reply.type === "empty", `get ${s.queue}: wanted nothing`);
        return;
      }
      need(reply.type === "got", `get ${s.queue}: empty`);
      if (s.as) this.#messages.set(s.as, { got: reply, session });
      if (s.expect) this.compare(reply, s.expect, `get ${s.queue}`);
    },
    getWait: (s: { queue: string; ms?: number }) => {
      const come = this.until(() => Number(this.count(s.queue)) > 0, s.ms ?? 2000);
      need(come, `getWait ${s.queue}: nothing came`);
      this.#ops.get?.(s as never);
    },
    consume: (s: {
      queue: string;
      session?: string;
      prefetch?: number;
      ack?: boolean;
      noAck?: boolean;
      as: string;
    }) => {
      const session = this.#session(s.session);
      const { channel } = session;
      if (s.prefetch) this.apply({ type: "qos", channel, prefetchCount: s.prefetch, global: false });
      const tag = `tag-${++this.#ids}`;
      const consumer: ConsumerState = { got: [], session, tag, ack: s.ack === true };
      this.#byTag.set(`${channel}/${tag}`, consumer);
      this.#consumers.set(s.as, consumer);
      this.apply({ type: "consume", channel, queue: s.queue, consumerTag: tag, noAck: s.noAck === true });
    },
    await: (s: { consumer: string; count: number; ms?: number; bodies?: string[]; expect?: Json[] }) => {
      const consumer = this.#consumers.get(s.consumer);
      need(consumer !== undefined, `no consumer ${s.consumer}`);
      this.until(() => consumer.got.length >= s.count, s.ms ?? 2500);
      const bodies = consumer.got.map((g) => decode(g.content.body));
      need(
        bodies.length === s.count,
        `consumer ${s.consumer}: wanted ${s.count}, got ${bodies.length} (${bodies})`,
      );
      if (s.bodies) need(String(bodies) === String(s.bodies), `wanted ${s.bodies}, got ${bodies}`);
      s.expect?.forEach((w, i) => {
        this.compare(consumer.got[i] as Got, w, `consumer ${s.consumer}[${i}]`);
      });
    },
    ack: (s: { msg: string; multiple?: boolean }) => {
      const { got, session } = this.#find(s.msg);
      const multiple = s.multiple === true;
      this.apply({ type: "ack", channel: session.channel, deliveryTag: got.deliveryTag, multiple });
    },
    reject: (s: { msg: string; requeue?: boolean }) => {
      const { got, session } = this.#find(s.msg);
      const requeue = s.requeue === true;
      this.apply({ type: "reject", channel: session.channel, deliveryTag: got.deliveryTag, requeue });
    },
    nack: (s: { msg: string; tag?: number; session?: string; multiple?: boolean; requeue?: boolean }) => {
      const found = s.tag === undefined ? this.#find(s.msg) : undefined;
      const channel = (found?.session ?? this.#session(s.session)).channel;
      const deliveryTag = found?.got.deliveryTag ?? (s.tag as number);
      const multiple = s.multiple === true;
      this.apply({ type: "nack", channel, deliveryTag, multiple, requeue: s.requeue === true });
    },
    badTag: (s: { tag: number; error: { code: number; text?: string } }) => {
      this.expectError(s.error, (channel) => ({
        type: "reject",
        channel,
        deliveryTag: s.tag,
        requeue: false,
      }));
    },
    recover: (s: { session?: string }) => {
      this.apply({ type: "recover", channel: this.#session(s.session).channel, requeue: true });
    },
    cancel: (s: { consumer: string }) => {
      const consumer = this.#consumers.get(s.consumer);
      need(consumer !== undefined, `no consumer ${s.consumer}`);
      this.apply({ type: "cancel", channel: consumer.session.channel, consumerTag: consumer.tag });
    },
    close: (s: { session: string; how: string }) => {
      const session = this.#session(s.session);
      this.#sessions.delete(s.session);
      if (s.how === "channel") this.apply({ type: "close-channel", channel: session.channel });
      else
        this.apply({
          type: "close-connection",
          connection: session.connection,
          clean: s.how === "connection",
        });
    },
    sleep: (s: { ms: number }) => this.advance(s.ms),
    purge: (s: { queue: string; count?: number }) => {
      const reply = this.apply({ type: "queue-purge", channel: this.#control.channel, queue: s.queue });
      const n = reply.type === "count" ? reply.messageCount : -1;
      if (s.count !== undefined) need(n === s.count, `purge: wanted ${s.count}, got ${n}`);
    },
    delete: (s: { queue: string }) => {
      this.apply({ type: "queue-delete", channel: this.#control.channel, queue: s.queue });
    },
    count: (s: { queue: string; ready: number; within?: number }) => {
      const ok = this.until(() => this.count(s.queue) === s.ready, s.within ?? 2500);
      need(ok, `count ${s.queue}: wanted ${s.ready}, got ${this.count(s.queue)}`);
    },
    returns: (s: { count: number; ms?: number }) => {
      this.advance(s.ms ?? 60);
      need(this.#returns.length === s.count, `basic.return: wanted ${s.count}, got ${this.#returns.length}`);
    },
    loop: (s: { times: number; steps: Step[] }) => {
      for (let i = 0; i < s.times; i++) for (const step of s.steps) this.step(step);
    },
  };

  #bind(
    type: "queue-bind" | "queue-unbind",
    s: { queue: string; exchange: string; key?: string; args?: Json },
  ): void {
    const { channel } = this.#control;
    const rest = {
      queue: s.queue,
      exchange: s.exchange,
      routingKey: s.key ?? "",
      arguments: tableOf(s.args),
    };
    this.apply({ type, channel, ...rest });
  }

  #publish(s: Json, body: string): void {
    const command = (channel: number): Command => ({
      type: "publish",
      channel,
      exchange: (s.exchange as string) ?? "",
      routingKey: (s.key as string) ?? "",
      mandatory: (s.props as Json)?.mandatory === true,
      properties: propertiesOf((s.props ?? {}) as Json),
      body: encode(s.size ? body.padEnd(s.size as number, ".") : body),
    });
    if (s.error) {
      this.expectError(s.error as { code: number; text?: string }, command);
      return;
    }
    this.#confirms.length = 0;
    this.apply(command(this.#publisher.channel));
    need(this.#confirms.length === 1, `no confirm for ${body}`);
    const confirm = this.#confirms[0] ? "ack" : "nack";
    if (s.confirm) need(confirm === s.confirm, `confirm of ${body}: wanted ${s.confirm}, got ${confirm}`);
  }

  final(queues: Record<string, "gone" | (string | Json)[]>, settle: number): void {
    for (const [name, want] of Object.entries(queues)) {
      const wanted = want === "gone" ? "gone" : want.length;
      const ok = this.until(() => this.count(name) === wanted, 3000);
      need(ok, `final ${name}: wanted ${wanted}, got ${this.count(name)}`);
    }
    this.advance(settle);
    for (const [name, want] of Object.entries(queues)) {
      if (want === "gone") continue;
      const got: Got[] = [];
      for (;;) {
        const reply = this.apply({ type: "get", channel: this.#control.channel, queue: name, noAck: true });
        if (reply.type !== "got") break;
        got.push(reply);
      }
      const bodies = got.map((g) => decode(g.content.body));
      need(got.length === want.length, `final ${name}: wanted ${want.length} messages, got ${bodies}`);
      want.forEach((w, i) => {
        this.compare(got[i] as Got, typeof w === "string" ? { body: w } : w, `final ${name}[${i}]`);
      });
    }
  }
}

/** amqplib's publish options as properties. */
export function propertiesOf(props: Json): Properties {
  const { CC, BCC, persistent, headers, mandatory: _mandatory, ...rest } = props;
  const all: Json = { ...((headers as Json) ?? {}) };
  if (CC !== undefined) all.CC = typeof CC === "string" ? [CC] : CC;
  if (BCC !== undefined) all.BCC = typeof BCC === "string" ? [BCC] : BCC;
  const deliveryMode = persistent === undefined ? undefined : persistent ? 2 : 1;
  const properties: Json = { deliveryMode, ...rest };
  if (deliveryMode === undefined && rest.deliveryMode === undefined) delete properties.deliveryMode;
  if (Object.keys(all).length > 0) properties.headers = tableOf(all);
  return properties as Properties;
}

/** Throws a {@link ScenarioFailure} naming the step when the machine does something else than expected. */
export function runScenario(scenario: Scenario, compat: Compat): void {
  const run = new Run(compat);
  for (const [i, step] of scenario.steps.entries()) {
    try {
      run.step(step);
    } catch (error) {
      const text =
        error instanceof Error ? (error instanceof ScenarioFailure ? error.message : error.stack) : "";
      throw new ScenarioFailure(`step ${i + 1} ${step.do}: ${text}`);
    }
  }
  run.final(scenario.final ?? {}, scenario.settle ?? 40);
}
