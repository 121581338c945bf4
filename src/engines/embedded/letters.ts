/**
 * Dead letters in the data file: written in the same transaction as the message they come from, counted by cause,
 * looked at without changing anything.
 *
 * dead -> replaying -> replayed ; dead -> replayed (in one transaction) ; dead -> discarded -> dead (restored).
 * A row stays when its letter goes: it is the message's history and, by its generation, the fence that keeps a
 * late copy of an earlier life from becoming a letter again. Both end some time after the replay (upkeep.ts).
 */
import type { DeadLetter } from "../../core/index.ts";
import type {
  Letter,
  LetterFilter,
  LetterGroup,
  LetterState,
  LetterSummary,
  Logger,
} from "../../ports/index.ts";
import type { Committer, Writer } from "./committer.ts";
import { emptiedSet } from "./emptied.ts";
import { type Counter, LetterGroups } from "./letter-groups.ts";
import { letterId, letterNumber } from "./letter-id.ts";
import {
  bodyOf,
  digestOf,
  isFence,
  isFrom,
  type LetterRow,
  moreOf,
  SUMMARY_COLUMNS,
  sameBytes,
  toEntry,
  toSummary,
} from "./letter-rows.ts";
import { LIVE, OVER, statements } from "./letter-sql.ts";
import { type Database, type SqlValue, type Statement, textsAsJson } from "./sqlite.ts";

/** Names the cause of a letter: equal causes share a fingerprint, `title` is for people. */
export type Fingerprinter = (entry: DeadLetter) => { fingerprint: string; title: string };

/** Where a letter's body lies already, and the message's exact head. */
export interface Taken {
  /** Makes the letter the owner of the row its body lies in and answers it; null: the body is copied. */
  readonly takeBody: (() => number) | null;
  /** The message's exact bytes, where the entry's body is that message's. */
  readonly bytes?: { readonly bytes: Uint8Array; readonly contentType: string } | null;
  readonly head: Uint8Array | null;
}

/** Which of several messages under one id; what is absent matches all. */
export interface Which {
  readonly bytes?: Uint8Array | undefined;
  readonly queue?: string | undefined;
}

export class Letters implements Writer {
  readonly groups: LetterGroups;
  readonly salt: number;
  readonly #db: Database;
  readonly #committer: Committer;
  readonly #fingerprint: Fingerprinter;
  readonly #now: () => number;
  readonly #sql: Record<string, Statement>;
  #dirty = new Set<Counter>();
  #lastN: number;
  #lastKeptAt: number;

