/**
 * The journal of one virtual host: takes the machine's journal effects as they come, keeps their net result, and
 * writes it when the file's transaction is about to commit. A message put and settled within one transaction
 * never touches the file. What was taken stays taken until {@link Journal.written}, so a commit that fails (a full
 * disk) is tried again later with nothing missing.
 *
 * A body is written once, in the row of the message it came with. A death makes a new message around the same
 * body: its record names the old row, which stays until its last owner is gone.
 */
import type { Content, JournalEffect, MessageState, QueueRecord, Restored } from "../../broker/index.ts";
import { Block, PER_BLOCK } from "./blocks.ts";
import { ContentCache, encodeHead } from "./content.ts";
import { emptiedMap, emptiedSet } from "./emptied.ts";
import type { Evidence } from "./evidence.ts";
import { type BlockRow, type Displaced, ROWS, statements } from "./journal-sql.ts";
import { readTopology, writeTopology } from "./journal-topology.ts";
import { MessageReader } from "./message-reader.ts";
import { VHOST_SPAN } from "./schema.ts";
import type { Database, SqlValue } from "./sqlite.ts";

interface Put {
  readonly queueId: number;
  readonly content: Content;
  /** Row of the body; 0: this one. */
  readonly bodyRow: number;
}

// Clean blocks kept in memory: 8 MB, over a hundred thousand messages.
const BLOCK_CACHE = 2_000;
// Messages of a queue that are kept in memory as they come; those behind so many are read when their turn comes.
const NEAR = 2_000;
// Seqs are promised to the file in spans, so that not every commit has to write the counter.
const SEQ_SPAN = 100_000;

export class Journal {
  readonly contents: ContentCache;
  /** What is known of earlier starts goes with its message. */
  evidence: Evidence | undefined;
  readonly #vhost: number;
  readonly #base: number;
  readonly #blocks = new Map<number, Block>();
  #dirty = new Set<Block>();
  #puts = new Map<number, Put>();
  /** Rows of `messages` nobody owns any more. */
  #gone = new Set<number>();
  /** Owners of a body row, where there are more than one. */
  readonly #owners = new Map<number, number>();
  #topology: JournalEffect[] = [];
  #handed = new Map<number, number>();
  /** Messages in the file (or on their way there) by queue. */
  readonly #counts = new Map<number, number>();
  #reserved = 0;
  #highest = 0;
  readonly #reader: MessageReader;
  readonly #sql: ReturnType<typeof statements>;
  readonly #db: Database;

