/**
 * The running broker under everything else: a machine and a journal per virtual host, one clock, one committer.
 * The AMQP server and the management API reach it as `broker.host` (see `BrokerHost` in src/broker/host.ts for
 * the contract in time); the queues, channels and letters of this engine are built on the same calls.
 *
 * submit -> the machine answers and its effects are taken (memory) -> one commit at the end of the turn -> effects
 * and callbacks leave in order -> `flush` of every sink that heard something. On a full disk what would grow is
 * refused (`DISK_FULL`, and the alarm `disk` is raised), what was taken waits, and reading goes on.
 */
import type { Alarm as AlarmName, BrokerHost, Compat, HostSink } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import type { Clock, Logger } from "../../ports/index.ts";
import { Committer, type Durability } from "./committer.ts";
import { emptiedSet } from "./emptied.ts";
import type { Evidence } from "./evidence.ts";
import type { DataFile } from "./file.ts";
import type { Letters } from "./letters.ts";
import type { LostLetters } from "./lost.ts";
import { VHOST_SPAN } from "./schema.ts";
import { Alarm } from "./time.ts";
import type { Upkeep } from "./upkeep.ts";
import { Vhost } from "./vhost.ts";

export interface HostOptions {
  readonly compat: Compat;
  readonly durability: Durability;
  readonly clock: Clock;
  readonly isForeignClock: boolean;
  readonly logger: Logger | undefined;
  readonly maxBodyBytes: number;
  readonly cacheBytes: number;
}

export class Host implements BrokerHost {
  readonly compat: Compat;
  readonly committer: Committer;
  readonly file: DataFile;
  readonly options: HostOptions;
  /** Set once the letters are open; deaths without a place go there. */
  lost: LostLetters | undefined;
  /** Set before the start; goes with the messages. */
  evidence: Evidence | undefined;
  /** Set before the start. */
  upkeep: Upkeep | undefined;
  letters: Letters | undefined;
  /** Called with each look at the clock. */
  readonly onTick: Set<() => void> = new Set();
  /** Called after each commit and tick, for whoever waits for messages. */
  readonly onTurn: Set<() => void> = new Set();
  /** Told of changes of the topology; looked at per command only while there are any. */
  readonly topologyListeners: Set<(vhost: string) => void> = new Set();
  readonly #vhosts: Map<string, Vhost> = new Map();
  readonly #alarm: Alarm;
  readonly #listeners: Set<(alarms: readonly AlarmName[]) => void> = new Set();
  #toFlush: Set<HostSink> = new Set();
  #nextId = 1;
  #closed = false;
  #waiters = 0;
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(file: DataFile, options: HostOptions) {
    this.file = file;
    this.options = options;
    this.compat = options.compat;
    this.committer = new Committer(file.db, file.path, options.durability, options.logger, file.log);
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
    this.evidence?.keepOnly((row) => this.#isThere(row));
    // What the restart itself decides (who died while we were down) comes with the first command.
    for (const vhost of this.#vhosts.values()) vhost.apply({ type: "tick" });
    this.upkeep?.start();
  }

  #isThere(row: number): boolean {
    for (const { id, journal } of this.#vhosts.values())
      if (id === Math.floor(row / VHOST_SPAN)) return journal.isLive(row % VHOST_SPAN);
    return false;
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

  /** Somebody waits for messages. */
  get isAwaited(): boolean {
    return this.#waiters > 0;
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
    this.evidence?.keepOnly((row) => Math.floor(row / VHOST_SPAN) !== vhost.id);
  }

  #open(id: number, name: string): Vhost {
    const vhost = new Vhost(this, id, name);
    vhost.journal.evidence = this.evidence;
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

  onTopology(listener: (vhost: string) => void): () => void {
    this.topologyListeners.add(listener);
    return () => this.topologyListeners.delete(listener);
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
    this.#toFlush = emptiedSet(this.#toFlush);
    for (const listener of this.onTurn) listener();
  }

  #end(why: Error): void {
    for (const vhost of this.#vhosts.values()) vhost.end(why);
  }

  /** Commits what is pending, ends the connections, gives the file back. */
  close(): void {
    if (this.#closed) return;
    for (const vhost of this.#vhosts.values()) vhost.settle();
    const why = this.committer.close();
    this.#closed = true;
    this.#alarm.stop();
    this.upkeep?.stop();
    clearInterval(this.#keepAlive);
    this.#end(new DloError("CLOSED", `the broker on ${this.file.path} is closed`));
    for (const listener of this.onTurn) listener();
    try {
      this.file.close();
    } finally {
      if (why !== null) this.options.logger?.error("closed with unwritten work", { code: why.code });
    }
  }
}
