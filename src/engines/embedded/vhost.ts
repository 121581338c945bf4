/** One virtual host of the running broker, and its connections. See host.ts for the order in time. */
import {
  type Applied,
  type BindingRecord,
  Broker,
  type ChannelId,
  type Command,
  type Content,
  type Effect,
  type ExchangeInfo,
  type HostConnection,
  type HostSink,
  type JournalEffect,
  type MessageState,
  type OutwardEffect,
  type Policy,
  type QueueInfo,
  type Reply,
  type Unsettled,
  type VirtualHost,
} from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import type { Host } from "./host.ts";
import { Journal } from "./journal.ts";
import { LATER_MOST, LATER_MS, Later } from "./later.ts";

/** A message seen without taking it. */
export interface Seen {
  readonly state: MessageState;
  readonly content: Content;
}

type Outward = Exclude<OutwardEffect, { type: "lost" }>;

const GROWS = new Set<Command["type"]>([
  "publish",
  "exchange-declare",
  "queue-declare",
  "queue-bind",
  "exchange-bind",
  "policy-set",
]);

/** What a client is not answered to. */
const SETTLES = new Set<Command["type"]>(["ack", "nack", "reject"]);

const TOPOLOGY = new Set<Command["type"]>([
  "exchange-declare",
  "exchange-delete",
  "exchange-bind",
  "exchange-unbind",
  "queue-declare",
  "queue-delete",
  "queue-bind",
  "queue-unbind",
  "policy-set",
  "policy-clear",
]);

/** Exclusive queues come and go with their connections, by the thousand where somebody does RPC with them. */
const changesTopology = (command: Command): boolean =>
  TOPOLOGY.has(command.type) &&
  !(command.type === "queue-declare" && (command.exclusive === true || command.passive === true));

/** One virtual host: a machine, its journal, and who is connected to it. */
export class Vhost implements VirtualHost {
  readonly id: number;
  readonly name: string;
  readonly host: Host;
  readonly journal: Journal;
  /** Seq of the message put last. */
  lastSeq = 0;
  #ended: Error | undefined;
  readonly #later = new Later();
  #settleTimer: NodeJS.Timeout | undefined;
  readonly #machine: Broker;
  readonly #connections: Set<Connection> = new Set();
  readonly #byChannel: Map<ChannelId, Connection> = new Map();

