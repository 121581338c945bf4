import {
  closeChannel,
  closeConnection,
  openChannel,
  qos,
  selectMode,
  setCredit,
} from "./channel-commands.ts";
import { cancel, consume, get } from "./consume-commands.ts";
import type { Channel } from "./consumers.ts";
import type { ExchangeInfo, Unsettled } from "./host.ts";
import {
  type LostCount,
  peek,
  peekDelayed,
  type QueueView,
  type Seen,
  viewBindings,
  viewExchanges,
  viewLost,
  viewQueue,
  viewUnsettled,
  viewWaits,
} from "./inspect.ts";
import { type BrokerOptions, Machine } from "./machine.ts";
import { clearPolicy, setPolicy } from "./policy-commands.ts";
import { commit, publish, rollback } from "./publish.ts";
import { declareQueue, deleteQueueCommand, purge } from "./queue-commands.ts";
import { restore, snapshot } from "./restore.ts";
import { flush } from "./settle.ts";
import { ack, begin, delayed, nack, recover, releaseHeld, retry, withdraw } from "./settle-commands.ts";
import { nextAlarm, tick } from "./tick.ts";
import { bind, declareExchange, deleteExchangeCommand, unbind } from "./topology-commands.ts";
import type {
  Applied,
  BindingRecord,
  ChannelId,
  Command,
  CommandOf,
  Compat,
  Policy,
  Reply,
  Restored,
} from "./types.ts";

const OK: Reply = { type: "ok" };

/**
 * One virtual host of a broker with RabbitMQ's dead-lettering, as a state machine: commands and the time go in,
 * a reply and effects come out. It has no clock, does no I/O and never waits. All of one command, deaths and
 * everything they lead to included, is in the effects of that one `apply`; write its journal effects in one
 * transaction and a crash at any point leaves either all of it or nothing.
 *
 * @example
 * const broker = new Broker({});
 * broker.apply({ type: "open-channel", connection: 1, channel: 1 }, now);
 * broker.apply({ type: "queue-declare", channel: 1, queue: "q" }, now);
 * broker.apply({ type: "publish", channel: 1, exchange: "", routingKey: "q", properties: {}, body }, now);
 */
export class Broker {
  readonly #m: Machine;

  constructor(options: BrokerOptions = {}) {
    this.#m = new Machine(options);
  }

  get compat(): Compat {
    return this.#m.compat;
  }

  /**
   * Carries one command out at `now` (epoch ms).
   * @throws AmqpError with RabbitMQ's code and words; nothing has changed then. After an error that reaches a
   * channel or connection the host closes it with `close-channel` or `close-connection`.
   */
  apply(command: Command, now: number): Applied {
    const m = this.#m;
    m.now = now;
    m.effects = [];
    // A tick cannot fail, so what a restore left comes first; any other command must be allowed before it counts.
    if (command.type === "tick") finishRestore(m);
    const reply = run(m, command);
    finishRestore(m);
    flush(m);
    return { reply, effects: m.effects };
  }

