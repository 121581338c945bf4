/**
 * How earlier starts of waiting messages ended: kept only for messages that were started before, written with the
 * transaction that sends them back, and freed in the one with which they go.
 */
import type { Attempt } from "../../core/index.ts";
import type { Committer, Writer } from "./committer.ts";
import { emptiedSet } from "./emptied.ts";
import type { Database, Row } from "./sqlite.ts";

// A message is given up long before, unless somebody allows more attempts than this.
const MAX_KEPT = 50;

export class Evidence implements Writer {
  readonly #attempts = new Map<number, Attempt[]>();
  #dirty = new Set<number>();
  readonly #put: ReturnType<Database["prepare"]>;
  readonly #drop: ReturnType<Database["prepare"]>;

  constructor(db: Database, committer: Committer) {
    this.#put = db.prepare("INSERT OR REPLACE INTO evidence VALUES (?, ?)");
    this.#drop = db.prepare("DELETE FROM evidence WHERE seq = ?");
    for (const row of db.prepare("SELECT * FROM evidence").all() as Row[])
      this.#attempts.set(row.seq as number, JSON.parse(row.attempts as string) as Attempt[]);
    committer.writers.add(this);
  }

  get isPending(): boolean {
    return this.#dirty.size > 0;
  }

  get size(): number {
    return this.#dirty.size;
  }

  of(row: number): readonly Attempt[] {
    return this.#attempts.get(row) ?? [];
  }

  /** How many of them were ended from outside: they are not counted against the message, but they are known. */
  interrupted(row: number): number {
    if (this.#attempts.size === 0) return 0;
    let count = 0;
    for (const attempt of this.of(row)) if (attempt.outcome === "interrupted") count++;
    return count;
  }

  /** One more start has ended. */
  add(row: number, attempt: Attempt): void {
    const attempts = this.#attempts.get(row) ?? [];
    attempts.push(attempt);
    if (attempts.length > MAX_KEPT) dropOldest(attempts);
    this.#attempts.set(row, attempts);
    this.#dirty.add(row);
  }

  /** Its last start ended with its process, and nobody was left to say so. */
  addCrash(row: number, starts: number, startedAt: number): void {
    if (this.of(row).length - this.interrupted(row) >= starts) return;
    this.add(row, { n: starts, startedAt, outcome: "crashed", cause: "its process died" });
  }

  /** Whether anything is known. Nearly always nothing is known of any message. */
  has(row: number): boolean {
    return this.#attempts.size > 0 && this.#attempts.has(row);
  }

  /** The message has left its queue, in whichever way. */
  forget(row: number): void {
    if (this.#attempts.size > 0 && this.#attempts.delete(row)) this.#dirty.add(row);
  }

  /** Forgets all but these: of what lived in memory alone when the last owner ended, nothing else would. */
  keepOnly(isThere: (row: number) => boolean): void {
    for (const row of this.#attempts.keys()) if (!isThere(row)) this.forget(row);
  }

  write(): void {
    for (const row of this.#dirty) {
      const attempts = this.#attempts.get(row);
      if (attempts === undefined) this.#drop.run(row);
      else this.#put.run(row, JSON.stringify(attempts));
    }
  }

  written(): void {
    this.#dirty = emptiedSet(this.#dirty);
  }
}

/** Those that were interrupted are kept: their number is what ends a message that is always interrupted. */
function dropOldest(attempts: Attempt[]): void {
  const oldest = attempts.findIndex((attempt) => attempt.outcome !== "interrupted");
  if (oldest >= 0) attempts.splice(oldest, 1);
}