  constructor(db: Database, vhost: number, cacheBytes: number) {
    this.#db = db;
    this.#vhost = vhost;
    this.#base = vhost * VHOST_SPAN;
    this.#sql = statements(db);
    this.#reader = new MessageReader(db);
    this.contents = new ContentCache(cacheBytes, (seq, found) => this.#readContent(seq, found));
    this.contents.onDelete = (seq) => {
      // One that is in the file is forgotten with its row.
      if (this.evidence?.has(this.#base + seq) === true && !this.isLive(seq)) this.#forget(seq);
    };
  }

  /** True when something waits to be written. */
  get isPending(): boolean {
    return this.#dirty.size > 0 || this.#gone.size > 0 || this.#topology.length > 0 || this.#handed.size > 0;
  }

  /** Messages and rows touched since the last commit. */
  get size(): number {
    return this.#puts.size + this.#gone.size + this.#topology.length;
  }

  take(effect: JournalEffect): void {
    switch (effect.type) {
      case "message-put":
        this.#put(effect.queueId, effect.state, effect.content, effect.from?.seq);
        return;
      case "message-state":
        this.#setState(effect.queueId, effect.state);
        return;
      case "message-gone":
        this.#remove(effect.seq);
        return;
      case "queue-purged":
        for (const seq of effect.seqs) this.#remove(seq);
        return;
      case "queue-handed":
        if (
          !this.#holdNew(effect.queueId, effect.upTo) &&
          effect.upTo > (this.#handed.get(effect.queueId) ?? 0)
        )
          this.#handed.set(effect.queueId, effect.upTo);
        return;
      case "queue-gone":
        this.#removeQueue(effect.queueId);
        this.#topology.push(effect);
        return;
      default:
        this.#topology.push(effect);
    }
  }

  #count(queueId: number, change: 1 | -1): void {
    this.#counts.set(queueId, (this.#counts.get(queueId) ?? 0) + change);
  }

  /** The machine does not list what goes with a queue; deleting a queue that holds messages is rare. */
  #removeQueue(queueId: number): void {
    if ((this.#counts.get(queueId) ?? 0) > 0) {
      const ids = new Set([...this.#storedBlocks()].map((block) => block.id));
      for (const block of this.#dirty) ids.add(block.id);
      for (const id of ids) {
        const block = this.#block(id * PER_BLOCK);
        for (let slot = 0; slot < PER_BLOCK; slot++)
          if (block.isLive(slot) && block.queueOf(slot) === queueId) this.#remove(id * PER_BLOCK + slot);
      }
    }
    this.#counts.delete(queueId);
    this.#handed.delete(queueId);
  }

  #put(queueId: number, state: MessageState, content: Content, from: number | undefined): void {
    const { seq } = state;
    this.#highest = Math.max(this.#highest, state.position, seq);
    const block = this.#block(seq);
    block.write(seq % PER_BLOCK, queueId, state);
    this.#count(queueId, 1);
    let bodyRow = 0;
    // A body that is not in the file yet is written with its new message; one of a few bytes is copied.
    if (from !== undefined && !this.#puts.has(from) && content.body.length > 0) {
      bodyRow = this.bodyRow(from);
      this.#addOwner(bodyRow);
    }
    block.setBody(seq % PER_BLOCK, bodyRow);
    this.#dirty.add(block);
    this.#puts.set(seq, { queueId, content, bodyRow });
  }

  /** A message put and handed out in one transaction says so in its own record, which is written anyway. */
  #holdNew(queueId: number, position: number): boolean {
    if (!this.#puts.has(position)) return false;
    const block = this.#block(position);
    const slot = position % PER_BLOCK;
    if (!block.isLive(slot) || block.queueOf(slot) !== queueId || block.positionOf(slot) !== position)
      return false;
    block.hold(slot);
    return true;
  }

  #setState(queueId: number, state: MessageState): void {
    this.#highest = Math.max(this.#highest, state.position);
    const block = this.#block(state.seq);
    if (!block.isLive(state.seq % PER_BLOCK)) return;
    block.write(state.seq % PER_BLOCK, queueId, state);
    this.#dirty.add(block);
  }

  #remove(seq: number): void {
    const block = this.#block(seq);
    const slot = seq % PER_BLOCK;
    if (!block.isLive(slot)) return;
    this.#count(block.queueOf(slot), -1);
    block.kill(slot);
    this.#dirty.add(block);
    const row = block.bodyOf(slot);
    if (row !== 0) this.#gone.add(seq);
    this.#dropOwner(row === 0 ? seq : row);
    this.#forget(seq);
  }

  #forget(seq: number): void {
    this.evidence?.forget(this.#base + seq);
  }

  /** Whether this message is in the file, or on its way there. */
  isLive(seq: number): boolean {
    return this.#block(seq).isLive(seq % PER_BLOCK);
  }

  /** Put, and not in the file yet. */
  isUnwritten(seq: number): boolean {
    return this.#puts.has(seq);
  }

  /** The message's own row in the file. */
  rowOf(seq: number): number {
    return this.#base + seq;
  }

  /** The row a message's body lies in. */
  bodyRow(seq: number): number {
    return this.#block(seq).bodyOf(seq % PER_BLOCK) || seq;
  }

  /** Can a letter take the body over as it lies? Only when it is in the file and has one owner. */
  isSoleOwner(seq: number): boolean {
    const block = this.#block(seq);
    if (!block.isLive(seq % PER_BLOCK) || this.#puts.has(seq)) return false;
    const row = this.bodyRow(seq);
    return !this.#owners.has(row) && !this.#puts.has(row);
  }

  /** A letter owns this row too from now on. Answers the row's number in the file. */
  shareBody(seq: number): number {
    const row = this.bodyRow(seq);
    this.#addOwner(row);
    return this.#base + row;
  }

  /** The letter was not written. */
  unshareBody(seq: number): void {
    this.#dropOwner(this.bodyRow(seq));
  }

  #addOwner(row: number): void {
    if (!this.#gone.delete(row)) this.#owners.set(row, (this.#owners.get(row) ?? 1) + 1);
  }

  #dropOwner(row: number): void {
    const owners = this.#owners.get(row) ?? 1;
    if (owners === 1) this.#gone.add(row);
    else if (owners === 2) this.#owners.delete(row);
    else this.#owners.set(row, owners - 1);
  }

  #block(seq: number): Block {
    const id = Math.floor(seq / PER_BLOCK);
    let block = this.#blocks.get(id);
    if (block !== undefined) return block;
    const row = this.#sql.readBlock.get(this.#blockKey(id)) as { records: Uint8Array } | undefined;
    block = new Block(id, row?.records);
    this.#blocks.set(id, block);
    return block;
  }

  #blockKey(id: number): number {
    return Math.floor(this.#base / PER_BLOCK) + this.#vhost + id;
  }

  /** Inside the open transaction: writes everything taken. May be called again after a failure. */
  write(): void {
    const sql = this.#sql;
    // Numbers name messages (`queue#17`), in letters too: those of transient messages are not given twice either.
    this.#highest = Math.max(this.#highest, this.contents.highest);
    writeTopology(this.#db, this.#vhost, this.#topology);
    for (const [queueId, upTo] of this.#handed) sql.handed.run(upTo, this.#vhost, queueId);
    this.#writePuts();
    this.#writeGone();
    for (const block of this.#dirty) {
      if (block.live > 0) sql.writeBlock.run(this.#blockKey(block.id), block.bytes);
      else if (block.stored) sql.deleteBlock.run(this.#blockKey(block.id));
    }
    if (this.#highest >= this.#reserved) sql.setMeta.run(`seq:${this.#vhost}`, this.#highest + SEQ_SPAN);
  }

  #writePuts(): void {
    let rows: SqlValue[] = [];
    for (const [seq, put] of this.#puts) {
      if (this.#gone.has(seq)) continue;
      rows.push(this.#base + seq, encodeHead(put.content), put.bodyRow === 0 ? put.content.body : null);
      if (rows.length < 3 * ROWS) continue;
      this.#sql.insertRows.run(...rows);
      rows = [];
    }
    for (let i = 0; i < rows.length; i += 3)
      this.#sql.insert.run(rows[i] as number, rows[i + 1] as Uint8Array, rows[i + 2] as Uint8Array | null);
  }

  /** Runs of neighbours go in one statement: acks mostly come in order. */
  #writeGone(): void {
    const rows = [...this.#gone].filter((row) => !this.#puts.has(row)).sort((a, b) => a - b);
    let first = 0;
    for (let i = 1; i <= rows.length; i++) {
      if (i < rows.length && rows[i] === (rows[i - 1] as number) + 1) continue;
      const low = this.#base + (rows[first] as number);
      this.#sql.deleteRange.run(low, this.#base + (rows[i - 1] as number));
      first = i;
    }
  }

  /** The transaction is committed: what was taken is in the file. */
  written(): void {
    for (const [seq, { queueId }] of this.#puts)
      this.contents.written(seq, (this.#counts.get(queueId) ?? 0) <= NEAR);
    this.#puts = emptiedMap(this.#puts);
    this.#gone = emptiedSet(this.#gone);
    if (this.#topology.length > 0) this.#topology = [];
    this.#handed = emptiedMap(this.#handed);
    if (this.#highest >= this.#reserved) this.#reserved = this.#highest + SEQ_SPAN;
    for (const block of this.#dirty) {
      block.dirty = false;
      block.stored = block.live > 0;
    }
    this.#dirty = emptiedSet(this.#dirty);
    if (this.#blocks.size > BLOCK_CACHE * 1.5) this.#dropBlocks();
  }

  #dropBlocks(): void {
    for (const id of this.#blocks.keys()) {
      if (this.#blocks.size <= BLOCK_CACHE) return;
      this.#blocks.delete(id);
    }
  }

  #readContent(seq: number, found: (seq: number, content: Content) => void): Content {
    const put = this.#puts.get(seq);
    if (put !== undefined) return put.content;
    const body = this.#base + this.bodyRow(seq);
    const content = this.#reader.read(this.#base + seq, body, (row, other) => found(row - this.#base, other));
    if (content === undefined) throw new Error(`message ${seq} is not in the file`);
    return content;
  }

  /** Inside the open transaction: the virtual host is deleted. */
  erase(): void {
    const vhost = this.#vhost;
    for (const table of ["queues", "exchanges", "bindings", "policies", "lost"])
      this.#db.prepare(`DELETE FROM ${table} WHERE vhost = ?`).run(vhost);
    this.#db.prepare("DELETE FROM vhosts WHERE id = ?").run(vhost);
    this.#sql.setMeta.run(`seq:${vhost}`, Math.max(this.#reserved, this.#highest + SEQ_SPAN));
    const last = this.#blockKey(Math.floor(VHOST_SPAN / PER_BLOCK));
    this.#db.prepare("DELETE FROM blocks WHERE id BETWEEN ? AND ?").run(this.#blockKey(0), last);
    // Bodies that letters own stay.
    this.#db
      .prepare(
        "DELETE FROM messages WHERE seq BETWEEN ? AND ? AND seq NOT IN (SELECT body_row FROM letters WHERE body_row IS NOT NULL)",
      )
      .run(this.#base, this.#base + VHOST_SPAN - 1);
  }

  /** Everything a machine needs to go on. Messages are read as they are asked for. */
  restore(): Restored {
    const topology = readTopology(this.#db, this.#vhost);
    const stored = this.#sql.getMeta.get(`seq:${this.#vhost}`) as { value: number } | undefined;
    this.#reserved = stored?.value ?? 0;
    this.#highest = Math.max(this.#highest, this.#reserved - 1);
    return {
      ...topology,
      messages: this.#messages(topology.queues),
      nextSeq: Math.max(1, this.#reserved),
    };
  }

  *#messages(queues: readonly QueueRecord[]): IterableIterator<{ queueId: number; state: MessageState }> {
    const known = new Set(queues.map((queue) => queue.id));
    const { displaced, shared } = this.#survey();
    for (const [row, count] of shared) if (count > 1) this.#owners.set(row, count);
    let next = 0;
    for (const block of this.#storedBlocks()) {
      for (let slot = 0; slot < PER_BLOCK; slot++) {
        if (!block.isLive(slot) || !known.has(block.queueOf(slot))) continue;
        const seq = block.id * PER_BLOCK + slot;
        if (block.positionOf(slot) !== seq) continue;
        while (next < displaced.length && (displaced[next] as Displaced).state.position < seq)
          yield displaced[next++] as Displaced;
        yield { queueId: block.queueOf(slot), state: block.read(slot, seq) };
      }
    }
    while (next < displaced.length) yield displaced[next++] as Displaced;
  }

  /** Messages sent to the back of their queue, in order of place; and how many own each moved body. */
  #survey(): { displaced: Displaced[]; shared: Map<number, number> } {
    const displaced: Displaced[] = [];
    const shared = new Map<number, number>();
    for (const block of this.#storedBlocks()) {
      for (let slot = 0; slot < PER_BLOCK; slot++) {
        if (!block.isLive(slot)) continue;
        this.#count(block.queueOf(slot), 1);
        const seq = block.id * PER_BLOCK + slot;
        const row = block.bodyOf(slot);
        if (row !== 0) shared.set(row, (shared.get(row) ?? 0) + 1);
        if (block.positionOf(slot) !== seq)
          displaced.push({ queueId: block.queueOf(slot), state: block.read(slot, seq) });
      }
    }
    for (const [row, count] of shared) {
      if (this.#block(row).isLive(row % PER_BLOCK)) shared.set(row, count + 1);
    }
    displaced.sort((a, b) => a.state.position - b.state.position);
    return { displaced, shared };
  }

  *#storedBlocks(): IterableIterator<Block> {
    const first = this.#blockKey(0);
    const last = this.#blockKey(Math.floor(VHOST_SPAN / PER_BLOCK));
    const rows = this.#sql.allBlocks.iterate(first, last) as IterableIterator<BlockRow>;
    for (const row of rows) yield new Block(row.id - first, row.records);
  }
}
