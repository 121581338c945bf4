/** What RabbitMQ's refusals mean, in words a user can act on. Never a URL: it can hold a password. */
import { DloError, type DloErrorCode } from "../../core/index.ts";

/** An error as amqplib raises it for a close by the server. */
interface BrokerError {
  readonly code?: number | string;
  readonly message?: string;
}

const CODES: Readonly<Record<number, DloErrorCode>> = {
  311: "BODY_TOO_LARGE",
  403: "REFUSED",
  404: "QUEUE_NOT_FOUND",
  405: "REFUSED",
  406: "CONFLICT",
  504: "NOT_CONNECTED",
  530: "REFUSED",
  540: "UNSUPPORTED",
};

/** The user's error for whatever amqplib threw while doing `what`. */
export function explain(error: unknown, what: string): DloError {
  if (error instanceof DloError) return error;
  const { code, message = String(error) } = (error ?? {}) as BrokerError;
  const clash = explainClash(message);
  if (clash) return new DloError("CONFLICT", `${what}: ${clash}`, { cause: error });
  const words = message.replace(/^.*?(?:by server|failed): /s, "").replace(/^\S+; /, "");
  if (typeof code === "number" && CODES[code])
    return new DloError(CODES[code], `${what}: ${words}`, { cause: error });
  if (/ACCESS_REFUSED|access refused/i.test(message)) {
    return new DloError("REFUSED", `${what}: the broker refused the user name or password`, { cause: error });
  }
  if (/table.*exceeds|encoding buffer/i.test(message)) {
    return new DloError("BODY_TOO_LARGE", `${what}: the headers are too large for a frame`, { cause: error });
  }
  return new DloError("NOT_CONNECTED", `${what}: ${words}`, { cause: error });
}

/**
 * RabbitMQ's `inequivalent arg` in one sentence with the argument and both values; null for any other text.
 *
 * @example
 * explainClash("... inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '5' but current is '7'")
 * // "queue 'q' exists with x-message-ttl 7, asked for 5; delete the queue, or ask for what exists"
 */
export function explainClash(text: string): string | null {
  const clash = clashIn(text);
  if (!clash) return null;
  const { kind, name, argument, current, received } = clash;
  return `${kind} '${name}' exists with ${argument} ${current}, asked for ${received}; delete the ${kind}, or ask for what exists`;
}

interface Clash {
  readonly argument: string;
  readonly kind: string;
  readonly name: string;
  readonly received: string;
  readonly current: string;
  /** The current value is a number on the wire. */
  readonly isNumber: boolean;
}

/** The parts of RabbitMQ's `inequivalent arg`; null for any other text. Pure. */
export function clashIn(text: string): Clash | null {
  const found =
    /inequivalent arg '([^']+)' for (queue|exchange) '([^']*)'.*?: received (.+?) but current is (.+?)"?$/s.exec(
      text,
    );
  if (!found) return null;
  const [, argument = "", kind = "", name = "", received = "", current = ""] = found;
  const isNumber = /of type '(?:un)?signed|of type '(?:long|short|byte|double|float)'/.test(current);
  return { argument, kind, name, received: value(received), current: value(current), isNumber };
}

/** The same of an error that {@link explain} made. */
export function clashOf(error: unknown): Clash | null {
  return clashIn(error instanceof DloError && error.cause instanceof Error ? error.cause.message : "");
}

function value(words: string): string {
  if (/^none\b/.test(words)) return "none";
  return /'([^']*)'/.exec(words)?.[1] ?? words.trim();
}
