/**
 * What the engine writes on a message that travels: one family of headers, `x-dlo-...`, and the rules for taking
 * them off again. A message is its body, its properties and its own headers; all of that survives every hop as it
 * was. The broker's own death headers do not: sent by a client they are taken for deaths (before 4.0) and can make
 * RabbitMQ drop the message as a cycle.
 */
import { type DeadLetter, LETTER_REASONS } from "../../core/index.ts";

/** Header names of the engine. Times are epoch ms. */
export const H = {
  /** Counted starts before this publish. */
  count: "x-dlo-count",
  /** All starts before this publish, interrupted ones too; only written once there was one. */
  starts: "x-dlo-starts",
  firstAt: "x-dlo-first-at",
  generation: "x-dlo-generation",
  /** The id of a message that came without a message-id property. */
  id: "x-dlo-id",
  /** Not to be handled before. */
  dueAt: "x-dlo-due-at",
  /** Exchange and routing key of the first publish: a hop through a queue overwrites both. */
  exchange: "x-dlo-exchange",
  routingKey: "x-dlo-routing-key",
  error: "x-dlo-error",
  reason: "x-dlo-reason",
  attempts: "x-dlo-attempts",
  failedAt: "x-dlo-failed-at",
  source: "x-dlo-source-queue",
  stack: "x-dlo-stack",
  history: "x-dlo-history",
  lives: "x-dlo-lives",
  earlier: "x-dlo-earlier",
  /** Properties and headers that would act again on a hop; put aside here and shown in their old place. */
  expiration: "x-dlo-expiration",
  userId: "x-dlo-user-id",
  cc: "x-dlo-cc",
  bcc: "x-dlo-bcc",
} as const;

/** The envelope of a dead letter stays under this many bytes, so that it fits a frame beside any real headers. */
const MAX_ENVELOPE: number = 8 * 1024;
/** Ends a text that was cut. */
export const CUT_MARK: string = " … [cut]";

/** A message's own headers as amqplib shows them. */
export type Headers = Readonly<Record<string, unknown>>;

const OWN = "x-dlo-";
const DEATH = /^x-(death|first-death-\w+|last-death-\w+|delivery-count|acquired-count)$/;

const COUNT = /^x-(delivery|acquired)-count$/;

/** True for a header the broker writes when it dead-letters or redelivers. */
export const isDeathHeader: (name: string) => boolean = (name) => DEATH.test(name);

/**
 * The headers an application wrote: none of ours, no count of the broker's, and none of its deaths when the message
 * came by way of one of our own queues. What was put aside for the hop (CC, BCC) is back in its place.
 */
export function applicationHeaders(headers: Headers | undefined): Headers | undefined {
  if (headers === undefined) return undefined;
  let ours = false;
  let counted = false;
  for (const name in headers) {
    if (name.startsWith(OWN)) ours = true;
    else if (COUNT.test(name)) counted = true;
  }
  if (!ours && !counted) return headers;
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(OWN) && !COUNT.test(name) && !(ours && isDeathHeader(name))) kept[name] = value;
  }
  if (headers[H.cc] !== undefined) kept["CC"] = headers[H.cc];
  if (headers[H.bcc] !== undefined) kept["BCC"] = headers[H.bcc];
  return kept;
}

/**
 * Headers for a publish of ours to one queue: the application's without deaths, CC and BCC put aside (the broker
 * would send copies to their keys), and `own` on top. Values that are undefined are left out.
 */
export function hopHeaders(
  application: Headers | undefined,
  own: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(application ?? {})) {
    if (value === undefined || isDeathHeader(name) || name.startsWith(OWN)) continue;
    if (name === "CC") out[H.cc] = value;
    else if (name === "BCC") out[H.bcc] = value;
    else out[name] = value;
  }
  for (const [name, value] of Object.entries(own)) if (value !== undefined) out[name] = value;
  return out;
}

/** Cuts to at most `limit` UTF-8 bytes, on a character, with {@link CUT_MARK} at the end of a cut text. */
export function cutBytes(text: string, limit: number): string {
  if (text.length * 3 <= limit) return text; // UTF-8 needs no more for one of its units
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length <= limit) return text;
  let end = Math.max(0, limit - Buffer.byteLength(CUT_MARK));
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end) + CUT_MARK;
}