  constructor(
    db: Database,
    committer: Committer,
    options: { fingerprint: Fingerprinter; now: () => number; salt: number; logger?: Logger | undefined },
  ) {
    this.#db = db;
    this.#committer = committer;
    this.#fingerprint = options.fingerprint;
    this.#now = options.now;
    this.salt = options.salt;
    this.groups = new LetterGroups(db);
    this.#sql = statements(db);
    const last = db.prepare("SELECT n, kept_at FROM letters ORDER BY n DESC LIMIT 1").get() as
      | { n: number; kept_at: number }
      | undefined;
    this.#lastN = last?.n ?? 0;
    this.#lastKeptAt = last?.kept_at ?? 0;
    committer.writers.add(this);
    // Whoever was replaying these died with the last owner; what they sent is known by its generation.
    for (const row of this.#rows("state = 'replaying'", [])) this.move(row, "dead");
  }

  get isPending(): boolean {
    return this.#dirty.size > 0;
  }

  get size(): number {
    return 0;
  }

  write(): void {
    for (const c of this.#dirty) {
      const key = [c.store, c.queue, c.fingerprint, c.reason, c.state];
      if (c.count <= 0) this.#sql.dropGroup?.run(...key);
      else this.#sql.putGroup?.run(...key, c.count, c.firstSeenAt, c.lastSeenAt, c.sample, c.title);
    }
  }

  written(): void {
    this.#dirty = emptiedSet(this.#dirty);
  }

  /**
   * Keeps an entry unless one of its generation (or a later one) is there; an earlier one is replaced. The same
   * id and generation with another body is a further version and kept too. Answers the row, or null.
   */
  put(store: string, entry: DeadLetter, taken?: Taken): number | null {
    return this.#committer.atomically(() => this.#put(store, entry, taken));
  }

  #put(store: string, entry: DeadLetter, taken: Taken | undefined): number | null {
    const generation = entry.generation ?? 1;
    const { bytes, contentType } = taken?.bytes ?? bodyOf(entry);
    const earlier = this.#rows("id = ? AND store = ?", [entry.id, store]);
    const queue = entry.sourceQueue ?? "";
    for (const row of earlier) {
      if (row.queue !== queue || row.generation < generation || !isFence(row)) continue;
      if (this.#isSame(row, bytes, contentType)) return null;
    }
    const cause = this.#fingerprint(entry);
    const bodyRow = taken?.takeBody?.() ?? null;
    const n = this.#lastN + 1;
    const keptAt = Math.max(this.#lastKeptAt, Math.floor(this.#now()));
    const values: SqlValue[] = [n, keptAt, store, queue, entry.id, generation, entry.reason, entry.error];
    values.push(entry.attempts, entry.firstAttemptAt, entry.failedAt, "dead", cause.fingerprint);
    values.push(Math.max(0, generation - 1), 0, bytes.length, contentType, moreOf(entry));
    values.push(taken?.head ?? null, bodyRow === null ? bytes : null, bodyRow);
    this.#committer.run(() => this.#sql.insert?.run(...values));
    this.#lastN = n;
    this.#lastKeptAt = keptAt;
    for (const row of earlier) {
      if (row.state !== "dead" || row.queue !== queue || row.generation >= generation) continue;
      if (this.#isSame(row, bytes, contentType)) this.move(row, "replayed");
    }
    const key = { store, queue, fingerprint: cause.fingerprint, reason: entry.reason };
    this.#dirty.add(this.groups.add({ ...key, state: "dead" }, cause.title, n, entry.failedAt));
    return n;
  }

  /** An entry or a fence of this generation or a later one. */
  has(store: string, id: string, generation: number, which: Which = {}): boolean {
    if (this.#lastN === 0 || this.#sql.has?.get(id, generation, store) === undefined) return false;
    if (which.bytes === undefined && which.queue === undefined) return true;
    return this.#rows("id = ? AND store = ?", [id, store]).some(
      (row) => row.generation >= generation && isFence(row) && this.#is(row, which),
    );
  }

  #is(row: LetterRow, { bytes, queue }: Which): boolean {
    return isFrom(row, queue) && (bytes === undefined || this.#isSame(row, bytes, undefined));
  }

  /** Is this row of a message with that body? `kind`: its content type, where the bytes are as they were sent. */
  #isSame(row: LetterRow, bytes: Uint8Array, kind: string | undefined): boolean {
    // Of a replayed letter's body the digest is left.
    if (row.state === "replayed") return row.body === null || sameBytes(row.body, digestOf(bytes, kind));
    const own = this.bytesOf(row);
    if (own === null) return false;
    return sameBytes(own, bytes) || sameBytes(digestOf(own, row.kind), digestOf(bytes, kind));
  }

  /** Changes where a letter stands, in this turn's transaction. A replayed letter's body goes with the message. */
  move(row: LetterRow & { fenced: number }, state: LetterState, fenced = true): void {
    this.#committer.atomically(() => this.#move(row, state, fenced));
  }

  #move(row: LetterRow & { fenced: number }, state: LetterState, fenced: boolean): void {
    const fence = fenced ? 1 : 0;
    const at = Math.floor(this.#now());
    const bytes = state === "replayed" ? this.bytesOf(row) : null;
    const digest = bytes === null ? null : digestOf(bytes, row.kind);
    this.#committer.run(() => {
      this.#sql.move?.run(state, state === "dead" || state === "replaying" ? row.fenced : fence, row.n);
      if (state !== "replayed") return;
      this.#sql.end?.run(row.n, at);
      if (row.body_row !== null) this.#sql.dropBody?.run(row.body_row);
      this.#sql.forgetBody?.run(digest, row.n);
    });
    const { store, queue, fingerprint, reason, n } = row;
    const key = { store, queue, fingerprint, reason };
    const title = this.groups.titleOf({ ...key, state: row.state });
    const from = this.groups.remove({ ...key, state: row.state });
    if (from !== undefined) this.#dirty.add(from);
    this.#dirty.add(this.groups.add({ ...key, state }, title, n, row.failed_at));
  }

