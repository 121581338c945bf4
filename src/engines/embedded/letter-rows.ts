/** Letters as rows: what is written of an entry, and entries and summaries read back. */
import { createHash } from "node:crypto";
import {
  type DeadLetter,
  type EarlierLife,
  isOfQueue,
  type LetterReason,
  MAX_EARLIER_LIVES,
} from "../../core/index.ts";
import type { LetterState, LetterSummary } from "../../ports/index.ts";
import { BYTES, decodeBody, encodeBody } from "./body.ts";
import { letterId } from "./letter-id.ts";

/** A row of `letters` without its body. */
export interface LetterRow {
  readonly n: number;
  readonly kept_at: number;
  readonly store: string;
  readonly queue: string;
  readonly id: string;
  readonly generation: number;
  readonly reason: LetterReason;
  readonly error: string | null;
  readonly attempts: number;
  readonly first_attempt_at: number;
  readonly failed_at: number;
  readonly state: LetterState;
  readonly fingerprint: string;
  readonly replays: number;
  readonly size: number;
  readonly kind: string;
  readonly more: string | null;
  readonly head: Uint8Array | null;
  readonly body: Uint8Array | null;
  readonly body_row: number | null;
}

/** Whether a letter may be of this queue; "" is a queue that is not known. */
export function isFrom(row: LetterRow, queue: string | undefined): boolean {
  return isOfQueue(row.queue === "" ? undefined : row.queue, queue);
}

/** Whether a late copy of this life (or an earlier one) is known by it. */
export function isFence(row: LetterRow & { fenced: number }): boolean {
  return row.fenced === 1 || row.state === "dead" || row.state === "replaying";
}

export function sameBytes(a: Uint8Array | null, b: Uint8Array): boolean {
  return a !== null && Buffer.compare(a, b) === 0;
}

export const SUMMARY_COLUMNS: string =
  "n, kept_at, store, queue, id, generation, reason, error, attempts, first_attempt_at, failed_at, state, " +
  "fingerprint, replays, size";

/** What an entry keeps besides its columns. */
interface More {
  stack?: string;
  history?: NonNullable<DeadLetter["history"]>;
  headers?: NonNullable<DeadLetter["headers"]>;
  properties?: NonNullable<DeadLetter["properties"]>;
}

// JSON has no bytes and no integers above 2^53, which headers may hold; both are marked.
function plain(_key: string, value: unknown): unknown {
  if (typeof value === "bigint") return { $bigint: value.toString() };
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  if (typeof value === "object" && value !== null && (value as { type?: unknown }).type === "Buffer") {
    const { data } = value as { data?: unknown };
    if (Array.isArray(data)) return { $bytes: Buffer.from(data as number[]).toString("base64") };
  }
  return value;
}

function unplain(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const { $bigint, $bytes } = value as { $bigint?: unknown; $bytes?: unknown };
  if (typeof $bigint === "string") return BigInt($bigint);
  if (typeof $bytes === "string") return Buffer.from($bytes, "base64");
  return value;
}

/** The part of an entry that has no column; null when there is nothing. */
export function moreOf(entry: DeadLetter): string | null {
  const { stack, history, headers, properties } = entry;
  if (stack === undefined && history === undefined && headers === undefined && properties === undefined)
    return null;
  // Only these can hold what JSON has no form for, and looking at every value takes time.
  if (headers === undefined && properties === undefined) return JSON.stringify({ stack, history });
  return JSON.stringify({ stack, history, headers, properties }, plain);
}

/** The body of an entry as bytes: the exact ones where the transport gave them. */
export function bodyOf(entry: DeadLetter): { bytes: Uint8Array; contentType: string } {
  if (entry.raw === undefined)
    return encodeBody(entry.body, Number.POSITIVE_INFINITY, `letter '${entry.id}'`);
  const type = entry.properties?.contentType;
  return { bytes: entry.raw, contentType: typeof type === "string" ? type : BYTES };
}

/** Of the value, not of its spelling: `{ "a": 1 }` is sent on as `{"a":1}` by a queue that knows values only. */
export function digestOf(bytes: Uint8Array, kind: string | undefined): Uint8Array {
  const { bytes: plain } =
    kind === undefined
      ? { bytes }
      : encodeBody(decodeBody(bytes, kind), Number.POSITIVE_INFINITY, "a letter");
  return createHash("sha256").update(plain).digest();
}

export function toSummary(row: LetterRow, salt: number): LetterSummary {
  return {
    letterId: letterId(row.n, row.kept_at, salt),
    id: row.id,
    generation: row.generation,
    deadLetters: row.store,
    sourceQueue: row.queue,
    reason: row.reason,
    error: row.error,
    attempts: row.attempts,
    firstAttemptAt: row.first_attempt_at,
    failedAt: row.failed_at,
    state: row.state,
    size: row.size,
    fingerprint: row.fingerprint,
    replays: row.replays,
  };
}

/** The entry as it was put. Its body is null where it was given back to the queue by a replay. */
export function toEntry(
  row: LetterRow,
  bytes: Uint8Array | null,
  before: readonly LetterRow[] = [],
): DeadLetter {
  const more = row.more === null ? {} : (JSON.parse(row.more, unplain) as More);
  return {
    id: row.id,
    body: bytes === null ? null : decodeBody(bytes, row.kind),
    reason: row.reason,
    error: row.error,
    attempts: row.attempts,
    firstAttemptAt: row.first_attempt_at,
    failedAt: row.failed_at,
    generation: row.generation,
    ...(row.queue === "" ? {} : { sourceQueue: row.queue }),
    ...(bytes !== null && more.properties !== undefined ? { raw: bytes } : {}),
    ...more,
    ...(row.generation > 1 ? livesOf(row, before) : {}),
  };
}

function livesOf(row: LetterRow, before: readonly LetterRow[]): Partial<DeadLetter> {
  const earlier = before
    .filter((life) => life.generation < row.generation)
    .map((life): EarlierLife => {
      const { generation, reason, error, attempts } = life;
      const times = { firstAttemptAt: life.first_attempt_at, failedAt: life.failed_at };
      return { generation, reason, error, attempts, ...times };
    });
  return { earlier: earlier.slice(-MAX_EARLIER_LIVES), lives: Math.max(row.generation, earlier.length + 1) };
}
