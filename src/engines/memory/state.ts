/**
 * What a MemoryStore holds: plain data, so that a checker can copy it, compare it and go back to it.
 *
 * A message row: waiting (holder 0) -> held (receive) -> started (begin) -> gone (ack, bury)
 *                                                                     -> waiting at the back (retry: outcome known)
 *                                                                     -> waiting in place (release: not counted)
 *                held -> waiting in place (its process died, or its hold ran out);  started -> the same, as suspect
 * A letter: dead -> marked (a replay has it) -> a tombstone (sent and removed)
 */
import type { Attempt, DeadLetter, EarlierLife } from "../../core/index.ts";

export interface Row<B = unknown> {
  readonly id: string;
  readonly body: B;
  readonly generation: number;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly properties?: Readonly<Record<string, unknown>>;
  readonly raw?: Uint8Array;
  /** Counted starts. */
  starts: number;
  /** All starts, interrupted ones included. */
  allStarts: number;
  /** Epoch ms of the first delivery; 0: never. */
  firstReceivedAt: number;
  /** Not before; 0: at once. */
  dueAt: number;
  suspect: boolean;
  /** The process that holds it; 0: waiting. */
  holder: number;
  /** The fence of the running delivery; rises with each. */
  receipt: number;
  /** When the hold ends, epoch ms; Infinity: with the process. */
  heldUntil: number;
  /** When the running start began; 0: not started. */
  startedAt: number;
  attempts: Attempt[];
}

export interface LetterRow<B = unknown> {
  readonly entry: DeadLetter<B>;
  /** The process that replays it; 0: none. */
  marker: number;
}

/** A removed letter: its key, and what its lives were, so that the next death can tell of them. */
export interface Tombstone<B = unknown> {
  readonly generation: number;
  readonly body: B;
  readonly source: string | undefined;
  readonly earlier: readonly EarlierLife[];
  readonly lives: number;
}

export interface MemoryState<B = unknown> {
  /** The queue, head first. */
  rows: Row<B>[];
  /** In order of death. */
  letters: LetterRow<B>[];
  /** By message id. */
  tombstones: Map<string, Tombstone<B>[]>;
  /** The highest life of each id that a replay has sent: a life is sent once. */
  sent: Map<string, number>;
  /** Processes that live. */
  alive: Set<number>;
  nextProcess: number;
  nextReceipt: number;
  nextId: number;
}

/** A store that holds nothing. */
export function emptyState<B>(): MemoryState<B> {
  return {
    rows: [],
    letters: [],
    tombstones: new Map(),
    sent: new Map(),
    alive: new Set(),
    nextProcess: 1,
    nextReceipt: 1,
    nextId: 1,
  };
}

/** A copy that shares only what never changes (bodies, entries). */
export function copyState<B>(state: MemoryState<B>): MemoryState<B> {
  return {
    ...state,
    rows: state.rows.map((row) => ({ ...row, attempts: [...row.attempts] })),
    letters: state.letters.map((row) => ({ ...row })),
    tombstones: new Map([...state.tombstones].map(([id, all]) => [id, [...all]])),
    sent: new Map(state.sent),
    alive: new Set(state.alive),
  };
}
