/**
 * The words of the consumer's contract: what is delivered, what is left behind when it cannot be handled,
 * and what became of it. Times end in `At` and are epoch milliseconds.
 */

/** What {@link DLQConsumer.processOne} did with a message: acked, sent back, or moved to the dead letters. */
export type Outcome = "ok" | "retry" | "dead";

/** Why the consumer gave a message up: it cannot succeed, it failed too often, or it killed its process. */
export type Reason = "permanent" | "exhausted" | "poison";

/** Every reason a letter in the office can carry: the consumer's, the broker's, and undecodable content. */
export const LETTER_REASONS = [
  "permanent",
  "exhausted",
  "poison",
  "rejected",
  "expired",
  "maxlen",
  "delivery_limit",
  "undecodable",
] as const;

/** One of {@link LETTER_REASONS}. */
export type LetterReason = (typeof LETTER_REASONS)[number];

/**
 * A fence for one delivery: proves that the settling consumer still holds the message. Opaque; compared by
 * the queue that issued it. A queue without receipts leaves it out and settles by id.
 */
export type Receipt = string | number;

/** One handing-over of a message to a handler. */
export interface Message<B = unknown> {
  readonly id: string;
  readonly body: B;
  /** How many times this message has been delivered (or, on queues with `begin`, started); 1 on the first. */
  readonly receiveCount: number;
  /** When the message was delivered for the first time, epoch ms. Survives retries and restarts. */
  readonly firstReceivedAt: number;
  /** Which life of the message this is: 1 unless said; each replay adds one. Absent on plain fakes. */
  readonly generation?: number;
  /** The fence of this delivery, on queues that issue one. */
  readonly receipt?: Receipt;
  /** True when the message was in flight while a process died, so it must be tried alone. */
  readonly suspect?: boolean;
  /** All handler starts of this life, interrupted ones included, where the queue knows; for the hard cap. */
  readonly starts?: number;
  /** Why `raw` could not be decoded (`body` then holds the bytes). Such a message is dead-lettered, not handled. */
  readonly undecodable?: string;
  /** Application headers, where the transport has them. */
  readonly headers?: Readonly<Record<string, unknown>>;
  /** AMQP-style properties (contentType, messageId ...), where the transport has them. */
  readonly properties?: Readonly<Record<string, unknown>>;
  /** The body's exact bytes when `body` is a decoded form of them. */
  readonly raw?: Uint8Array;
}

/** One start of a handler and how it ended, kept as evidence on the letter. */
export interface Attempt {
  readonly n: number;
  readonly startedAt: number;
  readonly endedAt?: number;
  readonly host?: string;
  readonly pid?: number;
  /** `failed`: the handler threw. `crashed`: its process died. `interrupted`: ended by an outside cause, not counted. */
  readonly outcome: "failed" | "crashed" | "interrupted" | "timeout";
  readonly cause?: string;
  /** Whether other messages were in flight in the same process. */
  readonly company?: "solo" | "shared";
}

/** What is left of an earlier life of a message: it died, was replayed, and died again. */
export interface EarlierLife {
  readonly generation: number;
  readonly reason: LetterReason;
  readonly error: string | null;
  readonly attempts: number;
  readonly firstAttemptAt: number;
  readonly failedAt: number;
}

/** How many earlier lives a letter lists (the newest ones); `lives` tells the true number. */
export const MAX_EARLIER_LIVES = 20;

/** A message moved aside, with the evidence. The first seven fields are the contract; the rest is optional. */
export interface DeadLetter<B = unknown> {
  readonly id: string;
  readonly body: B;
  readonly reason: LetterReason;
  /** `Name: message` of the last error; null for a poison pill, whose death raised none. */
  readonly error: string | null;
  /** Handler runs so far. */
  readonly attempts: number;
  readonly firstAttemptAt: number;
  readonly failedAt: number;
  readonly generation?: number;
  readonly sourceQueue?: string;
  readonly stack?: string;
  /** How the last process died (exit code, signal, out of memory), where it did. */
  readonly cause?: string;
  readonly history?: readonly Attempt[];
  /** Earlier lives, oldest first, at most {@link MAX_EARLIER_LIVES}; set by stores that know generations. */
  readonly earlier?: readonly EarlierLife[];
  /** How many times this message has died in all, this death included. */
  readonly lives?: number;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly properties?: Readonly<Record<string, unknown>>;
  readonly raw?: Uint8Array;
}