  /**
   * When the next `tick` is due, epoch ms; Infinity when nothing waits for time. It may be early (the tick then
   * does nothing) and is never late.
   */
  nextWakeAt(): number {
    return nextAlarm(this.#m);
  }

  /**
   * Puts a new machine into the state after a restart. Call it once, before the first command; what it decides
   * (letters of messages whose time passed, new counts) comes with the effects of that first command, so send a
   * `tick` right after. A crash in between changes nothing: the same records give the same state.
   */
  restore(records: Restored): void {
    restore(this.#m, records);
  }

  /** Everything that survives a restart, as {@link Broker.restore} takes it; contents stay in the store. */
  snapshot(): Restored {
    return snapshot(this.#m);
  }

  queues(): QueueView[] {
    return [...this.#m.queues.values()].map(viewQueue);
  }

  queueInfo(name: string): QueueView | undefined {
    const queue = this.#m.queues.get(name);
    return queue === undefined ? undefined : viewQueue(queue);
  }

  /** What a channel holds; null: nothing. */
  unsettled(channel: ChannelId): Unsettled | null {
    return viewUnsettled(this.#m, channel);
  }

  /** Whether a `get` on this channel would have a message. One whose time is over may die instead. */
  waits(queue: string, channel: ChannelId): boolean {
    return viewWaits(this.#m, queue, channel);
  }

  exchanges(): ExchangeInfo[] {
    return viewExchanges(this.#m);
  }

  /** Without the implied bindings of the default exchange. */
  bindings(): BindingRecord[] {
    return viewBindings(this.#m);
  }

  policies(): Policy[] {
    return [...this.#m.policies.values()];
  }

  /** Dead letters that vanished since this machine was made, per queue and reason; queues that are gone included. */
  lost(): LostCount[] {
    return viewLost(this.#m);
  }

  /** Looks at the first waiting messages without taking them; empty for an unknown queue. */
  peek(queue: string, limit: number): Seen[] {
    const found = this.#m.queues.get(queue);
    return found === undefined ? [] : peek(this.#m, found, limit);
  }

  /** The delayed messages of a queue, the earliest due first; empty for an unknown queue. */
  delayed(queue: string, limit: number = Infinity): Seen[] {
    const found = this.#m.queues.get(queue);
    return found === undefined ? [] : peekDelayed(this.#m, found, limit);
  }
}

function finishRestore(m: Machine): void {
  if (m.afterRestore.length === 0) return;
  const work = m.afterRestore;
  m.afterRestore = [];
  for (const job of work) job();
}

function run(m: Machine, c: Command): Reply {
  switch (c.type) {
    case "open-channel":
      openChannel(m, c);
      return OK;
    case "close-channel":
      closeChannel(m, c);
      return OK;
    case "close-connection":
      closeConnection(m, c);
      return OK;
    case "policy-set":
      setPolicy(m, c.policy);
      return OK;
    case "policy-clear":
      clearPolicy(m, c.name, c.operator === true);
      return OK;
    case "tick":
      tick(m);
      return OK;
    default:
      return runOnChannel(m, c as CommandOf<OnChannel>);
  }
}

type OffChannel =
  | "open-channel"
  | "close-channel"
  | "close-connection"
  | "policy-set"
  | "policy-clear"
  | "tick";
type OnChannel = Exclude<Command["type"], OffChannel>;
// biome-ignore lint/suspicious/noConfusingVoidType: a handler without a reply of its own answers ok
type Handler<T extends OnChannel> = (m: Machine, channel: Channel, c: CommandOf<T>) => Reply | void;

const HANDLERS: { readonly [T in OnChannel]: Handler<T> } = {
  publish,
  ack,
  nack,
  reject: nack,
  begin,
  retry,
  release: releaseHeld,
  get,
  consume,
  cancel,
  "queue-declare": declareQueue,
  "queue-delete": deleteQueueCommand,
  "queue-purge": purge,
  "queue-bind": bind,
  "exchange-bind": bind,
  "queue-unbind": unbind,
  "exchange-unbind": unbind,
  "exchange-declare": (m, _channel, c) => declareExchange(m, c),
  "exchange-delete": (m, _channel, c) => deleteExchangeCommand(m, c),
  "confirm-select": (_m, channel) => selectMode(channel, "confirm"),
  "tx-select": (_m, channel) => selectMode(channel, "tx"),
  "tx-commit": commit,
  "tx-rollback": (_m, channel) => rollback(channel),
  qos,
  "channel-credit": setCredit,
  recover,
  "delayed-cancel": delayed,
  "delayed-release": delayed,
  withdraw,
};

function runOnChannel(m: Machine, c: CommandOf<OnChannel>): Reply {
  const channel = m.channel(c.channel);
  const handler = HANDLERS[c.type] as Handler<OnChannel>;
  return handler(m, channel, c) ?? OK;
}
