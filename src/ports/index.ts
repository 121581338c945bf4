import type { DeadLetter, Message, Receipt } from "../core/index.ts";

/** A value now or a promise of it: a port may be synchronous or not, and the consumer follows it. */
export type Maybe<T> = T | PromiseLike<T>;

/** What a replay sends: the message under its own id, in its next life. */
export interface Resend<B = unknown> {
  readonly id: string;
  readonly body: B;
  readonly generation?: number;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly properties?: Readonly<Record<string, unknown>>;
  readonly raw?: Uint8Array;
}

/** How a failed message goes back. A queue that cannot delay ignores `delayMs`. */
export interface RetryOptions {
  /** Not before this many ms from now; absent or 0: at once. Never blocks what is behind. */
  readonly delayMs?: number;
  /** `Name: message` of the failure, kept as evidence where the queue has room for it. */
  readonly error?: string;
  /** How its process died (exit code, signal, out of memory), where it did; kept as evidence likewise. */
  readonly cause?: string;
}

/** What a queue can and cannot do, stated so that nobody has to guess. */
export interface QueueSupports {
  /** The count survives the death of the consumer process. */
  readonly countsCrashes: boolean;
  /** `begin` exists: the count rises at handler start, not when a message is taken into a window. */
  readonly countsStarts: boolean;
  /** `retry` honours delayMs. */
  readonly delays: boolean;
  /** Dead letter and ack are one transaction (`bury`). */
  readonly atomicBury: boolean;
  /** Messages and entries carry a generation. */
  readonly generations: boolean;
}

/**
 * A queue with at-least-once delivery. The six methods of the contract are required; everything else is
 * optional and used when present. Methods may answer at once or with a promise.
 */
export interface Queue<B = unknown> {
  /** Sends a body (with an optional id), or `{ id, body }` under that id for a replay. Answers the id. */
  send(message: B | Resend<B>, id?: string): Maybe<unknown>;
  /**
   * The next message, now in flight; null when nothing is waiting. Its receiveCount is the one the handler
   * will see: raised by this call, or, on queues with `begin`, the starts so far plus one (not yet durable).
   * While a suspect of this queue is in flight, no other suspect is handed out.
   */
  receive(): Maybe<Message<B> | null>;
  /** Done with it. With a stale receipt the queue refuses (`STALE_DELIVERY`). */
  ack(id: string, receipt?: Receipt): Maybe<unknown>;
  /** Sends it to the back of the queue. */
  retry(id: string, receipt?: Receipt, options?: RetryOptions): Maybe<unknown>;
  /** Puts in-flight messages of dead consumers back (the visibility timeout running out). */
  recover(): Maybe<unknown>;
  /** How many messages are not settled yet: waiting and in flight. */
  pending(): Maybe<number>;

  /** The queue's name, where it has one: names the source of dead letters. */
  readonly name?: string;
  readonly supports?: QueueSupports;
  /**
   * Raises the receive count durably, immediately before the handler is entered. Answers the message as the
   * handler shall see it. After a crash here the message comes back counted and `suspect`.
   */
  begin?(id: string, receipt?: Receipt): Maybe<Message<B>>;
  /**
   * Gives a message back to its place without counting (never started, or interrupted from outside): a start
   * made by `begin` is taken back from receiveCount, and stays in `starts`. It is no suspect then.
   */
  release?(id: string, receipt?: Receipt): Maybe<unknown>;
  /**
   * Puts the entry and settles the message in one transaction, where `deadLetters` shares one with this queue;
   * answers false when it does not, and the caller then puts and acks.
   */
  bury?(
    id: string,
    receipt: Receipt | undefined,
    entry: DeadLetter<B>,
    deadLetters: DeadLetters<B>,
  ): Maybe<boolean>;
  /** Resolves when a message may be waiting, or when the signal aborts. Without it the loop polls. */
  ready?(signal: AbortSignal): Promise<void>;
  /** How long a hold lasts, ms, on queues whose hold runs out. The consumer extends it three times as often. */
  readonly holdMs?: number;
  /**
   * Asked once when a consumer starts. Refuses (`CONFLICT`, naming both numbers) a maxAttempts that the queue itself
   * would cut short, where it has a limit of its own.
   */
  accepts?(maxAttempts: number): Maybe<void>;
  /**
   * A consumer begins to work here. Refuses (`CONFLICT`, naming both numbers) where consumers of other processes have
   * another maxAttempts. Answers what to call when it has stopped.
   */
  join?(maxAttempts: number): Maybe<() => Maybe<void>>;
  /** Prolongs the hold on a message while its handler runs, on queues whose hold runs out. */
  extend?(id: string, receipt?: Receipt): Maybe<unknown>;
}

/** Where dead letters are kept. `put` inserts if absent by (id, generation); see GUARANTEES for the rest. */
export interface DeadLetters<B = unknown> {
  put(entry: DeadLetter<B>): Maybe<unknown>;
  /**
   * True when an entry (or a tombstone) of this generation or a later one exists. Where a body is given (only
   * together with a generation), one with another body does not count: the same id used for something else. Nor does
   * one that died in another queue, where both queues are known: one event can lie in several under the same id.
   */
  has(id: string, generation?: number, body?: B, sourceQueue?: string): Maybe<boolean>;
  /**
   * Removes the entry; with a generation only an entry of exactly that one. Where a body is given (only together with
   * a generation), an entry with another body stays: the same id used for something else. So does one that died in
   * another queue, where both are known.
   */
  remove(id: string, generation?: number, body?: B, sourceQueue?: string): Maybe<unknown>;
  /** All entries, in order of death. */
  list(): Maybe<readonly DeadLetter<B>[]>;

  readonly name?: string;
  get?(id: string): Maybe<DeadLetter<B> | null>;
  /** Marks a letter as being replayed to `generation + 1`; false when another replay has it. Durable. */
  markReplaying?(id: string, generation: number, sourceQueue?: string): Maybe<boolean>;
  /**
   * Sends (a letter that died in `queue`) and removes in one transaction where `queue` shares one: true when done, null when there is no such
   * letter (any more) and nothing was sent, false when they share none and the caller must mark, send, remove.
   */
  resend?(id: string, generation: number, queue: Queue<B>): Maybe<boolean | null>;
}

/** The wall clock, epoch ms. */
export interface Clock {
  now(): number;
}

/** Randomness in [0, 1), injected so that jitter can be tested. */
export type Random = () => number;

/** Where the product says what it does. Never receives a message body or a secret. */
export interface Logger {
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

export * from "./letters.ts";
export * from "./runner.ts";
