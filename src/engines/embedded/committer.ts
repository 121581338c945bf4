/**
 * Group commit: what the machines did in one turn of the event loop becomes one transaction, and what it tells
 * the world leaves after it.
 *
 * idle -> gathering (something was taken) -> committed (told in order) -> idle
 * gathering -> stalled (no room: what can be taken back is refused; the rest is kept, tried again, and told when it is
 * known) -> committed
 * any -> failed (the disk reports an error: the file must be opened anew) ; any -> closed
 */
import { performance } from "node:perf_hooks";
import { DloError } from "../../core/index.ts";
import type { Logger } from "../../ports/index.ts";
import type { LogSync } from "./log-sync.ts";
import { type Database, sqlError } from "./sqlite.ts";
import { Transaction } from "./transaction.ts";

/**
 * What survives what. `full`: a confirmed send, dead letter or declaration survives power loss; after one, acks
 * and start counts of the last 60 ms may be forgotten (the message comes again). `process`: everything survives
 * the death of the process; power loss may take the last seconds. `strict`: every commit is synced.
 */
export type Durability = "full" | "process" | "strict";

export const DURABILITIES: readonly Durability[] = ["full", "process", "strict"];

// A transaction is cut at so many messages, or after so long, so that a flood does not hold everybody's answers.
const MAX_MESSAGES = 500;
// Counting what waits costs as much as taking it, so it is counted at every so many calls.
const LOOK_EVERY = 16;
const MAX_TURN_MS = 5;
/** At `full`, commits without sync (acks, start counts) are synced after this. */
export const SYNC_AFTER_MS = 50;
const RETRY_FULL_MS = 250;
/** So much must fit before anything new is accepted again. */
const PROBE_BYTES = 65_536;

/** Gathers changes in memory and writes their net result inside the transaction. */
export interface Writer {
  readonly isPending: boolean;
  /** Rows to write, roughly. */
  readonly size: number;
  /** May be called again when the commit failed. */
  write(): void;
  written(): void;
}

type Told = (error: DloError | null) => void;

interface After {
  readonly run: Told;
  /** Undoes what is waited for, as if it had not been asked for; false when that cannot be done (any more). */
  readonly takeBack: (() => boolean) | undefined;
}

export class Committer {
  /** Who gathers what is to be written. */
  readonly writers: Set<Writer> = new Set();
  /** Called after every commit, once all was told. */
  onCommitted: () => void = () => {};
  /** Called when the state of the disk changes: true when there is no room. */
  onStalled: (stalled: boolean) => void = () => {};
  onFailed: (error: DloError) => void = () => {};

  readonly #db: Database;
  readonly #transaction: Transaction;
  readonly #file: string;
  readonly #durability: Durability;
  readonly #logger: Logger | undefined;
  #after: After[] = [];
  #replay: (() => unknown)[] = [];
  #needsSync = false;
  /** The log was synced, and of what came since little is in it: the next commit takes it into the file quickly. */
  #isLogFresh = false;
  #scheduled = false;
  #calls = 0;
  #turnStartedAt = 0;
  #stalled = false;
  #failure: DloError | undefined;
  /** Commits were made that nothing has synced or is syncing. */
  #unsynced = false;
  readonly #log: LogSync | undefined;
  #holds = 0;
  #keeping = false;
  #syncTimer: NodeJS.Timeout | undefined;
  #retryTimer: NodeJS.Timeout | undefined;

  /** `log`: of the file; absent where there is none to sync. */
  constructor(db: Database, file: string, durability: Durability, logger: Logger | undefined, log?: LogSync) {
    this.#db = db;
    this.#transaction = new Transaction(db);
    this.#file = file;
    this.#durability = durability;
    this.#logger = logger;
    if (durability === "full") this.#log = log;
  }

  /** Set while there is no room on the disk. */
  get isStalled(): boolean {
    return this.#stalled;
  }

