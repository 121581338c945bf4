/** The embedded broker as people open and use it. */
import type { BrokerHost, Compat } from "../../broker/index.ts";
import { type DeadLetter, DloError, fingerprintOf } from "../../core/index.ts";
import type {
  Clock,
  Letter,
  LetterFilter,
  LetterGroup,
  LetterStore,
  LetterSummary,
  Logger,
  OperationResult,
  QueueStatus,
} from "../../ports/index.ts";
import { Channel } from "./channel.ts";
import { DURABILITIES, type Durability } from "./committer.ts";
import { ConfirmChannel } from "./confirm-channel.ts";
import { DeadLetterStore } from "./dead-letters.ts";
import { type Delayed, type DelayOptions, Delays } from "./delays.ts";
import { Evidence } from "./evidence.ts";
import { type DataFile, openDataFile } from "./file.ts";
import { Host } from "./host.ts";
import { type Fingerprinter, Letters } from "./letters.ts";
import { type LostCount, LostLetters } from "./lost.ts";
import { type Duration, parseSpan, type QueueDeclaration } from "./options.ts";
import { EmbeddedQueue } from "./queue.ts";
import { Replays } from "./replays.ts";
import { Resends } from "./resends.ts";
import { saltOf } from "./salt.ts";
import { QueueServices } from "./services.ts";
import { steadyClock } from "./time.ts";
import { Upkeep } from "./upkeep.ts";
import type { Vhost } from "./vhost.ts";

/** How a broker is opened. */
export interface BrokerSettings {
  /** The data file, made with its folder when missing; ":memory:" for one that dies with the process. */
  readonly file: string;
  /** What survives what, see {@link Durability}; default "full". */
  readonly durability?: Durability;
  /** Which RabbitMQ line the documented points of difference follow; default "4.x". */
  readonly compat?: Compat;
  /** The wall clock, for tests; default the system's, carried on monotonically while the broker is up. */
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** Keep dead letters that have nowhere to go (default true), or count and log them only. */
  readonly lostLetters?: boolean;
  /** Largest body in bytes; default 16 MiB (128 MiB in compat 3.x). */
  readonly maxBodyBytes?: number;
  /** Memory for bodies that wait, bytes; default 32 MiB. Bodies beyond it are read from the file again. */
  readonly cacheBytes?: number;
  /** Remove letters this long after their death (counted and logged); default: never. */
  readonly letterRetention?: Duration;
  /** Names the cause of a letter; default the product's own rule. */
  readonly fingerprint?: Fingerprinter;
}

const MIB = 1024 * 1024;
const DEFAULT_CACHE_BYTES = 32 * MIB;
const RETENTION_LOOK_MS = 60_000;

/**
 * Opens a data file, or makes it, and recovers what it holds: messages in flight when the last owner died come
 * back in their places, messages whose time passed meanwhile die now, in order. Synchronous, because SQLite is:
 * when it returns, the broker serves; a million waiting messages take well under two seconds.
 *
 * @throws DloError DATA_IN_USE (names the holder), DATA_NEWER, DATA_DAMAGED, DATA_FOREIGN, DATA_UNWRITABLE,
 * DISK_FULL, BAD_ARGUMENT. Nothing is changed then.
 * @example
 * await using broker = openBroker({ file: "data/orders.db" });
 * const queue = broker.queue("orders");
 * await queue.send({ order: 17 });
 */
export function openBroker(settings: BrokerSettings | string): EmbeddedBroker {
  const given = typeof settings === "string" ? { file: settings } : settings;
  const checked = check(given);
  const clock = given.clock ?? steadyClock();
  const file = openDataFile(given.file, Math.floor(clock.now()));
  try {
    return new EmbeddedBroker(file, given, clock, checked);
  } catch (error) {
    file.close();
    throw error;
  }
}

interface Checked {
  readonly durability: Durability;
  readonly compat: Compat;
  readonly maxBodyBytes: number;
  readonly cacheBytes: number;
  readonly retentionMs: number | undefined;
}

function check(given: BrokerSettings): Checked {
  const refuse = (what: string, value: unknown, expected: string): never => {
    throw new DloError("BAD_ARGUMENT", `${what} is ${JSON.stringify(value)}; expected ${expected}`);
  };
  if (typeof given.file !== "string" || given.file === "")
    refuse("file", given.file, 'a path, or ":memory:"');
  const { durability = "full", compat = "4.x", cacheBytes = DEFAULT_CACHE_BYTES } = given;
  if (!DURABILITIES.includes(durability)) refuse("durability", durability, DURABILITIES.join(", "));
  if (compat !== "3.x" && compat !== "4.x") refuse("compat", compat, "3.x or 4.x");
  const maxBodyBytes = given.maxBodyBytes ?? (compat === "4.x" ? 16 : 128) * MIB;
  for (const [name, value] of Object.entries({ maxBodyBytes, cacheBytes }))
    if (!Number.isSafeInteger(value) || value < 0) refuse(name, value, "a whole number of bytes");
  const { letterRetention } = given;
  const retentionMs =
    letterRetention === undefined ? undefined : parseSpan("letterRetention", letterRetention);
  return { durability, compat, maxBodyBytes, cacheBytes, retentionMs };
}

