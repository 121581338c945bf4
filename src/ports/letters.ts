import type { DeadLetter, LetterReason } from "../core/index.ts";
import type { Maybe } from "./index.ts";

/** Where a letter stands: kept, on its way back, sent back, or in the trash. */
export type LetterState = "dead" | "replaying" | "replayed" | "discarded";

/** One letter as lists show it: everything but the body. */
export interface LetterSummary {
  /** The office's own id (uuidv7): stable, unique, in order of death. */
  readonly letterId: string;
  /** The message's id. */
  readonly id: string;
  readonly generation: number;
  /** Name of the dead-letter store (DLQ) it lies in. */
  readonly deadLetters: string;
  readonly sourceQueue: string;
  readonly reason: LetterReason;
  readonly error: string | null;
  readonly attempts: number;
  readonly firstAttemptAt: number;
  readonly failedAt: number;
  readonly state: LetterState;
  /** Body bytes. */
  readonly size: number;
  /** Errors of one cause share it; see core/fingerprint. */
  readonly fingerprint: string;
  /** How often it has been replayed before. */
  readonly replays: number;
}

/** A letter with its body and everything known about it. */
export interface Letter extends LetterSummary {
  readonly entry: DeadLetter;
  /** Earlier lives of the same message: their reason, error and times. */
  readonly earlier: readonly LetterSummary[];
}

/** Which letters; absent fields match all. */
export interface LetterFilter {
  readonly deadLetters?: string;
  readonly sourceQueue?: string;
  readonly reason?: LetterReason;
  readonly fingerprint?: string;
  readonly state?: LetterState;
  /** Message ids or letter ids. */
  readonly ids?: readonly string[];
}

/** Letters of one cause. */
export interface LetterGroup {
  readonly fingerprint: string;
  readonly title: string;
  readonly count: number;
  readonly firstSeenAt: number;
  readonly lastSeenAt: number;
  readonly queues: readonly string[];
  readonly reasons: readonly LetterReason[];
  /** letterId of one of them. */
  readonly sample: string;
}

/** What a queue holds, for status. */
export interface QueueStatus {
  readonly queue: string;
  readonly waiting: number;
  readonly inFlight: number;
  readonly delayed: number;
}

/** What became of each letter of a replay or discard. */
export interface OperationResult {
  readonly done: readonly string[];
  readonly failed: readonly { readonly id: string; readonly why: string }[];
}

/**
 * What an engine offers the office: looking (which never changes a letter), sending back and discarding. Every
 * method is one transaction or resumable; see the engine for what a crash leaves.
 */
export interface LetterStore {
  status(): Maybe<readonly QueueStatus[]>;
  count(filter?: LetterFilter): Maybe<number>;
  /** In order of death. `after` is the letterId to go on behind. */
  page(filter: LetterFilter, limit: number, after?: string): Maybe<readonly LetterSummary[]>;
  /** By letterId or message id (the latest life). */
  get(id: string): Maybe<Letter | null>;
  groups(filter?: LetterFilter): Maybe<readonly LetterGroup[]>;
  /** Sends letters back to the queue they failed in (or `to`), in order of death, each once. */
  replay(
    letterIds: readonly string[],
    options?: { to?: string; actor?: string; reason?: string },
  ): Maybe<OperationResult>;
  /** To the trash. */
  discard(
    letterIds: readonly string[],
    options?: { actor?: string; reason?: string },
  ): Maybe<OperationResult>;
}
