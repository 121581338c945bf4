/** Queue options in the field's words (as amqplib has them), and durations as text. */
import parseDuration from "parse-duration";
import { HeaderTable } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import { checkDelay } from "./time.ts";

/** A time span: milliseconds, or text such as "30 minutes" or "1h30m". */
export type Duration = number | string;

/** Options of a queue. Those that have an x-argument are that argument; spans may be text. */
export interface QueueOptions {
  /** Survives a restart; default true. */
  readonly durable?: boolean;
  /** Used by its connection alone and gone with it; default false. */
  readonly exclusive?: boolean;
  /** Gone with its last consumer; default false. */
  readonly autoDelete?: boolean;
  readonly messageTtl?: Duration;
  readonly expires?: Duration;
  readonly deadLetterExchange?: string;
  readonly deadLetterRoutingKey?: string;
  readonly maxLength?: number;
  readonly maxPriority?: number;
  /** Further x-arguments, as on the wire. */
  readonly arguments?: Readonly<Record<string, unknown>>;
}

/** How `broker.queue` finds or makes a queue. */
export interface QueueDeclaration extends Omit<QueueOptions, "exclusive"> {
  /** false: the queue must exist (QUEUE_NOT_FOUND); default true. */
  readonly create?: boolean;
}

/** The arguments table of these options. */
export function queueArguments(options: QueueOptions): HeaderTable {
  const table: Record<string, unknown> = { ...options.arguments };
  const set = (key: string, value: unknown): void => {
    if (value !== undefined) table[key] = value;
  };
  set("x-message-ttl", span("messageTtl", options.messageTtl));
  set("x-expires", span("expires", options.expires));
  set("x-dead-letter-exchange", options.deadLetterExchange);
  set("x-dead-letter-routing-key", options.deadLetterRoutingKey);
  set("x-max-length", options.maxLength);
  set("x-max-priority", options.maxPriority);
  return Object.keys(table).length === 0 ? HeaderTable.empty : HeaderTable.fromObject(table);
}

// Numbers go to the broker as they are, which refuses in RabbitMQ's words; text is ours to read.
function span(name: string, value: Duration | undefined): unknown {
  return typeof value === "string" ? parseSpan(name, value) : value;
}

/**
 * A span in ms: a number as it is, text by its units ("30 minutes", "1h30m", "2.5s"). Refused by name: text that
 * is no span, a number without a unit in text, negative spans, more than ten years.
 */
export function parseSpan(name: string, value: Duration): number {
  if (typeof value === "number") return checkDelay(name, value);
  const ms = isSpan(value) ? parseDuration(value) : null;
  if (ms === null || ms === undefined || !Number.isFinite(ms)) {
    const shown = JSON.stringify(String(value).slice(0, 60));
    throw new DloError(
      "BAD_ARGUMENT",
      `${name} is ${shown}; expected milliseconds or text such as "30 minutes"`,
    );
  }
  return checkDelay(name, ms);
}

// parse-duration skips what it does not know; a span must be numbers and units and nothing else.
const UNITS =
  "ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|y|yrs?|years?";
const SPAN = new RegExp(`^\\s*(?:\\d+(?:\\.\\d+)?\\s*(?:${UNITS})(?:\\s+|,\\s*|(?=\\d)|$))+$`, "i");

function isSpan(text: unknown): text is string {
  return typeof text === "string" && text.length <= 200 && SPAN.test(text);
}
