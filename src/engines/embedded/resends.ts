/**
 * Which later lives of messages were sent already: a replay is sent once, however often it is tried. The same id
 * with another body is another message.
 */
import { createHash } from "node:crypto";
import type { Committer, Writer } from "./committer.ts";
import type { Database } from "./sqlite.ts";

export class Resends implements Writer {
  readonly #get: ReturnType<Database["prepare"]>;
  readonly #put: ReturnType<Database["prepare"]>;
  /** Sent in this turn. */
  readonly #fresh = new Map<string, readonly [queue: string, id: string, generation: number]>();

  constructor(db: Database, committer: Committer) {
    this.#get = db.prepare("SELECT generation FROM resends WHERE queue = ? AND id = ?");
    this.#put = db.prepare("INSERT OR REPLACE INTO resends VALUES (?, ?, ?)");
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
    this.#fresh.set(`${queue}\0${key}`, [queue, key, generation]);
  }

  write(): void {
    for (const row of this.#fresh.values()) this.#put.run(...row);
  }

  written(): void {
    this.#fresh.clear();
  }
}

function keyOf(id: string, body: Uint8Array): string {
  return `${createHash("sha256").update(body).digest("base64url")} ${id}`;
}