  /** Throws when nothing can be written any more. */
  check(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Something was taken by a journal: commit at the end of this turn, synced or not. */
  touch(sync: boolean): void {
    if (sync) this.#needsSync = true;
    this.#schedule();
  }

  /**
   * Runs statements inside the turn's transaction at once, so that reads see them; synced. They are run again
   * when a commit fails for want of room, so `work` must depend on nothing but its own values and the file.
   */
  run(work: () => unknown): void {
    this.check();
    try {
      if (!this.#keeping || !this.#stalled) {
        this.#begin(true);
        work();
      }
    } catch (error) {
      // SQLite may have undone the whole transaction; start it again without this work.
      this.#transaction.rollback();
      const known = sqlError(error, this.#file);
      if (!this.#keeping || (known as DloError).code !== "DISK_FULL") throw known;
      if (!this.#stalled) this.#setStalled(true);
    }
    this.#replay.push(work);
    this.touch(true);
  }

  /**
   * What is run in here has happened already (a death without a place), so it cannot be refused: without room it is
   * written with all else that waits.
   */
  keeping(work: () => void): void {
    const before = this.#keeping;
    this.#keeping = true;
    try {
      work();
    } finally {
      this.#keeping = before;
    }
  }

  /**
   * Called after the commit, in the order of the calls. With no room on the disk it waits until there is, or the file is
   * closed: only what `takeBack` has undone can truly be said to be refused.
   */
  after(run: Told, takeBack?: () => boolean): void {
    this.#after.push({ run, takeBack });
    this.#schedule();
  }

  /** What `work` does is in one transaction, whatever its size. */
  atomically<T>(work: () => T): T {
    this.#holds++;
    try {
      return work();
    } finally {
      this.#holds--;
    }
  }

  #schedule(): void {
    if (this.#scheduled) {
      if (this.#holds > 0 || ++this.#calls < LOOK_EVERY) return;
      this.#calls = 0;
      if (this.#size() >= MAX_MESSAGES || performance.now() - this.#turnStartedAt > MAX_TURN_MS)
        this.#commit();
      return;
    }
    this.#scheduled = true;
    this.#turnStartedAt = performance.now();
    setImmediate(() => {
      this.#scheduled = false;
      this.flush();
    });
  }

  #size(): number {
    let size = this.#replay.length;
    for (const writer of this.writers) size += writer.size;
    return size;
  }

  #hasWork(): boolean {
    if (this.#replay.length > 0) return true;
    for (const writer of this.writers) if (writer.isPending) return true;
    return false;
  }

  /** Commits what was gathered and tells everybody, now. */
  flush(): void {
    if (this.#failure !== undefined) this.#tellAll(this.#failure);
    else if (this.#commit()) this.#tellAll(null);
  }

  /** True when everything gathered is committed. */
  #commit(): boolean {
    if (!this.#hasWork()) return true;
    try {
      if (this.#stalled) this.#transaction.makeRoom();
      this.#begin(this.#needsSync);
      for (const writer of this.writers) writer.write();
      this.#transaction.commit();
    } catch (error) {
      this.#transaction.rollback();
      this.#notCommitted(error);
      return false;
    }
    this.#isLogFresh = false;
    this.#needsSync = false;
    this.#replay = [];
    for (const writer of this.writers) writer.written();
    this.#turnStartedAt = performance.now();
    if (this.#transaction.isSynced) this.#synced();
    else this.#syncSoon();
    return true;
  }

  #begin(sync: boolean): void {
    if (this.#transaction.isOpen) return;
    const full = this.#durability !== "process" && (sync || this.#durability === "strict");
    this.#transaction.begin(full, this.#isLogFresh || this.#log === undefined);
    for (const work of this.#replay) work();
  }

  #notCommitted(cause: unknown): void {
    const error = sqlError(cause, this.#file);
    const known = error instanceof DloError ? error : internal(this.#file, error);
    if (known.code !== "DISK_FULL") {
      this.#fail(known);
      return;
    }
    if (!this.#stalled) this.#setStalled(true);
    this.#refuse(known);
    this.#retryLater();
  }

  /** Newest first, because only what came last can be taken out again. */
  #refuse(why: DloError): void {
    const refused = new Set<After>();
    this.atomically(() => {
      for (const after of this.#after.toReversed()) if (after.takeBack?.() === true) refused.add(after);
    });
    const told = this.#after;
    this.#after = told.filter((after) => !refused.has(after));
    for (const after of told) if (refused.has(after)) tell(after, why);
  }

  /** Who waits to be told keeps the process going until it is known. */
  #retryLater(): void {
    this.#retryTimer ??= setTimeout(() => {
      this.#retryTimer = undefined;
      this.flush();
      if (!this.#stalled || this.#failure !== undefined) return;
      if (this.#hasRoom()) this.#setStalled(false);
      else this.#retryLater();
    }, RETRY_FULL_MS);
    if (this.#after.length > 0) this.#retryTimer.ref();
    else this.#retryTimer.unref();
  }

  /** What waited may have been small, or have made room: new things need some, too. */
  #hasRoom(): boolean {
    if (this.#hasWork()) return false;
    try {
      this.#db.exec(`INSERT OR REPLACE INTO meta (key, value) VALUES ('room', zeroblob(${PROBE_BYTES}))`);
      this.#db.exec("DELETE FROM meta WHERE key = 'room'");
      return true;
    } catch {
      return false;
    }
  }

  #setStalled(stalled: boolean): void {
    this.#stalled = stalled;
    if (stalled) this.#logger?.error("no room on the disk: nothing new is accepted", { file: this.#file });
    else this.#logger?.info("there is room on the disk again", { file: this.#file });
    this.onStalled(stalled);
    if (stalled) this.#retryLater();
  }

  #fail(error: DloError): void {
    this.#failure = error;
    this.#logger?.error("the data file cannot be written", { file: this.#file, code: error.code });
    this.onFailed(error);
    this.#tellAll(error);
  }

  #tellAll(error: DloError | null): void {
    const told = this.#after;
    this.#after = [];
    for (const after of told) tell(after, error);
    if (error === null) this.onCommitted();
  }

  #syncSoon(): void {
    if (this.#log === undefined || this.#unsynced) return;
    this.#unsynced = true;
    this.#syncTimer = setTimeout(() => {
      this.#syncTimer = undefined;
      this.#sync(this.#log as LogSync);
    }, SYNC_AFTER_MS).unref();
  }

  // A synced commit makes every commit before it durable.
  #synced(): void {
    this.#unsynced = false;
    clearTimeout(this.#syncTimer);
    this.#syncTimer = undefined;
  }

  #sync(log: LogSync): void {
    if (log.isRunning || this.#failure !== undefined) return;
    this.#unsynced = false;
    log.start((error) => {
      this.#isLogFresh = error === null;
      if (error !== null) this.#fail(unsyncable(this.#file, error));
      // What was committed meanwhile, where its time came before this one was through.
      else if (this.#unsynced && this.#syncTimer === undefined) this.#sync(log);
    });
  }

  /** Commits and syncs what is pending and stops. Answers why it could not, where it could not. */
  close(): DloError | null {
    this.flush();
    clearTimeout(this.#syncTimer);
    clearTimeout(this.#retryTimer);
    this.#syncLast();
    const why = this.#failure ?? (this.#stalled ? fullAtClose(this.#file) : null);
    this.#failure ??= new DloError("CLOSED", `the broker on ${this.#file} is closed`);
    this.#tellAll(why ?? this.#failure);
    return why;
  }

  #syncLast(): void {
    try {
      if (this.#unsynced || this.#log?.isRunning) this.#log?.now();
    } catch (error) {
      this.#failure ??= unsyncable(this.#file, error as Error);
    }
  }
}

/** What one of them throws is its own fault, and must not keep the others from being told. */
function tell(after: After, error: DloError | null): void {
  try {
    after.run(error);
  } catch (fault) {
    setImmediate(() => {
      throw fault;
    });
  }
}

function unsyncable(file: string, cause: Error): DloError {
  const text = `the disk under ${file} reports an error (${cause.message})`;
  return new DloError("DATA_UNWRITABLE", text, { cause });
}

function internal(file: string, cause: unknown): DloError {
  return new DloError("INTERNAL", `${file}: the commit failed (${String(cause)})`, { cause });
}

function fullAtClose(file: string): DloError {
  return new DloError("DISK_FULL", `no room to write ${file}: what was not confirmed is not kept`);
}
