/** The consumer's rules, each a small function; `consume.ts` puts them in order. */
import { DloError } from "./errors.ts";
import type { FailureClass } from "./failure.ts";
import type { DeadLetter, Message, Reason } from "./message.ts";

/** How often a message is tried when nobody says. */
export const DEFAULT_MAX_ATTEMPTS = 3;

/**
 * Starts in all, interrupted ones included, after which a message is given up however they ended: this many times
 * maxAttempts. Without it a message whose every start is "interrupted from outside" would go round for ever.
 */
export const HARD_CAP_FACTOR = 3;

/** maxAttempts as it must be: a whole number of at least 1. Anything else is the caller's mistake. */
export function checkMaxAttempts(value: unknown): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 1) return value;
  const shown = typeof value === "number" || typeof value === "bigint" ? `${value}` : typeof value;
  throw new DloError("BAD_ARGUMENT", `maxAttempts is ${shown}; expected a whole number of at least 1`);
}

/**
 * Whether an arriving message has used up its starts: all of them ended without an outcome, since an outcome on
 * the last one would have dead-lettered it.
 */
export function isPoison(message: Message, maxAttempts: number): boolean {
  return (
    message.receiveCount > maxAttempts ||
    (message.starts !== undefined && message.starts >= maxAttempts * HARD_CAP_FACTOR)
  );
}

/** How many runs a poison pill's letter speaks of: the counted ones, or, at the hard cap, all of them. */
export function runsBefore(message: Message, maxAttempts: number): number {
  return message.receiveCount > maxAttempts ? message.receiveCount - 1 : (message.starts ?? 0);
}

/** What becomes of a message whose handler failed: another try, or a reason to give it up. */
export function afterFailure(
  failure: Exclude<FailureClass, "crash">,
  receiveCount: number,
  maxAttempts: number,
): "retry" | "permanent" | "exhausted" {
  if (failure === "permanent") return "permanent";
  return receiveCount < maxAttempts ? "retry" : "exhausted";
}

/**
 * Whether a letter may be of a message of this queue: one store can serve several queues, and one event can lie in
 * each of them under the same id. Where either side is not named, nothing speaks against it.
 */
export function isOfQueue(source: string | undefined, queue: string | undefined): boolean {
  return source === undefined || queue === undefined || source === queue;
}

/** What is known beyond the contract's seven fields. */
export interface Evidence {
  readonly stack?: string | undefined;
  readonly sourceQueue?: string | undefined;
  readonly cause?: string | undefined;
}

/**
 * The dead letter of a message: the contract's seven fields, and the rest only where the message comes from a
 * queue that knows generations; plain queues and stores see exactly the contract.
 */
export function letterOf<B>(
  message: Message<B>,
  reason: Reason,
  error: string | null,
  attempts: number,
  failedAt: number,
  evidence: Evidence = {},
): DeadLetter<B> {
  const entry: { -readonly [K in keyof DeadLetter<B>]: DeadLetter<B>[K] } = {
    id: message.id,
    body: message.body,
    reason,
    error,
    attempts,
    firstAttemptAt: message.firstReceivedAt,
    failedAt,
  };
  if (message.generation === undefined) return entry;
  entry.generation = message.generation;
  if (evidence.sourceQueue !== undefined) entry.sourceQueue = evidence.sourceQueue;
  if (evidence.stack !== undefined) entry.stack = evidence.stack;
  if (evidence.cause !== undefined) entry.cause = evidence.cause;
  if (message.headers !== undefined) entry.headers = message.headers;
  if (message.properties !== undefined) entry.properties = message.properties;
  if (message.raw !== undefined) entry.raw = message.raw;
  return entry;
}
