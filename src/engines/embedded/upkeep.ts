/**
 * What nobody asks for but the file needs: what is left of lives that are over goes after a time, and room that is
 * free is given back to the disk. A little at each look, so that nobody waits for it.
 */
import type { Committer } from "./committer.ts";
import type { Letters } from "./letters.ts";
import type { Resends } from "./resends.ts";
import { PAGE_SIZE } from "./schema.ts";
import type { Database } from "./sqlite.ts";

/** So long after a replay its letter's history is kept, and a late copy of that life or a second sending is known. */
export const OVER_MS: number = 30 * 24 * 3_600_000;
/** Lives forgotten, and pages given back, at one look. */
const LIVES = 1_000;
const PAGES = 100; // half a millisecond
/** Room that stays: up to so much, or as much as is in use, whichever is more, saves asking the disk for it again. */
const SPARE_BYTES = 8 * 1024 * 1024;
const LOOK_MS = 60_000;
const BUSY_MS = 100;

export class Upkeep {
  readonly #db: Database;
  readonly #committer: Committer;
  readonly #lives: readonly { forget(before: number, most: number): unknown }[];
  readonly #now: () => number;
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Database, committer: Committer, lives: readonly [Letters, Resends], now: () => number) {
    this.#db = db;
    this.#committer = committer;
    this.#lives = lives;
    this.#now = now;
  }

  /** Looks now, and then again and again. */
  start(): void {
    this.#timer = setTimeout(() => this.start(), this.look() ? BUSY_MS : LOOK_MS).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** True when there is more to do. On a full disk nothing is done. */
  look(): boolean {
    if (this.#committer.isStalled) return false;
    try {
      this.#committer.check();
      let more = this.#giveBack();
      for (const lives of this.#lives) if (lives.forget(this.#now() - OVER_MS, LIVES)) more = true;
      return more;
    } catch {
      // The commit that fails tells those whom it concerns; nobody asked for this.
      return false;
    }
  }

  #giveBack(): boolean {
    const free = this.#count("freelist_count");
    const spare = Math.max(SPARE_BYTES / PAGE_SIZE, this.#count("page_count") - free);
    if (free <= spare) return false;
    const pages = Math.min(PAGES, free - spare);
    this.#committer.run(() => this.#db.exec(`PRAGMA incremental_vacuum(${pages})`));
    return this.#count("freelist_count") < free;
  }

  #count(pragma: "freelist_count" | "page_count"): number {
    return (this.#db.prepare(`PRAGMA ${pragma}`).get() as Record<string, number>)[pragma] as number;
  }
}
