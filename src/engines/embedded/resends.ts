/**
 * Which later lives of messages were sent already: a replay is sent once, however often it is tried. The same id
 * with another body is another message.
 */
import { createHash } from "node:crypto";
import type { Committer, Writer } from "./committer.ts";
import { emptiedMap } from "./emptied.ts";
import type { Database } from "./sqlite.ts";

export class Resends implements Writer {
  readonly #get: ReturnType<Database["prepare"]>;
  readonly #put: ReturnType<Database["prepare"]>;
  /** Sent in this turn. */
  #fresh = new Map<string, readonly [queue: string, id: string, generation: number, at: number]>();
  readonly #now: () => number;
  readonly #committer: Committer;
  readonly #old: ReturnType<Database["prepare"]>;
  readonly #drop: ReturnType<Database["prepare"]>;

  constructor(db: Database, committer: Committer, now: () => number) {
    this.#now = now;
    this.#committer = committer;
    this.#get = db.prepare("SELECT generation FROM resends WHERE queue = ? AND id = ?");
    this.#put = db.prepare("INSERT OR REPLACE INTO resends VALUES (?, ?, ?, ?)");
    this.#old = db.prepare("SELECT 1 FROM resends WHERE sent_at < ? LIMIT 1");
    this.#drop = db.prepare(
      "DELETE FROM resends WHERE (queue, id) IN (SELECT queue, id FROM resends WHERE sent_at < ? LIMIT ?)",
    );
    committer.writers.add(this);
  }

  get isPending(): boolean {
    return this.#fresh.size > 0;
  }

  get size(): number {
    return this.#fresh.size;
  }

  /** Was this life of the message (or a later one) sent to this queue before? */
  has(queue: string, id: string, generation: number, body: Uint8Array): boolean {
    const key = keyOf(id, body);
    const fresh = this.#fresh.get(`${queue}\0${key}`)?.[2];
    const known = fresh ?? (this.#get.get(queue, key) as { generation: number } | undefined)?.generation ?? 1;
    return known >= generation;
  }

  add(queue: string, id: string, generation: number, body: Uint8Array): void {
    const key = keyOf(id, body);
    this.#fresh.set(`${queue}\0${key}`, [queue, key, generation, Math.floor(this.#now())]);
  }

  /** Forgets what was sent before this time, up to so many. True: there may be more. */
  forget(before: number, most: number): boolean {
    if (this.#old.get(before) === undefined) return false;
    this.#committer.run(() => this.#drop.run(before, most));
    return true;
  }

  write(): void {
    for (const row of this.#fresh.values()) this.#put.run(...row);
  }

  written(): void {
    this.#fresh = emptiedMap(this.#fresh);
  }
}

function keyOf(id: string, body: Uint8Array): string {
  return `${createHash("sha256").update(body).digest("base64url")} ${id}`;
}
