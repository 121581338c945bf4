import type { Message } from "../core/index.ts";
import type { SerializedError } from "../ports/index.ts";

/**
 * What parent and child say to each other: arrays that begin with a mark of ours, so that anything a handler sends
 * with `process.send` is told apart and ignored. The channel uses V8's own serialization ("advanced"): bytes stay
 * bytes, strings keep lone surrogates, -0, BigInt, Date, Map and undefined survive.
 */
export const MARK = "dlo";

/**
 * Parent to child. `run`: handle this message. `warm`: go the same way with nothing at its end, so that a spare has
 * walked it once before it must step in. `stop`: take no more, end when nothing is left to do.
 */
export type Command =
  | readonly [mark: typeof MARK, kind: "run", run: number, message: Message]
  | readonly [mark: typeof MARK, kind: "warm", message: Message]
  | readonly [mark: typeof MARK, kind: "stop"];

/** Child to parent. */
export type Report =
  /** The handler is loaded. */
  | readonly [mark: typeof MARK, kind: "ready"]
  /** The handler cannot be loaded: what is wrong with the file. */
  | readonly [mark: typeof MARK, kind: "bad", why: string, error: SerializedError | null]
  | readonly [mark: typeof MARK, kind: "ok", run: number]
  | readonly [mark: typeof MARK, kind: "failed", run: number, error: SerializedError]
  /** The handler threw a Crash: the process must be taken for dead. */
  | readonly [mark: typeof MARK, kind: "crash", run: number, text: string]
  /** Something threw outside of any handler's reach; `run` is the one whose context it was, 0: unknown. */
  | readonly [mark: typeof MARK, kind: "fault", run: number, origin: string, text: string]
  /** The event loop turns. */
  | readonly [mark: typeof MARK, kind: "beat"]
  /** Somebody asked the child to end with a signal; it goes when the parent says stop. */
  | readonly [mark: typeof MARK, kind: "leave"];

/** How a child is told what it is, in its first argument (JSON). */
export interface ChildSetup {
  /** Absolute path of the handler module. */
  readonly file: string;
  readonly parentPid: number;
  /** Time between two beats, ms; 0: none. */
  readonly beatMs: number;
  /** 0: no guard. */
  readonly rssLimitBytes: number;
  /** What the handler is told beside the message. */
  readonly context: Readonly<Record<string, unknown>>;
  /** Whether there is a flight recorder on its descriptor. */
  readonly recorded: boolean;
}

/** True for a message of ours. */
export function isOurs(value: unknown): value is readonly [typeof MARK, string, ...unknown[]] {
  return Array.isArray(value) && value[0] === MARK && typeof value[1] === "string";
}
