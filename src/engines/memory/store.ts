import {
  type Attempt,
  type DeadLetter,
  DloError,
  type Message,
  parseJson,
  type Receipt,
} from "../../core/index.ts";
import type { Clock, DeadLetters, Queue, QueueSupports, Resend, RetryOptions } from "../../ports/index.ts";
import { MemoryLetters, owners } from "./letters.ts";
import { checkId, isResend } from "./queue.ts";
import { copyState, emptyState, type MemoryState, type Row } from "./state.ts";

/** How many starts a message keeps as evidence; a message is given up before that unless maxAttempts is larger. */
const MAX_ATTEMPTS_KEPT = 50;

/** Options of a {@link MemoryStore}. */
export interface MemoryStoreOptions {
  readonly clock?: Clock;
  /** How long a hold lasts without `extend`, ms; absent: as long as the process lives. */
  readonly holdMs?: number;
  /** Name of the queue; its dead letters are `<name>.dlq`. Default `memory`. */
  readonly name?: string;
}

/** One process's ports on a {@link MemoryStore}. */
export interface MemoryProcess<B = unknown> {
  readonly queue: Queue<B>;
  readonly deadLetters: DeadLetters<B>;
  /** The process dies: what it held waits again, what it had started is suspect. Its ports are of no use then. */
  crash(): void;
}

/**
 * A queue and its dead letters in one memory, with everything a queue may have: starts counted by `begin`,
 * receipts, holds that run out, delays, suspects one at a time, one transaction for put and ack, generations.
 * For tests, simulation and the checker; it dies with its process.
 *
 * @example
 * const store = new MemoryStore();
 * const { queue, deadLetters, crash } = store.open(); // one process of several
 */
export class MemoryStore<B = unknown> {
  readonly clock: Clock;
  readonly holdMs: number | undefined;
  readonly name: string;
  #state: MemoryState<B> = emptyState();

  constructor(options: MemoryStoreOptions = {}) {
    this.clock = options.clock ?? { now: Date.now };
    this.holdMs = options.holdMs;
    this.name = options.name ?? "memory";
  }

  /** Ports for one more process. */
  open(): MemoryProcess<B> {
    const process = this.#state.nextProcess++;
    this.#state.alive.add(process);
    const deadLetters = new MemoryLetters<B>(this, process);
    const queue = new StoreQueue<B>(this, process, deadLetters);
    return { queue, deadLetters, crash: () => this.crash(process) };
  }

  /** @internal The state itself; `restore` puts one back. */
  get state(): MemoryState<B> {
    return this.#state;
  }

