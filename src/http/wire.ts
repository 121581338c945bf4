/** The words of the office's HTTP API, shared by the app that answers and the client that asks. */
import { type Attempt, DLO_ERROR_CODES, DloError, type DloErrorCode } from "../core/index.ts";
import type { LetterState, LetterSummary, QueueStatus } from "../ports/index.ts";

/** Rises when a client of an older number would misunderstand. */
export const API_VERSION = 1;

/** A body on the wire: its exact text where it is UTF-8, else base64 of its bytes. */
export interface WireBody {
  readonly encoding: "utf8" | "base64";
  readonly data: string;
}

/** A worker that runs in the process that owns the data. */
export interface WorkerInfo {
  readonly queue: string;
  readonly maxAttempts: number;
  readonly concurrency: number;
  readonly isolate: "none" | "process";
  readonly pid: number;
  readonly startedAt: number;
}

/** One queue, with the letters that came from it and are still dead. */
export interface WireQueue extends QueueStatus {
  readonly dead: number;
}

/** `GET /v1/status` */
export interface WireStatus {
  readonly api: number;
  /** The process that answers: the owner of the data while it does. */
  readonly owner: { readonly pid: number; readonly startedAt: number; readonly command: string };
  readonly queues: readonly WireQueue[];
  readonly letters: Readonly<Record<LetterState, number>>;
  readonly workers: readonly WorkerInfo[];
}

/** `GET /v1/letters/:id` */
export interface WireLetter extends LetterSummary {
  readonly body: WireBody;
  readonly stack: string | null;
  readonly history: readonly Attempt[];
  readonly headers: Readonly<Record<string, unknown>>;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly earlier: readonly LetterSummary[];
}

/** One message to send: `POST /v1/queues/:queue/messages` takes `{ messages }`, in order. */
export interface WireMessage extends WireBody {
  readonly id?: string;
  readonly contentType?: string;
}

/** What became of a send: the ids of those sent and, where one was refused, which and why (none behind it was sent). */
export interface WireSent {
  readonly ids: readonly string[];
  readonly refused: { readonly index: number; readonly code: DloErrorCode; readonly message: string } | null;
}

/** Every answer that is not 2xx. */
export interface WireError {
  readonly error: { readonly code: DloErrorCode; readonly message: string };
}

const STATUS: Partial<Record<DloErrorCode, number>> = {
  BAD_ARGUMENT: 400,
  BAD_BODY: 400,
  BAD_HANDLER: 400,
  REFUSED: 403,
  NOT_FOUND: 404,
  QUEUE_NOT_FOUND: 404,
  CONFLICT: 409,
  STALE_DELIVERY: 409,
  UNROUTABLE: 409,
  BODY_TOO_LARGE: 413,
  UNSUPPORTED: 501,
  CLOSED: 503,
  NOT_CONNECTED: 503,
  DATA_IN_USE: 503,
  TIMED_OUT: 504,
  DISK_FULL: 507,
};

/** The HTTP status of an error code; 500 for what is a defect or a broken disk. */
export const statusOf = (code: DloErrorCode): number => STATUS[code] ?? 500;

/** The error an answer stands for. */
export function errorFrom(status: number, answer: unknown): DloError {
  const { code, message } = (answer as Partial<WireError> | null)?.error ?? {};
  if (typeof message === "string" && (DLO_ERROR_CODES as readonly unknown[]).includes(code)) {
    return new DloError(code as DloErrorCode, message);
  }
  return new DloError("INTERNAL", `the office answered with HTTP status ${status} and no reason`);
}

/** Bytes as a body on the wire. */
export function wireBody(bytes: Uint8Array): WireBody {
  try {
    const data = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return { encoding: "utf8", data };
  } catch {
    return { encoding: "base64", data: Buffer.from(bytes).toString("base64") };
  }
}

/** The bytes of a body on the wire. */
export const bytesOf = (body: WireBody): Uint8Array => Buffer.from(body.data, body.encoding);