  constructor(host: Host, id: number, name: string) {
    this.host = host;
    this.id = id;
    this.name = name;
    this.journal = new Journal(host.file.db, id, host.options.cacheBytes);
    this.#machine = new Broker({
      compat: host.compat,
      vhost: name,
      contents: this.journal.contents,
      limits: { maxMessageBytes: host.options.maxBodyBytes },
    });
  }

  restore(): void {
    this.#machine.restore(this.journal.restore());
    this.#lookAhead();
  }

  connect(sink: HostSink, kind: ConnectionKind = "front"): Connection {
    this.host.check();
    const connection = new Connection(this, sink, kind);
    this.#connections.add(connection);
    return connection;
  }

  /** A queue's name among those of all virtual hosts, as letters and the status have it. */
  addressOf(queue: string): string {
    return this.name === "/" ? queue : `${this.name}/${queue}`;
  }

  queues(): readonly QueueInfo[] {
    return this.#machine.queues();
  }

  queueInfo(name: string): QueueInfo | undefined {
    return this.#machine.queueInfo(name);
  }

  /** Delayed messages, the earliest due first. */
  delayed(queue: string, limit: number): readonly Seen[] {
    return this.#machine.delayed(queue, limit);
  }

  /** The first waiting messages, untouched. */
  peek(queue: string, limit: number): readonly Seen[] {
    return this.#machine.peek(queue, limit);
  }

  unsettled(channel: ChannelId): Unsettled | null {
    return this.#machine.unsettled(channel);
  }

  /** Whether this channel would be given a message. */
  waits(queue: string, channel: ChannelId): boolean {
    return this.#machine.waits(queue, channel);
  }

  exchanges(): readonly ExchangeInfo[] {
    return this.#machine.exchanges();
  }

  bindings(): readonly BindingRecord[] {
    return this.#machine.bindings();
  }

  policies(): readonly Policy[] {
    return this.#machine.policies();
  }

  /** Applies a command; its effects are taken and leave after the commit. */
  apply(command: Command): Reply {
    return this.applyAll(command).reply;
  }

  /** The same, and shows what was done. */
  applyAll(command: Command, isFront: boolean = false): Applied {
    const { host } = this;
    host.check();
    // Deleted: nothing would be written any more.
    if (this.#ended !== undefined) throw this.#ended;
    const applied = this.#machine.apply(command, host.now());
    const effects = this.#putOff(command, isFront, applied.effects);
    if (effects.length > 0) this.#take(effects, confirms(command, isFront, effects));
    // What comes or comes back without being written (a transient message) ends a turn all the same.
    else if (host.isAwaited) host.committer.after(() => {});
    host.wakeAt(this.#machine.nextWakeAt());
    if (host.topologyListeners.size > 0 && changesTopology(command)) {
      for (const listener of host.topologyListeners) listener(this.name);
    }
    return applied;
  }

  /** What is left of these effects to do now; a client's settlements may wait. At `strict` none do. */
  #putOff(command: Command, isFront: boolean, effects: readonly Effect[]): readonly Effect[] {
    if (!isFront || !SETTLES.has(command.type) || this.host.options.durability === "strict") return effects;
    const left = this.#later.take(effects, command.type !== "ack");
    if (left === null) return effects;
    if (this.#later.size >= LATER_MOST) this.settle();
    else this.#settleTimer ??= setTimeout(() => this.settle(), LATER_MS).unref();
    return left;
  }

  /** The settlements that wait are written with the next commit. */
  settle(): void {
    if (this.#takeLater()) this.host.committer.touch(false);
  }

  #takeLater(): boolean {
    clearTimeout(this.#settleTimer);
    this.#settleTimer = undefined;
    const waiting = this.#later.drain();
    for (const effect of waiting) this.journal.take(effect);
    return waiting.length > 0;
  }

  #take(effects: readonly Effect[], confirmed: boolean): void {
    const { committer } = this.host;
    for (const effect of effects) {
      if (effect.type !== "lost") continue;
      this.#keepLost(effects);
      break;
    }
    let sync = false;
    let journaled = false;
    let outward: Outward[] | undefined;
    for (const effect of effects) {
      if (isOutward(effect)) {
        if (effect.type === "lost" || this.#isSilent(effect)) continue;
        if (outward === undefined) outward = [effect];
        else outward.push(effect);
        continue;
      }
      if (this.#later.precede(effect)) this.#takeLater();
      this.journal.take(effect);
      journaled = true;
      if (effect.type === "message-put") this.lastSeq = effect.state.seq;
      sync ||= mustBeSynced(effect, confirmed);
    }
    // First that it must be synced: what is told below may be the one that cuts the transaction.
    if (journaled) committer.touch(sync);
    if (outward !== undefined) this.#tell(outward);
  }

  /** A letter takes its body over before the message goes, unless another queue takes the message on. */
  #keepLost(effects: readonly Effect[]): void {
    const goOn = new Set<number>();
    for (const effect of effects)
      if (effect.type === "message-put" && effect.from !== undefined) goOn.add(effect.from.seq);
    for (const effect of effects)
      if (effect.type === "lost")
        this.host.committer.atomically(() =>
          this.host.committer.keeping(() => this.host.lost?.keep(this, effect, goOn.has(effect.seq))),
        );
  }

  #isSilent(effect: Outward): boolean {
    return this.#byChannel.get(effect.channel)?.isSilent === true;
  }

  #tell(outward: readonly Outward[]): void {
    this.host.committer.after((error) => {
      if (error === null) for (const effect of outward) this.#send(effect);
    });
  }

  #send(effect: Outward): void {
    const connection = this.#byChannel.get(effect.channel);
    if (connection === undefined) return;
    connection.sink.effect(effect);
    this.host.heard(connection.sink);
  }

  #lookAhead(): void {
    this.host.wakeAt(this.#machine.nextWakeAt());
  }

  tick(): void {
    if (this.#machine.nextWakeAt() <= this.host.now()) this.apply({ type: "tick" });
    else this.#lookAhead();
  }

  openChannel(connection: Connection): ChannelId {
    const channel = this.host.nextId();
    this.apply({ type: "open-channel", connection: connection.id, channel });
    this.#byChannel.set(channel, connection);
    return channel;
  }

  forget(connection: Connection): void {
    this.#connections.delete(connection);
    for (const [channel, owner] of this.#byChannel) if (owner === connection) this.#byChannel.delete(channel);
  }

  end(why: Error): void {
    this.#ended ??= why;
    clearTimeout(this.#settleTimer);
    for (const connection of this.#connections) connection.sink.ended(why);
    this.#connections.clear();
    this.#byChannel.clear();
  }
}

/** Somebody is told that what this put into a queue is safe: a client by its confirm or commit-ok and nothing else. */
function confirms(command: Command, isFront: boolean, effects: readonly Effect[]): boolean {
  if (command.type === "tx-commit") return true;
  return command.type === "publish" && (!isFront || effects.some((effect) => effect.type === "confirm"));
}

/**
 * These must be on the disk before anybody is told; receives, start counts, acks and what goes may follow later. So
 * may what nobody is told of: a death, after a power cut, has left the message, whole, where it was.
 */
function mustBeSynced(effect: JournalEffect, confirmed: boolean): boolean {
  switch (effect.type) {
    case "message-put":
      return confirmed;
    case "queue-put":
    case "exchange-put":
    case "binding-put":
    case "policy-put":
      return true;
    default:
      return false;
  }
}

function isOutward(effect: Effect): effect is OutwardEffect {
  switch (effect.type) {
    case "deliver":
    case "confirm":
    case "return":
    case "consumer-cancelled":
    case "lost":
      return true;
    default:
      return false;
  }
}

/**
 * Who is connected. A `front` stops reading from publishers while there is no room (the alarm `disk` tells it); what
 * comes all the same waits, unconfirmed. A `channel` and a `queue` of this process are refused at once. A `queue`
 * hears of no effects: it looks at what `submitAll` answers.
 */
export type ConnectionKind = "front" | "channel" | "queue";

/** One connection; see `HostConnection`. */
export class Connection implements HostConnection {
  readonly id: number;
  readonly sink: HostSink;
  readonly #kind: ConnectionKind;
  readonly #vhost: Vhost;
  #open = true;

  constructor(vhost: Vhost, sink: HostSink, kind: ConnectionKind) {
    this.#kind = kind;
    this.#vhost = vhost;
    this.id = vhost.host.nextId();
    this.sink = sink;
  }

  openChannel(): ChannelId {
    this.#check();
    return this.#vhost.openChannel(this);
  }

  /** It hears of no effects. */
  get isSilent(): boolean {
    return this.#kind === "queue";
  }

  submit(command: Command): Reply {
    return this.submitAll(command).reply;
  }

  /** As {@link submit}, and shows all effects. */
  submitAll(command: Command): Applied {
    this.#check();
    const { host } = this.#vhost;
    if (host.committer.isStalled && this.#kind !== "front" && GROWS.has(command.type)) host.checkRoom();
    return this.#vhost.applyAll(command, this.#kind === "front");
  }

  afterCommit(run: () => void): void {
    // Who asks for an answer is told the truth: what was settled before is in the file too.
    this.#vhost.settle();
    this.#vhost.host.committer.after((error) => {
      if (error !== null) return;
      run();
      this.#vhost.host.heard(this.sink);
    });
  }

  unsettled(channel: ChannelId): Unsettled | null {
    return this.#vhost.unsettled(channel);
  }

  close(options: { readonly clean?: boolean } = {}): void {
    if (!this.#open) return;
    this.#open = false;
    const clean = options.clean === true;
    try {
      this.#vhost.apply({ type: "close-connection", connection: this.id, clean });
    } catch (error) {
      // A broker that is closed or has failed has no connections any more.
      if (!(error instanceof DloError)) throw error;
    }
    this.#vhost.forget(this);
  }

  #check(): void {
    if (!this.#open) throw new DloError("CLOSED", "this connection is closed");
  }
}