  /** @internal */
  snapshot(): MemoryState<B> {
    return copyState(this.#state);
  }

  /** @internal */
  restore(state: MemoryState<B>): void {
    this.#state = state;
  }

  /** @internal */
  crash(process: number): void {
    this.#state.alive.delete(process);
    for (const row of this.#state.rows) if (row.holder === process) this.#takeBack(row, "process died");
  }

  /** @internal Puts a message at the end, unless it is a later life that was sent before. Answers its id. */
  enqueue(resent: Resend<B>): string {
    const { sent, rows } = this.#state;
    const id = checkId(resent.id);
    const generation = resent.generation ?? 1;
    if (generation > 1) {
      // The same id with another body is another message.
      const key = `${id} ${textOf(resent.body)}`;
      if ((sent.get(key) ?? 1) >= generation) return id;
      sent.set(key, generation);
    }
    rows.push(newRow(resent, id, generation));
    return id;
  }

  /** @internal Holds that have run out, and holds of processes that are gone. Answers how many went back. */
  reclaim(): number {
    const now = this.clock.now();
    let back = 0;
    for (const row of this.#state.rows) {
      if (row.holder === 0 || (row.heldUntil > now && this.#state.alive.has(row.holder))) continue;
      this.#takeBack(row, row.heldUntil <= now ? "hold ran out" : "process died");
      back++;
    }
    return back;
  }

  #takeBack(row: Row<B>, cause: string): void {
    if (row.startedAt !== 0) {
      // The holder itself died, with whatever else it held.
      note(row, { outcome: "crashed", cause, endedAt: this.clock.now() }, row.suspect);
      row.suspect = true;
    }
    row.holder = 0;
    row.startedAt = 0;
  }
}

/** Notes how the running start ended, as its holder tells it: of a crash, it was in a process of the handler's own. */
function record(row: Row, end: Pick<Attempt, "outcome" | "cause" | "endedAt">): void {
  note(row, end, row.suspect || end.outcome === "crashed");
}

function note(row: Row, end: Pick<Attempt, "outcome" | "cause" | "endedAt">, solo: boolean): void {
  const { cause, ...rest } = end;
  row.attempts.push({
    n: row.allStarts,
    startedAt: row.startedAt,
    ...rest,
    ...(cause === undefined ? {} : { cause }),
    company: solo ? "solo" : "shared",
  });
  if (row.attempts.length > MAX_ATTEMPTS_KEPT) row.attempts.shift();
}

class StoreQueue<B> implements Queue<B> {
  readonly supports: QueueSupports = {
    countsCrashes: true,
    countsStarts: true,
    delays: true,
    atomicBury: true,
    generations: true,
  };
  readonly #store: MemoryStore<B>;
  readonly #process: number;
  readonly #letters: MemoryLetters<B>;
  readonly holdMs?: number;

  constructor(store: MemoryStore<B>, process: number, letters: MemoryLetters<B>) {
    this.#store = store;
    this.#process = process;
    this.#letters = letters;
    owners.set(this, store);
    if (store.holdMs !== undefined) this.holdMs = store.holdMs;
  }

  get name(): string {
    return this.#store.name;
  }

  /** A life (id, generation) beyond the first is sent once: a second send of it is dropped. */
  send(message: B | Resend<B>, id?: string): string {
    if (id === undefined && isResend<B>(message)) return this.#store.enqueue(message);
    return this.#store.enqueue({ id: id ?? `m${this.#store.state.nextId++}`, body: message as B });
  }

  receive(): Message<B> | null {
    this.#store.reclaim();
    const { rows } = this.#store.state;
    const now = this.#store.clock.now();
    const oneRuns = rows.some((row) => row.suspect && row.holder !== 0);
    const row = rows.find((one) => one.holder === 0 && one.dueAt <= now && !(one.suspect && oneRuns));
    if (row === undefined) return null;
    row.holder = this.#process;
    row.receipt = this.#store.state.nextReceipt++;
    row.heldUntil = this.#holdEnd();
    if (row.firstReceivedAt === 0) row.firstReceivedAt = now;
    return messageOf(row, row.starts + 1);
  }

  begin(id: string, receipt?: Receipt): Message<B> {
    const row = this.#held(id, receipt);
    row.starts++;
    row.allStarts++;
    row.startedAt = this.#store.clock.now();
    return messageOf(row, row.starts);
  }

  ack(id: string, receipt?: Receipt): void {
    this.#drop(this.#held(id, receipt));
  }

  retry(id: string, receipt?: Receipt, options: RetryOptions = {}): void {
    const row = this.#held(id, receipt);
    const now = this.#store.clock.now();
    if (row.startedAt !== 0) {
      const told = options.error ?? options.cause;
      const cause = told === undefined ? {} : { cause: told };
      record(row, { outcome: options.error === undefined ? "crashed" : "failed", endedAt: now, ...cause });
    } else row.starts++; // Retried without a start of its own: counted all the same, or it would go round for ever.
    this.#drop(row);
    this.#store.state.rows.push({
      ...row,
      holder: 0,
      startedAt: 0,
      suspect: false,
      dueAt: options.delayMs ? now + options.delayMs : 0,
    });
  }

  release(id: string, receipt?: Receipt): void {
    const row = this.#held(id, receipt);
    if (row.startedAt !== 0) {
      record(row, { outcome: "interrupted", endedAt: this.#store.clock.now() });
      row.starts--;
    }
    row.holder = 0;
    row.startedAt = 0;
  }

  bury(id: string, receipt: Receipt | undefined, entry: DeadLetter<B>, deadLetters: DeadLetters<B>): boolean {
    if (!this.#letters.shares(deadLetters)) return false;
    const row = this.#held(id, receipt);
    if (row.startedAt !== 0) {
      const told = entry.error ?? entry.cause;
      const cause = told === undefined ? {} : { cause: told };
      record(row, {
        outcome: entry.error === null ? "crashed" : "failed",
        endedAt: entry.failedAt,
        ...cause,
      });
    }
    this.#drop(row);
    this.#letters.put(row.attempts.length === 0 ? entry : { ...entry, history: row.attempts });
    return true;
  }

  extend(id: string, receipt?: Receipt): void {
    this.#held(id, receipt).heldUntil = this.#holdEnd();
  }

  recover(): number {
    return this.#store.reclaim();
  }

  pending(): number {
    return this.#store.state.rows.length;
  }

  #holdEnd(): number {
    const { holdMs, clock } = this.#store;
    return holdMs === undefined ? Number.POSITIVE_INFINITY : clock.now() + holdMs;
  }

  /** The row this process holds under this id and receipt; nobody else may settle it. */
  #held(id: string, receipt: Receipt | undefined): Row<B> {
    this.#store.reclaim();
    const { rows, alive } = this.#store.state;
    const row = rows.find((one) => one.id === id && one.holder === this.#process && fits(one, receipt));
    if (row && alive.has(this.#process)) return row;
    const words = `message ${JSON.stringify(id)} is not held by this consumer (any more)`;
    throw new DloError("STALE_DELIVERY", `${words}; expected the receipt of a running delivery`);
  }

  #drop(row: Row<B>): void {
    const { rows } = this.#store.state;
    rows.splice(rows.indexOf(row), 1);
  }
}

function textOf(body: unknown): string {
  try {
    return JSON.stringify(body) ?? String(body);
  } catch {
    return typeof body;
  }
}

const fits = (row: Row, receipt: Receipt | undefined): boolean =>
  receipt === undefined || row.receipt === receipt;

function newRow<B>(resent: Resend<B>, id: string, generation: number): Row<B> {
  return {
    id,
    body: resent.body,
    generation,
    ...(resent.headers === undefined ? {} : { headers: resent.headers }),
    ...(resent.properties === undefined ? {} : { properties: resent.properties }),
    ...(resent.raw === undefined ? {} : { raw: resent.raw }),
    starts: 0,
    allStarts: 0,
    firstReceivedAt: 0,
    dueAt: 0,
    suspect: false,
    holder: 0,
    receipt: 0,
    heldUntil: 0,
    startedAt: 0,
    attempts: [],
  };
}

/** A message as it is handed out; JSON bytes are read here, so that a body that is none is seen once, not for ever. */
function messageOf<B>(row: Row<B>, receiveCount: number): Message<B> {
  const message: Message<B> = {
    id: row.id,
    body: row.body,
    receiveCount,
    firstReceivedAt: row.firstReceivedAt,
    generation: row.generation,
    receipt: row.receipt,
    starts: row.allStarts,
    ...(row.suspect ? { suspect: true } : {}),
    ...(row.headers === undefined ? {} : { headers: row.headers }),
    ...(row.properties === undefined ? {} : { properties: row.properties }),
    ...(row.raw === undefined ? {} : { raw: row.raw }),
  };
  if (row.raw === undefined || row.properties?.["contentType"] !== "application/json") return message;
  const decoded = decodeJson(row.raw);
  return "value" in decoded ? { ...message, body: decoded.value as B } : { ...message, ...decoded };
}

function decodeJson(raw: Uint8Array): { value: unknown } | { undecodable: string } {
  try {
    return parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(raw));
  } catch {
    return { undecodable: "the JSON body is not UTF-8 text" };
  }
}
