/**
 * The running broker under everything else: a machine and a journal per virtual host, one clock, one committer.
 * The AMQP server and the management API reach it as `broker.host` (see `BrokerHost` in src/broker/host.ts for
 * the contract in time); the queues, channels and letters of this engine are built on the same calls.
 *
 * submit -> the machine answers and its effects are taken (memory) -> one commit at the end of the turn -> effects
 * and callbacks leave in order -> `flush` of every sink that heard something. On a full disk what would grow is
 * refused (`DISK_FULL`, and the alarm `disk` is raised), what was taken waits, and reading goes on.
 */
import {
  type Alarm as AlarmName,
  type Applied,
  type BindingRecord,
  Broker,
  type BrokerHost,
  type ChannelId,
  type Command,
  type Compat,
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
  type VirtualHost,
} from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import type { Clock, Logger } from "../../ports/index.ts";
import { Committer, type Durability } from "./committer.ts";
import type { DataFile } from "./file.ts";
import { Journal } from "./journal.ts";
import type { Letters } from "./letters.ts";
import type { LostLetters } from "./lost.ts";
import { Alarm } from "./time.ts";

export interface HostOptions {
  readonly compat: Compat;
  readonly durability: Durability;
  readonly clock: Clock;
  readonly isForeignClock: boolean;
  readonly logger: Logger | undefined;
  readonly maxBodyBytes: number;
  readonly cacheBytes: number;
}

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

// These must be on the disk before anybody is told; receives, start counts, acks and what goes may follow later.
const SYNCED = new Set<JournalEffect["type"]>([
  "message-put",
  "queue-put",
  "exchange-put",
  "binding-put",
  "policy-put",
]);

export class Host implements BrokerHost {
  readonly compat: Compat;
  readonly committer: Committer;
  readonly file: DataFile;
  readonly options: HostOptions;
  /** Set once the letters are open; deaths without a place go there. */
  lost: LostLetters | undefined;
  letters: Letters | undefined;
  /** Called with each look at the clock. */
  readonly onTick: Set<() => void> = new Set();
  /** Called after each commit and tick, for whoever waits for messages. */
  readonly onTurn: Set<() => void> = new Set();
  readonly #vhosts: Map<string, Vhost> = new Map();
  readonly #alarm: Alarm;
  readonly #listeners: Set<(alarms: readonly AlarmName[]) => void> = new Set();
  readonly #toFlush: Set<HostSink> = new Set();
  #nextId = 1;
  #closed = false;
  #waiters = 0;
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(file: DataFile, options: HostOptions) {
    this.file = file;
    this.options = options;
    this.compat = options.compat;
    this.committer = new Committer(file.db, file.path, options.durability, options.logger);
    this.committer.onCommitted = () => this.#told();
    this.committer.onStalled = () => this.#alarmsChanged();
    this.committer.onFailed = (why) => this.#end(why);
    this.#alarm = new Alarm(options.clock, options.isForeignClock, () => this.tick());
  }

