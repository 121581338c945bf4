import { AmqpError } from "./errors.ts";
import type { FieldValue, HeaderTable } from "./table.ts";
import type { QueueType } from "./types.ts";
import { canonicalValue, integerOf, typeName } from "./values.ts";

/** Ten years, RabbitMQ's longest TTL, lease and (ours) delay. */
export const MAX_TTL_MS = 315_360_000_000;
const MAX_PRIORITY = 255;

export type Overflow = "drop-head" | "reject-publish" | "reject-publish-dlx";
export type Strategy = "at-most-once" | "at-least-once";

/** What a queue's x-arguments say, typed. Absent: not said. */
export interface QueueArguments {
  readonly type: QueueType;
  readonly ttl?: number;
  readonly expires?: number;
  readonly maxLength?: number;
  readonly maxBytes?: number;
  readonly overflow?: Overflow;
  readonly dlx?: string;
  readonly dlrk?: string;
  readonly strategy?: Strategy;
  readonly maxPriority?: number;
  readonly deliveryLimit?: number;
  readonly singleActive?: boolean;
  readonly isolateSuspects?: boolean;
}

/** The arguments RabbitMQ compares when a queue is declared again (rule J2), and our own. */
const COMPARED = [
  "x-expires",
  "x-message-ttl",
  "x-dead-letter-exchange",
  "x-dead-letter-routing-key",
  "x-dead-letter-strategy",
  "x-max-length",
  "x-max-length-bytes",
  "x-overflow",
  "x-max-priority",
  "x-queue-mode",
  "x-queue-type",
  "x-delivery-limit",
  "x-single-active-consumer",
  "x-dlo-isolate-suspects",
] as const;

const NOT_ON_CLASSIC = ["x-delivery-limit", "x-dead-letter-strategy", "x-quorum-initial-group-size"];
const NOT_ON_QUORUM = ["x-max-priority", "x-queue-mode"];

/** Where an argument stands, for error texts: `queue 'q' in vhost '/'`. */
export type Named = string;

/**
 * Reads and checks a queue's arguments (rule J1).
 * @throws AmqpError 406 in RabbitMQ's words
 */
export function queueArguments(table: HeaderTable | undefined, queue: Named): QueueArguments {
  const type = queueType(table?.get("x-queue-type"), queue);
  if (table === undefined || table.size === 0) return { type };
  for (const key of type === "classic" ? NOT_ON_CLASSIC : NOT_ON_QUORUM) {
    if (table.has(key)) refuse(key, queue, undefined, ` of queue type rabbit_${type}_queue`);
  }
  const read = new Reader(table, queue);
  const all: { -readonly [K in keyof QueueArguments]?: QueueArguments[K] | undefined } = {
    type,
    ttl: read.integer("x-message-ttl", { max: MAX_TTL_MS }),
    expires: read.integer("x-expires", { max: MAX_TTL_MS, zero: false }),
    maxLength: read.integer("x-max-length"),
    maxBytes: read.integer("x-max-length-bytes"),
    overflow: read.choice<Overflow>("x-overflow", OVERFLOWS, "invalid_overflow"),
    dlx: read.exchangeName("x-dead-letter-exchange"),
    dlrk: read.text("x-dead-letter-routing-key"),
    strategy: read.choice<Strategy>("x-dead-letter-strategy", STRATEGIES, "invalid_dlx_strategy"),
    maxPriority: read.priority("x-max-priority"),
    deliveryLimit: read.limit("x-delivery-limit"),
    singleActive: read.flag("x-single-active-consumer"),
    isolateSuspects: read.flag("x-dlo-isolate-suspects"),
  };
  checkMode(read.text("x-queue-mode"), queue);
  if (all.dlrk !== undefined && all.dlx === undefined) {
    refuse("x-dead-letter-routing-key", queue, "routing_key_but_no_dlx_defined");
  }
  for (const key of Object.keys(all) as (keyof QueueArguments)[]) if (all[key] === undefined) delete all[key];
  return all as QueueArguments;
}

const OVERFLOWS: readonly Overflow[] = ["drop-head", "reject-publish", "reject-publish-dlx"];
const STRATEGIES: readonly Strategy[] = ["at-most-once", "at-least-once"];

function refuse(key: string, queue: Named, why: string | undefined, suffix = ""): never {
  throw new AmqpError(
    406,
    `invalid arg '${key}' for ${queue}${suffix}${why === undefined ? "" : `: ${why}`}`,
  );
}

/** Nothing comes of it here, but a wrong one is told as RabbitMQ does. */
function checkMode(mode: string | undefined, queue: Named): void {
  if (mode === undefined || mode === "default" || mode === "lazy") return;
  refuse("x-queue-mode", queue, `"unsupported queue mode '${mode}'"`);
}

function queueType(value: FieldValue | undefined, queue: Named): QueueType {
  if (value === undefined) return "classic";
  if (value.t === "S" && (value.v === "classic" || value.v === "quorum")) return value.v;
  const shown = value.t === "S" ? value.v : typeName(value);
  throw new AmqpError(406, `invalid arg 'x-queue-type' for ${queue}: unsupported queue type '${shown}'`);
}