/** The metadata of a letter as headers, under {@link MAX_ENVELOPE} bytes: the stack gives way first, then the history. */
export function envelope(entry: DeadLetter): Record<string, unknown> {
  const out: Record<string, unknown> = {
    [H.id]: cutBytes(entry.id, 512),
    [H.reason]: entry.reason,
    [H.attempts]: entry.attempts,
    [H.firstAt]: entry.firstAttemptAt,
    [H.failedAt]: entry.failedAt,
    [H.generation]: entry.generation ?? 1,
  };
  if (entry.error !== null) out[H.error] = cutBytes(entry.error, 2048);
  if (entry.sourceQueue !== undefined) out[H.source] = cutBytes(entry.sourceQueue, 255);
  if (entry.lives !== undefined) out[H.lives] = entry.lives;
  if (entry.stack !== undefined) out[H.stack] = cutBytes(entry.stack, 2048);
  if (entry.history?.length) out[H.history] = newestThatFit(entry.history, 1536);
  if (entry.earlier?.length) out[H.earlier] = newestThatFit(entry.earlier, 1024);
  for (const name of [H.stack, H.history, H.earlier]) {
    if (sizeOf(out) > MAX_ENVELOPE) delete out[name];
  }
  return out;
}

/** Bytes of a table of texts and numbers on the wire: name and value, each with its length, and the value's type. */
function sizeOf(table: Readonly<Record<string, unknown>>): number {
  let bytes = 0;
  for (const [name, value] of Object.entries(table)) {
    bytes += 2 + Buffer.byteLength(name) + (typeof value === "string" ? 4 + Buffer.byteLength(value) : 8);
  }
  return bytes;
}

/** JSON of the newest items of a list that fit in `limit` bytes. */
function newestThatFit(list: readonly unknown[], limit: number): string {
  for (let from = 0; from < list.length; from++) {
    const text = JSON.stringify(list.slice(from));
    if (Buffer.byteLength(text) <= limit) return text;
  }
  return "[]";
}

const REASONS: readonly string[] = LETTER_REASONS;

/** What a dead-letter queue's message says about its death: our envelope, or the broker's x-death; null for neither. */
export function readDeath(headers: Headers | undefined, now: number): Omit<DeadLetter, "id" | "body"> | null {
  if (headers === undefined) return null;
  const reason = headers[H.reason];
  if (typeof reason === "string" && REASONS.includes(reason)) {
    return {
      reason: reason as DeadLetter["reason"],
      error: text(headers[H.error]) ?? null,
      attempts: whole(headers[H.attempts]) ?? 0,
      firstAttemptAt: whole(headers[H.firstAt]) ?? now,
      failedAt: whole(headers[H.failedAt]) ?? now,
      generation: whole(headers[H.generation]) ?? 1,
      ...optional("sourceQueue", text(headers[H.source])),
      ...optional("stack", text(headers[H.stack])),
      ...optional("lives", whole(headers[H.lives])),
      ...optional("history", list(headers[H.history])),
      ...optional("earlier", list(headers[H.earlier])),
    } as Omit<DeadLetter, "id" | "body">;
  }
  return readBrokerDeath(headers, now);
}

function readBrokerDeath(headers: Headers, now: number): Omit<DeadLetter, "id" | "body"> | null {
  const deaths = headers["x-death"];
  const first: unknown = Array.isArray(deaths) ? deaths[0] : undefined;
  if (typeof first !== "object" || first === null) return null;
  const death = first as Record<string, unknown>;
  const reason = text(death["reason"]);
  if (reason === undefined || !REASONS.includes(reason)) return null;
  const seconds = whole((death["time"] as { value?: unknown } | undefined)?.value);
  const at = seconds === undefined ? now : seconds * 1000;
  return {
    reason: reason as DeadLetter["reason"],
    error: null,
    attempts: whole(headers[H.count]) ?? 0,
    firstAttemptAt: whole(headers[H.firstAt]) ?? at,
    failedAt: at,
    generation: whole(headers[H.generation]) ?? 1,
    ...optional("sourceQueue", text(death["queue"])),
  } as Omit<DeadLetter, "id" | "body">;
}

const optional = (name: string, value: unknown): Record<string, unknown> =>
  value === undefined ? {} : { [name]: value };

const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

/** A whole number of at least 0 from a header anybody may have written; anything else counts as absent. */
export function whole(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

function list(value: unknown): readonly unknown[] | undefined {
  if (typeof value !== "string") return undefined;
  try {
    const parsed: unknown = JSON.parse(value);
    return Array.isArray(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}
