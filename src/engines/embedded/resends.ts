/** Which later lives of messages were sent already: a replay is sent once, however often it is tried. */
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
  has(queue: string, id: string, generation: number): boolean {
    const fresh = this.#fresh.get(`${queue}\0${id}`)?.[2];
    const known = fresh ?? (this.#get.get(queue, id) as { generation: number } | undefined)?.generation ?? 1;
    return known >= generation;
  }

  add(queue: string, id: string, generation: number): void {
    this.#fresh.set(`${queue}\0${id}`, [queue, id, generation]);
  }

  write(): void {
    for (const row of this.#fresh.values()) this.#put.run(...row);
  }

  written(): void {
    this.#fresh.clear();
  }
}
