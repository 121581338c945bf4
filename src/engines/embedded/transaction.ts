/**
 * The one transaction of a data file, and when SQLite takes its log into the file.
 *
 * closed -> open (begin) -> closed (commit: written, and synced where it began so; rollback: as if it had not begun)
 */
import type { Database, Statement } from "./sqlite.ts";

/**
 * Pages of the log at which a commit takes it into the file. That is quick (2 ms, not 16) where the log has just been
 * synced: a commit that is not synced itself leaves it to the next one after a sync, up to the second number.
 */
const CHECKPOINT_AT = 1_000;
const CHECKPOINT_AT_LAST = 4_000;

export class Transaction {
  /** It is open. */
  isOpen = false;
  /** The one that is open, or was last, is synced by its commit. */
  isSynced: boolean | undefined;
  readonly #db: Database;
  readonly #begin: Statement;
  readonly #commit: Statement;
  #checkpointAt = 0;

  constructor(db: Database) {
    this.#db = db;
    this.#begin = db.prepare("BEGIN IMMEDIATE");
    this.#commit = db.prepare("COMMIT");
  }

  /** `isLogFresh`: what was committed before is on the disk, or will not be synced apart. */
  begin(synced: boolean, isLogFresh: boolean): void {
    // Each setting costs as much as a statement.
    if (this.isSynced !== synced) {
      this.#db.exec(synced ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
      this.isSynced = synced;
    }
    const pages = synced || isLogFresh ? CHECKPOINT_AT : CHECKPOINT_AT_LAST;
    if (this.#checkpointAt !== pages) {
      this.#db.exec(`PRAGMA wal_autocheckpoint = ${pages}`);
      this.#checkpointAt = pages;
    }
    this.#begin.run();
    this.isOpen = true;
  }

  /** @throws the driver's error; the transaction is still open then, or SQLite has undone it. */
  commit(): void {
    this.#commit.run();
    this.isOpen = false;
  }

  rollback(): void {
    this.isOpen = false;
    try {
      this.#db.exec("ROLLBACK");
    } catch {
      // SQLite has already undone it: after a full disk there is nothing to roll back.
    }
  }

  /** Takes the log into the file now, which cannot be done inside a transaction: one that is open is undone. */
  makeRoom(): void {
    if (this.isOpen) this.rollback();
    this.#db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  }
}
