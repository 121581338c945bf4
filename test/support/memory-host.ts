// A BrokerHost over the pure machine, without a journal: for tests of the AMQP server. "Commits" at the end of
// the turn, or when told to with drain().
import {
  type BindingRecord,
  Broker,
  type BrokerHost,
  type ChannelId,
  type Command,
  type Compat,
  type ConnectionId,
  type ExchangeInfo,
  type HostConnection,
  type HostSink,
  type Policy,
  type QueueInfo,
  type Reply,
  type VirtualHost,
} from "../../src/broker/index.ts";

type Waiting = () => void;

class MemoryVhost implements VirtualHost {
  readonly name: string;
  readonly broker: Broker;
  readonly #host: MemoryHost;
  readonly #sinks = new Map<ChannelId, HostSink>();
  #timer: NodeJS.Timeout | null = null;

  constructor(host: MemoryHost, name: string) {
    this.name = name;
    this.#host = host;
    this.broker = new Broker({ compat: host.compat, vhost: name });
  }

  apply(command: Command): Reply {
    const { reply, effects } = this.broker.apply(command, this.#host.now());
    for (const effect of effects) {
      if (!("channel" in effect)) continue;
      const sink = this.#sinks.get(effect.channel);
      if (sink !== undefined) this.#host.later(() => sink.effect(effect), sink);
    }
    this.#wake();
    return reply;
  }

  #wake(): void {
    const at = this.broker.nextWakeAt();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (at === Number.POSITIVE_INFINITY) return;
    const wait = Math.min(Math.max(0, at - this.#host.now()), 2 ** 31 - 1);
    this.#timer = setTimeout(() => this.apply({ type: "tick" }), wait);
    this.#timer.unref();
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  connect(sink: HostSink): HostConnection {
    const id: ConnectionId = this.#host.nextId();
    const host = this.#host;
    let open = true;
    const channels: ChannelId[] = [];
    return {
      id,
      openChannel: () => {
        const channel: ChannelId = host.nextId();
        this.#sinks.set(channel, sink);
        channels.push(channel);
        this.apply({ type: "open-channel", connection: id, channel });
        return channel;
      },
      submit: (command) => this.apply(command),
      afterCommit: (run) => host.later(run, sink),
      unsettled: (channel) => this.broker.unsettled(channel),
      close: (options) => {
        const clean = options?.clean === true;
        if (open) this.apply({ type: "close-connection", connection: id, clean });
        open = false;
        for (const channel of channels) this.#sinks.delete(channel);
      },
    };
  }

  queues(): readonly QueueInfo[] {
    return [];
  }
  exchanges(): readonly ExchangeInfo[] {
    return [];
  }
  bindings(): readonly BindingRecord[] {
    return [];
  }
  policies(): readonly Policy[] {
    return [];
  }
}

export class MemoryHost implements BrokerHost {
  readonly compat: Compat;
  readonly now: () => number;
  readonly #vhosts = new Map<string, MemoryVhost>();
  readonly #manual: boolean;
  #waiting: Waiting[] = [];
  #flushes = new Set<HostSink>();
  #scheduled = false;
  #ids = 0;

  constructor(options: { compat?: Compat; now?: () => number; manual?: boolean; vhosts?: string[] } = {}) {
    this.compat = options.compat ?? "4.x";
    this.now = options.now ?? Date.now;
    this.#manual = options.manual ?? false;
    for (const name of options.vhosts ?? ["/"]) this.createVhost(name);
  }

  createVhost(name: string): VirtualHost {
    const vhost = this.#vhosts.get(name) ?? new MemoryVhost(this, name);
    this.#vhosts.set(name, vhost);
    return vhost;
  }

  vhosts(): readonly string[] {
    return [...this.#vhosts.keys()];
  }

  vhost(name: string): MemoryVhost | undefined {
    return this.#vhosts.get(name);
  }

  nextId(): number {
    return ++this.#ids;
  }

  later(run: Waiting, sink: HostSink): void {
    this.#waiting.push(run);
    this.#flushes.add(sink);
    if (this.#scheduled || this.#manual) return;
    this.#scheduled = true;
    setImmediate(() => this.drain());
  }

  /** The commit: everything submitted so far is let go. */
  drain(): void {
    this.#scheduled = false;
    while (this.#waiting.length > 0) {
      const waiting = this.#waiting;
      const flushes = this.#flushes;
      this.#waiting = [];
      this.#flushes = new Set();
      for (const run of waiting) run();
      for (const sink of flushes) sink.flush();
    }
  }

  close(): void {
    for (const vhost of this.#vhosts.values()) vhost.stop();
  }
}