  /** Opens the virtual hosts of the file; "/" is made when it is missing. */
  start(): void {
    const rows = this.file.db.prepare("SELECT id, name FROM vhosts ORDER BY id").all() as {
      id: number;
      name: string;
    }[];
    for (const { id, name } of rows) this.#open(id, name);
    this.createVhost("/");
    // What the restart itself decides (who died while we were down) comes with the first command.
    for (const vhost of this.#vhosts.values()) vhost.apply({ type: "tick" });
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** A process that waits for messages is not done: keeps it running while somebody does. */
  holdOpen(change: 1 | -1): void {
    this.#waiters += change;
    if (this.#waiters > 0) this.#keepAlive ??= setInterval(() => {}, 2 ** 30);
    else {
      clearInterval(this.#keepAlive);
      this.#keepAlive = undefined;
    }
  }

  now(): number {
    return this.options.clock.now();
  }

  nextId(): number {
    return this.#nextId++;
  }

  vhosts(): readonly string[] {
    return [...this.#vhosts.keys()];
  }

  vhost(name: string): Vhost | undefined {
    return this.#vhosts.get(name);
  }

  createVhost(name: string): Vhost {
    const known = this.#vhosts.get(name);
    if (known !== undefined) return known;
    this.check();
    const id = Math.max(0, ...[...this.#vhosts.values()].map((vhost) => vhost.id)) + 1;
    const insert = this.file.db.prepare("INSERT INTO vhosts (id, name) VALUES (?, ?)");
    this.committer.run(() => insert.run(id, name));
    return this.#open(id, name);
  }

  deleteVhost(name: string): void {
    const vhost = this.#vhosts.get(name);
    if (vhost === undefined) throw new DloError("NOT_FOUND", `no virtual host '${name}'`);
    if (name === "/") throw new DloError("REFUSED", "the virtual host '/' cannot be deleted");
    this.#vhosts.delete(name);
    vhost.end(new DloError("NOT_FOUND", `virtual host '${name}' was deleted`));
    this.committer.writers.delete(vhost.journal);
    this.committer.run(() => vhost.journal.erase());
  }

  #open(id: number, name: string): Vhost {
    const vhost = new Vhost(this, id, name);
    this.#vhosts.set(name, vhost);
    this.committer.writers.add(vhost.journal);
    vhost.restore();
    return vhost;
  }

  alarms(): readonly AlarmName[] {
    return this.committer.isStalled ? ["disk"] : [];
  }

  onAlarm(listener: (alarms: readonly AlarmName[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #alarmsChanged(): void {
    for (const listener of this.#listeners) listener(this.alarms());
  }

  /** Throws when the broker is closed or its disk has failed. */
  check(): void {
    if (this.#closed) throw new DloError("CLOSED", `the broker on ${this.file.path} is closed`);
    this.committer.check();
  }

  /** Throws when there is no room for more. */
  checkRoom(): void {
    if (!this.committer.isStalled) return;
    throw new DloError("DISK_FULL", `no room to write ${this.file.path}: nothing new is accepted`);
  }

  /** Looks at the clock: what is due is released, what has expired dies. */
  tick(): void {
    if (this.#closed) return;
    for (const vhost of this.#vhosts.values()) vhost.tick();
    for (const look of this.onTick) look();
    this.#told();
  }

  wakeAt(at: number): void {
    if (!this.#closed) this.#alarm.atLatest(at);
  }

  /** This sink has something to write out after the turn. */
  heard(sink: HostSink): void {
    this.#toFlush.add(sink);
  }

  #told(): void {
    for (const sink of this.#toFlush) sink.flush();
    this.#toFlush.clear();
    for (const listener of this.onTurn) listener();
  }

  #end(why: Error): void {
    for (const vhost of this.#vhosts.values()) vhost.end(why);
  }

  /** Commits what is pending, ends the connections, gives the file back. */
  close(): void {
    if (this.#closed) return;
    const why = this.committer.close();
    this.#closed = true;
    this.#alarm.stop();
    clearInterval(this.#keepAlive);
    this.#end(new DloError("CLOSED", `the broker on ${this.file.path} is closed`));
    for (const listener of this.onTurn) listener();
    try {
      this.file.close(why === null);
    } finally {
      if (why !== null) this.options.logger?.error("closed with unwritten work", { code: why.code });
    }
  }
}

/** One virtual host: a machine, its journal, and who is connected to it. */
export class Vhost implements VirtualHost {
  readonly id: number;
  readonly name: string;
  readonly host: Host;
  readonly journal: Journal;
  /** Seq of the message put last. */
  lastSeq = 0;
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
  applyAll(command: Command): Applied {
    const { host } = this;
    host.check();
    const applied = this.#machine.apply(command, host.now());
    if (applied.effects.length > 0) this.#take(applied.effects);
    host.wakeAt(this.#machine.nextWakeAt());
    return applied;
  }

  #take(effects: readonly Effect[]): void {
    const { committer } = this.host;
    // A letter takes its body over before the message goes.
    for (const effect of effects) {
      if (effect.type === "lost") committer.atomically(() => this.host.lost?.keep(this, effect));
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
      this.journal.take(effect);
      journaled = true;
      if (effect.type === "message-put") this.lastSeq = effect.state.seq;
      if (SYNCED.has(effect.type)) sync = true;
    }
    if (outward !== undefined) this.#tell(outward);
    if (journaled) committer.touch(sync);
  }

  #isSilent(effect: Outward): boolean {
    return this.#byChannel.get(effect.channel)?.isSilent === true;
  }

  #tell(outward: readonly Outward[]): void {
    this.host.committer.after((error) => {
      if (error === null) for (const effect of outward) this.#send(effect);
    }, true);
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
    for (const connection of this.#connections) connection.sink.ended(why);
    this.#connections.clear();
    this.#byChannel.clear();
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
    return this.#vhost.applyAll(command);
  }

  afterCommit(run: () => void): void {
    this.#vhost.host.committer.after((error) => {
      if (error !== null) return;
      run();
      this.#vhost.host.heard(this.sink);
    }, true);
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    try {
      this.#vhost.apply({ type: "close-connection", connection: this.id });
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