const byCause: Fingerprinter = (entry: DeadLetter) => fingerprintOf(entry);

/** A running broker; see {@link openBroker}. */
export class EmbeddedBroker {
  /** What the AMQP server and the management API build on. */
  readonly host: BrokerHost;
  /** All letters of this file, for the office. */
  readonly letters: EmbeddedLetters;
  /** Small values of the layers above, kept in the file. */
  readonly meta: Meta;
  readonly #host: Host;
  readonly #letters: Letters;
  readonly #lost: LostLetters;
  readonly #replays: Replays;
  readonly #services: QueueServices;
  readonly #delays: Delays;
  readonly #replayQueues = new WeakMap<Vhost, Map<string, EmbeddedQueue>>();

  /** @internal */
  constructor(file: DataFile, given: BrokerSettings, clock: Clock, checked: Checked) {
    const { logger } = given;
    const host = new Host(file, { ...checked, clock, isForeignClock: given.clock !== undefined, logger });
    const { committer } = host;
    this.#host = host;
    this.host = host;
    this.#letters = new Letters(file.db, committer, {
      fingerprint: given.fingerprint ?? byCause,
      now: () => host.now(),
      salt: saltOf(host),
    });
    this.#lost = new LostLetters(
      file.db,
      committer,
      given.lostLetters === false ? null : this.#letters,
      logger,
    );
    host.lost = this.#lost;
    const resends = new Resends(file.db, committer, () => host.now());
    const evidence = new Evidence(file.db, committer);
    host.evidence = evidence;
    host.upkeep = new Upkeep(file.db, committer, [this.#letters, resends], () => host.now());
    this.#services = new QueueServices(host, evidence, resends, checked.maxBodyBytes);
    this.#replays = new Replays(host, this.#letters, resends, {
      find: (name) => this.#replayQueue(name),
      own: (queue) => (queue instanceof EmbeddedQueue && queue.host === host ? queue : undefined),
    });
    this.letters = new EmbeddedLetters(host, this.#letters, this.#replays);
    this.#delays = new Delays(host, (name) => this.queue(name));
    this.meta = new Meta(host);
    host.start();
    if (checked.retentionMs !== undefined) this.#retain(checked.retentionMs, logger);
    committer.flush();
    committer.check();
  }

  #retain(retentionMs: number, logger: Logger | undefined): void {
    let lookedAt = Number.NEGATIVE_INFINITY;
    const look = (): void => {
      const now = this.#host.now();
      this.#host.wakeAt(now + RETENTION_LOOK_MS);
      if (now - lookedAt < RETENTION_LOOK_MS) return;
      lookedAt = now;
      let count = 0;
      this.#host.committer.keeping(() => (count = this.#letters.expire(now - retentionMs)));
      if (count > 0)
        logger?.warn(`${count} letters were removed: their retention is over`, { count, retentionMs });
    };
    this.#host.onTick.add(look);
    look();
  }

  #replayQueue(address: string): EmbeddedQueue | undefined {
    const vhosts = this.#host.vhosts().map((name) => this.#host.vhost(name) as Vhost);
    for (const vhost of vhosts) {
      const name = vhost.name === "/" ? address : address.slice(vhost.name.length + 1);
      if (vhost.addressOf(name) !== address || vhost.queueInfo(name) === undefined) continue;
      const known = this.#replayQueues.get(vhost) ?? new Map<string, EmbeddedQueue>();
      this.#replayQueues.set(vhost, known);
      const queue = known.get(name) ?? new EmbeddedQueue(vhost, this.#services, name, undefined);
      known.set(name, queue);
      return queue;
    }
    return undefined;
  }

  get #vhost(): Vhost {
    return this.#host.vhost("/") as Vhost;
  }

  /**
   * A handle on a durable queue, made when it does not exist. Each handle is one consumer: what it holds when it
   * is closed comes back, and a message that was begun then is a suspect.
   * @throws DloError BAD_ARGUMENT, CONFLICT (it exists and is different), QUEUE_NOT_FOUND (`create: false`)
   */
  queue<B = unknown>(name: string, declaration?: QueueDeclaration): EmbeddedQueue<B> {
    return this.vhost("/").queue(name, declaration);
  }

  /** The dead letters of this name, a store in the same file. */
  deadLetters<B = unknown>(name: string): DeadLetterStore<B> {
    if (typeof name !== "string" || name === "")
      throw new DloError("BAD_ARGUMENT", `dead letters need a name; got ${JSON.stringify(name)}`);
    return new DeadLetterStore<B>(this.#host, this.#letters, this.#replays, name);
  }

  /** A channel in amqplib's manner. */
  async createChannel(): Promise<Channel> {
    return new Channel(this.#vhost);
  }

  /** The same, with confirms. */
  async createConfirmChannel(): Promise<ConfirmChannel> {
    return new ConfirmChannel(this.#vhost);
  }

  /**
   * Sends a message that is not handed out before its time, whatever else is sent to that queue. Durable when it
   * resolves; the answer names it for {@link cancelDelayed} and {@link releaseDelayed}.
   *
   * @example
   * await broker.delay("cancel-unpaid", { order: 17 }, { delayMs: "30 minutes" });
   */
  delay(queue: string, body: unknown, options: DelayOptions): Promise<Delayed> {
    return this.#delays.add(queue, body, options);
  }

  /** Messages of a queue that are not due yet, the earliest first. */
  delayed(queue: string, limit: number = 100): readonly Delayed[] {
    return this.#delays.list(queue, limit);
  }

  /** Takes a delayed message back; false when it is not there (any more). */
  cancelDelayed(queue: string, which: Delayed | string): Promise<boolean> {
    return this.#delays.settle("delayed-cancel", queue, which);
  }

  /** Lets a delayed message go now; false when it is not there (any more). */
  releaseDelayed(queue: string, which: Delayed | string): Promise<boolean> {
    return this.#delays.settle("delayed-release", queue, which);
  }

  /** Dead letters that had nowhere to go, counted by queue and reason. */
  lost(): readonly LostCount[] {
    return this.#lost.counts();
  }

  /** A virtual host of its own queues and exchanges, made when missing; "/" is the one used everywhere else. */
  vhost(name: string): EmbeddedVhost {
    return new EmbeddedVhost(this.#host.createVhost(name), this.#services);
  }

  /** Looks at the clock now; needed only with a clock of your own that was moved. */
  tick(): void {
    this.#host.tick();
  }

  /** Commits what is pending and gives the file back. What was not confirmed is rejected with CLOSED. */
  async close(): Promise<void> {
    this.#host.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#host.close();
  }
}

/** Queues and channels of one virtual host. */
export class EmbeddedVhost {
  readonly name: string;
  readonly #vhost: Vhost;
  readonly #services: QueueServices;

  /** @internal */
  constructor(vhost: Vhost, services: QueueServices) {
    this.name = vhost.name;
    this.#vhost = vhost;
    this.#services = services;
  }

  queue<B = unknown>(name: string, declaration?: QueueDeclaration): EmbeddedQueue<B> {
    return new EmbeddedQueue<B>(this.#vhost, this.#services, name, declaration);
  }

  async createChannel(): Promise<Channel> {
    return new Channel(this.#vhost);
  }

  async createConfirmChannel(): Promise<ConfirmChannel> {
    return new ConfirmChannel(this.#vhost);
  }
}

/** {@link LetterStore} on the file. Looking changes nothing; what changes a letter resolves when it is durable. */
export class EmbeddedLetters implements LetterStore {
  readonly #host: Host;
  readonly #letters: Letters;
  readonly #replays: Replays;

  /** @internal */
  constructor(host: Host, letters: Letters, replays: Replays) {
    this.#host = host;
    this.#letters = letters;
    this.#replays = replays;
  }

  status(): readonly QueueStatus[] {
    return this.#host.vhosts().flatMap((name) =>
      (this.#host.vhost(name)?.queues() ?? []).map(({ record, ready, unacked, delayed }) => ({
        queue: this.#host.vhost(name)?.addressOf(record.name) ?? record.name,
        waiting: ready,
        inFlight: unacked,
        delayed,
      })),
    );
  }

  count(filter?: LetterFilter): number {
    this.#host.check();
    return this.#letters.count(filter);
  }

  page(filter: LetterFilter, limit: number, after?: string): readonly LetterSummary[] {
    this.#host.check();
    return this.#letters.page(filter, limit, after);
  }

  get(id: string): Letter | null {
    this.#host.check();
    return this.#letters.get(id);
  }

  groups(filter?: LetterFilter): readonly LetterGroup[] {
    this.#host.check();
    return this.#letters.groupsOf(filter);
  }

  /** Each letter and its message change place in one transaction; a crash leaves the rest as letters. */
  replay(ids: readonly string[], options: { to?: string } = {}): Promise<OperationResult> {
    return this.#replays.replay(ids, options);
  }

  /** To the trash, from where {@link restore} brings them back. */
  discard(ids: readonly string[]): Promise<OperationResult> {
    return this.#replays.discard(ids);
  }

  restore(ids: readonly string[]): Promise<OperationResult> {
    return this.#replays.restore(ids);
  }
}

/** Keys and values in the file; a value is durable when `set` resolves. */
export class Meta {
  readonly #host: Host;

  /** @internal */
  constructor(host: Host) {
    this.#host = host;
  }

  get(key: string): string | null {
    const row = this.#host.file.db.prepare("SELECT value FROM meta WHERE key = ?").get(`user:${key}`);
    return (row as { value: string } | undefined)?.value ?? null;
  }

  set(key: string, value: string | null): Promise<void> {
    const { committer, file } = this.#host;
    const sql =
      value === null ? "DELETE FROM meta WHERE key = ?" : "INSERT OR REPLACE INTO meta VALUES (?, ?)";
    const values = value === null ? [`user:${key}`] : [`user:${key}`, value];
    const statement = file.db.prepare(sql);
    committer.run(() => statement.run(...values));
    return new Promise((resolve, reject) => {
      committer.after((error) => (error === null ? resolve() : reject(error)));
    });
  }
}