class Reader {
  readonly #table: HeaderTable;
  readonly #queue: Named;

  constructor(table: HeaderTable, queue: Named) {
    this.#table = table;
    this.#queue = queue;
  }

  integer(key: string, rule: { max?: number; zero?: boolean } = {}): number | undefined {
    const value = this.#table.get(key);
    if (value === undefined) return undefined;
    const n = integerOf(value);
    if (n === undefined) refuse(key, this.#queue, `"expected integer, got ${typeName(value)}"`);
    if (n < 0) refuse(key, this.#queue, `{value_negative,${n}}`);
    if (n === 0 && rule.zero === false) refuse(key, this.#queue, "{value_zero,0}");
    if (rule.max !== undefined && n > rule.max) refuse(key, this.#queue, `{value_too_large,${n}}`);
    return n;
  }

  priority(key: string): number | undefined {
    const n = this.integer(key);
    if (n !== undefined && n > MAX_PRIORITY) refuse(key, this.#queue, `{max_value_exceeded,${n}}`);
    return n;
  }

  /** -1 means no limit; RabbitMQ 3.10 did not look at this argument at all. */
  limit(key: string): number | undefined {
    const value = this.#table.get(key);
    if (value === undefined) return undefined;
    const n = integerOf(value);
    if (n === undefined) refuse(key, this.#queue, `"expected integer, got ${typeName(value)}"`);
    if (n < -1) refuse(key, this.#queue, `{value_negative,${n}}`);
    return n;
  }

  exchangeName(key: string): string | undefined {
    const value = this.#table.get(key);
    if (value === undefined || value.t === "S") return value?.v;
    throw new AmqpError(406, `invalid type '${typeName(value)}' for arg '${key}' in ${this.#queue}`);
  }

  text(key: string): string | undefined {
    const value = this.#table.get(key);
    if (value === undefined || value.t === "S") return value?.v;
    return refuse(key, this.#queue, `{unacceptable_type,${typeName(value)}}`);
  }

  flag(key: string): boolean | undefined {
    const value = this.#table.get(key);
    if (value === undefined || value.t === "t") return value?.v;
    return refuse(key, this.#queue, `{unacceptable_type,${typeName(value)}}`);
  }

  choice<T extends string>(key: string, allowed: readonly T[], error: string): T | undefined {
    const value = this.text(key);
    if (value === undefined || (allowed as readonly string[]).includes(value)) return value as T | undefined;
    return refuse(key, this.#queue, `{${error},<<"${value}">>}`);
  }
}

/**
 * A declaration of a queue that exists must say the same (rule J2); arguments nobody knows are not compared, and
 * `x-queue-type: classic` equals saying nothing.
 * @throws AmqpError 406 `inequivalent arg`
 */
export function checkEquivalent(current: HeaderTable, asked: HeaderTable | undefined, queue: Named): void {
  for (const key of COMPARED) {
    // Our own argument is unknown to clients that never heard of it: who does not ask for it takes it as it is.
    if (key === "x-dlo-isolate-suspects" && asked?.has(key) !== true) continue;
    compareArgument(key, current.get(key), asked?.get(key), queue);
  }
}

/** The same for one argument of a queue or an exchange. */
export function compareArgument(
  key: string,
  current: FieldValue | undefined,
  asked: FieldValue | undefined,
  object: Named,
): void {
  if (same(key, current) === same(key, asked)) return;
  const received = asked === undefined ? "none" : `the value ${shown(asked)}`;
  const has = current === undefined ? "none" : `the value ${shown(current)}`;
  throw new AmqpError(
    406,
    `inequivalent arg '${key}' for ${object}: received ${received} but current is ${has}`,
  );
}

function same(key: string, value: FieldValue | undefined): string {
  if (value === undefined) return key === "x-queue-type" ? '"classic"' : "none";
  return canonicalValue(value);
}

function shown(value: FieldValue): string {
  const text = value.t === "S" || integerOf(value) !== undefined ? String(value.v) : canonicalValue(value);
  return `'${text}' of type '${typeName(value)}'`;
}

const INTEGER = /^[+-]?[0-9]+/;

/**
 * The per-message TTL (rule C4): decimal text as Erlang's string:to_integer reads it.
 * @throws AmqpError 406 quoting the value
 */
export function parseExpiration(text: string): number {
  const digits = INTEGER.exec(text)?.[0];
  if (digits === undefined) refuseExpiration(text, "no_integer");
  const rest = text.slice(digits.length);
  if (rest !== "") refuseExpiration(text, `{leftover_string,"${rest}"}`);
  const n = Number(digits);
  if (n < 0) refuseExpiration(text, `{value_negative,${n}}`);
  if (n > MAX_TTL_MS) refuseExpiration(text, `{value_too_large,${BigInt(digits)}}`);
  return n;
}

function refuseExpiration(text: string, why: string): never {
  throw new AmqpError(406, `invalid expiration '${text}': ${why}`);
}