  /** Ends an entry; one of exactly a generation, where that is given, leaves a fence. */
  remove(store: string, id: string, generation?: number, which: Which = {}): void {
    const exact = generation === undefined ? "" : " AND generation = ?";
    const values = generation === undefined ? [id, store] : [id, store, generation];
    for (const row of this.#rows(`id = ? AND store = ? AND ${LIVE}${exact}`, values))
      if (this.#is(row, which)) this.move(row, "replayed", generation !== undefined);
    if (generation === undefined) this.#committer.run(() => this.#sql.unfence?.run(id, store));
  }

  /** Live entries of a store in order of death, with bodies. */
  list(store: string): DeadLetter[] {
    return this.#rows(`store = ? AND ${LIVE}`, [store]).map((row) => this.entryOf(row));
  }

  /** The latest live row of a message (of this queue, where one is given). */
  latest(
    store: string,
    id: string,
    generation?: number,
    queue?: string,
  ): (LetterRow & { fenced: number }) | undefined {
    const exact = generation === undefined ? "" : " AND generation = ?";
    const values = generation === undefined ? [id, store] : [id, store, generation];
    const rows = this.#rows(`id = ? AND store = ? AND ${LIVE}${exact}`, values).filter((row) =>
      isFrom(row, queue),
    );
    // Of several messages under one id, the one that died first and is not on its way back.
    return generation === undefined
      ? rows.at(-1)
      : (rows.find(({ state }) => state === "dead") ?? rows.at(-1));
  }

  entryOf(row: LetterRow): DeadLetter {
    return toEntry(row, this.bytesOf(row), row.generation > 1 ? this.#livesBefore(row) : []);
  }

  /** Of the message in its own queue; a life in another one counts where this queue had none (it was sent here). */
  #livesBefore(row: LetterRow): LetterRow[] {
    const before = this.#rows("id = ? AND store = ? AND n < ?", [row.id, row.store, row.n]);
    const own = new Set(
      before.filter(({ queue }) => queue === row.queue).map(({ generation }) => generation),
    );
    return before.filter(({ queue, generation }) => queue === row.queue || !own.has(generation));
  }

  bytesOf(row: LetterRow): Uint8Array | null {
    if (row.state === "replayed") return null;
    if (row.body_row === null) return row.body;
    const found = this.#sql.bodyRow?.get(row.body_row) as { body: Uint8Array } | undefined;
    return found?.body ?? null;
  }

  count(filter: LetterFilter = {}): number {
    if (filter.ids === undefined) return this.groups.count(filter);
    const { where, values } = this.#where(filter);
    const row = this.#db.prepare(`SELECT count(*) AS n FROM letters WHERE ${where}`).get(...values);
    return (row as { n: number }).n;
  }

  page(filter: LetterFilter, limit: number, after?: string): LetterSummary[] {
    const { where, values } = this.#where(filter);
    const n = after === undefined ? 0 : (letterNumber(after)?.n ?? 0);
    const rows = this.#db
      .prepare(`SELECT ${SUMMARY_COLUMNS} FROM letters WHERE n > ? AND ${where} ORDER BY n LIMIT ?`)
      .all(n, ...values, limit) as LetterRow[];
    return rows.map((row) => toSummary(row, this.salt));
  }

  get(id: string): Letter | null {
    const row = this.find(id);
    if (row === undefined) return null;
    const earlier = this.#livesBefore(row);
    const entry = this.entryOf(row);
    const raw = entry.raw ?? this.bytesOf(row);
    return {
      ...toSummary(row, this.salt),
      // The office shows and exports the body as it was sent, not as JSON.parse would have it.
      entry: raw === null ? entry : { ...entry, raw },
      earlier: earlier.map((life) => toSummary(life, this.salt)),
    };
  }

  /** By its number. */
  numbered(n: number): (LetterRow & { fenced: number }) | undefined {
    return this.#rows("n = ?", [n])[0];
  }

  /** By letter id, else the latest life of a message id. */
  find(id: string): (LetterRow & { fenced: number }) | undefined {
    const number = letterNumber(id);
    if (number !== null) {
      const row = this.numbered(number.n);
      if (row !== undefined && letterId(row.n, row.kept_at, this.salt) === id) return row;
    }
    return this.#rows("id = ?", [id]).at(-1);
  }

  groupsOf(filter: LetterFilter = {}): LetterGroup[] {
    const groups = new Map<string, Counter[]>();
    for (const counter of this.groups.matching(filter)) {
      const known = groups.get(counter.fingerprint);
      if (known === undefined) groups.set(counter.fingerprint, [counter]);
      else known.push(counter);
    }
    const found = [...groups].map(([fingerprint, counters]) => this.#group(fingerprint, counters));
    return found.sort((a, b) => b.count - a.count || b.lastSeenAt - a.lastSeenAt);
  }

  #group(fingerprint: string, counters: readonly Counter[]): LetterGroup {
    const newest = counters.reduce((a, b) => (b.sample > a.sample ? b : a));
    return {
      fingerprint,
      title: newest.title,
      count: counters.reduce((sum, counter) => sum + counter.count, 0),
      firstSeenAt: Math.min(...counters.map((counter) => counter.firstSeenAt)),
      lastSeenAt: Math.max(...counters.map((counter) => counter.lastSeenAt)),
      queues: [...new Set(counters.map((counter) => counter.queue))],
      reasons: [...new Set(counters.map((counter) => counter.reason))],
      sample: this.#sampleOf(newest),
    };
  }

  // The newest letter counted may have moved on since; then any other of the group does.
  #sampleOf(counter: Counter): string {
    const { fingerprint, state, store } = counter;
    const known = this.#rows("n = ? AND state = ?", [counter.sample, state])[0];
    const row =
      known ??
      (this.#sql.anyOf?.get(fingerprint, state, store) as { n: number; kept_at: number } | undefined);
    return row === undefined ? "" : letterId(row.n, row.kept_at, this.salt);
  }

  /** Removes letters that died before this time, with their bodies: the user's own retention. Answers how many. */
  expire(before: number): number {
    const rows = this.#rows("failed_at < ? AND state IN ('dead', 'discarded')", [before]);
    for (const row of rows) this.#committer.atomically(() => this.#drop(row));
    return rows.length;
  }

  /** Removes what is left of lives that were over before this time, up to so many. Answers how many. */
  forget(before: number, most: number): number {
    const rows = this.#rows(OVER, [before, most]);
    for (const row of rows) this.#committer.atomically(() => this.#drop(row));
    return rows.length;
  }

  #drop(row: LetterRow): void {
    this.#committer.run(() => {
      if (row.body_row !== null) this.#sql.dropBody?.run(row.body_row);
      this.#sql.drop?.run(row.n);
      this.#sql.dropEnd?.run(row.n);
    });
    const { store, queue, fingerprint, reason, state } = row;
    const counter = this.groups.remove({ store, queue, fingerprint, reason, state });
    if (counter !== undefined) this.#dirty.add(counter);
  }

  #where(filter: LetterFilter): { where: string; values: SqlValue[] } {
    const terms: string[] = [];
    const values: SqlValue[] = [];
    const add = (column: string, value: string | undefined): void => {
      if (value === undefined) return;
      terms.push(`${column} = ?`);
      values.push(value);
    };
    add("store", filter.deadLetters);
    add("queue", filter.sourceQueue);
    add("reason", filter.reason);
    add("fingerprint", filter.fingerprint);
    add("state", filter.state);
    if (filter.ids !== undefined) {
      const numbers = filter.ids.map((id) => letterNumber(id)?.n).filter((n) => n !== undefined);
      terms.push("(id IN (SELECT value FROM json_each(?)) OR n IN (SELECT value FROM json_each(?)))");
      values.push(textsAsJson(filter.ids), JSON.stringify(numbers));
    }
    return { where: terms.length === 0 ? "1" : terms.join(" AND "), values };
  }

  #rows(where: string, values: SqlValue[]): (LetterRow & { fenced: number })[] {
    const statement = (this.#sql[where] ??= this.#db.prepare(
      `SELECT * FROM letters WHERE ${where} ORDER BY n`,
    ));
    return statement.all(...values) as (LetterRow & { fenced: number })[];
  }
}
