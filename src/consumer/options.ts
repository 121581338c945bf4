import type { StandardSchemaV1 } from "@standard-schema/spec";
import {
  type Backoff,
  type Classify,
  checkBackoff,
  checkMaxAttempts,
  DEFAULT_MAX_ASKED_MS,
  DEFAULT_MAX_ATTEMPTS,
  DloError,
  LONGEST_TIMER_MS,
  MAX_WAIT_MS,
  type Message,
  SOLO_CRASH_WAITS_MS,
} from "../core/index.ts";
import type { Clock, HandlerRunner, Logger, Random } from "../ports/index.ts";
import type { WorkerPoolOptions } from "../worker/index.ts";
import {
  type ConsumerLetters,
  type ConsumerQueue,
  checkPorts,
  type Handled,
  kindOf,
  nowOf,
} from "./dlq-consumer.ts";

/** What a handler is told beside the message. */
export interface HandlerContext {
  /** Aborted when the time is up, the delivery was taken over, or the consumer stops without waiting longer. */
  readonly signal: AbortSignal;
  /** Which start this is, from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** The queue's name, where it has one. */
  readonly queue?: string;
}

/** A handler of a {@link Consumer}. What it returns is not looked at; what it throws decides, see {@link classify}. */
export type Handler<B = unknown> = (message: Handled<B>, context: HandlerContext) => unknown;

/** How a {@link Consumer} works. Only the first three are required. */
export interface ConsumerOptions<B = unknown> {
  readonly queue: ConsumerQueue;
  readonly deadLetters: ConsumerLetters;
  /** The function, or (a path or file URL) the module that exports it, by default or as `handler`. */
  readonly handler: Handler<B> | string | URL;
  /** Starts before a message is given up; a whole number of at least 1, default 3. */
  readonly maxAttempts?: number;
  /** How many handlers run at the same time; default 1. */
  readonly concurrency?: number;
  /** Waits between tries: a fixed number of ms, or an exponential {@link Backoff}. Default 1 s, doubling, to 5 min. */
  readonly backoff?: number | Backoff;
  /** Longest time a handler may take, ms; then it has failed with a TimeoutError. Default: no limit. */
  readonly timeoutMs?: number;
  /** A Standard Schema (zod, valibot, arktype ...). A body that does not fit is dead-lettered at once. */
  readonly schema?: StandardSchemaV1<unknown, B>;
  /** A view of one's own on what a failure means. */
  readonly classify?: Classify<Message<B>>;
  /** `process`: the handler (a module) runs in child processes, so that a crash costs one child. Default `none`. */
  readonly isolate?: "none" | "process";
  /** With isolate `process`: how the children are run. */
  readonly worker?: Omit<WorkerPoolOptions, "file" | "concurrency" | "timeoutMs" | "logger">;
  /** With isolate `process`: a runner of one's own in place of the pool. */
  readonly runner?: HandlerRunner;
  /** Aborting it is `stop()`. */
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
  /** Where warnings and errors go; default the console, null for nowhere. */
  readonly logger?: Logger | null;
  readonly random?: Random;
  /** How often an empty queue that cannot call (no `ready`) is looked at, ms; default 100. */
  readonly pollMs?: number;
  /** How long `stop()` waits for running handlers, ms; default 10,000. */
  readonly drainMs?: number;
  /** Waits after the first, second and later crashes of a message's child, ms; default 1, 5 and 25 s. */
  readonly crashWaitsMs?: readonly number[];
  /** How long after the start the first suspect is run, ms, so that a failing start is not blamed on it; default 1,000. */
  readonly warmUpMs?: number;
}

/** The options with everything decided. */
export interface Plan {
  readonly queue: ConsumerQueue;
  readonly deadLetters: ConsumerLetters;
  readonly handler: Handler | string | URL;
  readonly maxAttempts: number;
  readonly concurrency: number;
  readonly backoff: Backoff;
  readonly timeoutMs: number;
  readonly schema: StandardSchemaV1 | undefined;
  readonly classify: Classify<Message> | undefined;
  readonly isolate: "none" | "process";
  readonly worker: ConsumerOptions["worker"];
  readonly runner: HandlerRunner | undefined;
  readonly signal: AbortSignal | undefined;
  readonly now: () => number;
  readonly logger: Logger;
  readonly random: Random;
  readonly pollMs: number;
  readonly drainMs: number;
  readonly crashWaitsMs: readonly number[];
  readonly warmUpMs: number;
}

const DEFAULT_BACKOFF: Backoff = {
  baseMs: 1_000,
  factor: 2,
  maxMs: 300_000,
  maxAskedMs: DEFAULT_MAX_ASKED_MS,
  jitter: 0.2,
};

const silent: Logger = { info() {}, warn() {}, error() {} };
const loud: Logger = {
  info() {},
  warn: (message, fields) => console.warn(message, fields ?? ""),
  error: (message, fields) => console.error(message, fields ?? ""),
};

/** A logger whose own failure must not decide over a message. */
function safe(logger: Logger): Logger {
  const guard =
    (level: keyof Logger): Logger["info"] =>
    (message, fields) => {
      try {
        logger[level](message, fields);
      } catch {
        // There is nobody left to tell.
      }
    };
  return { info: guard("info"), warn: guard("warn"), error: guard("error") };
}

/** @throws DloError `BAD_ARGUMENT`, naming the option, its value and what was expected. */
export function planFor<B>(options: ConsumerOptions<B>): Plan {
  if (typeof options !== "object" || options === null) {
    throw new DloError(
      "BAD_ARGUMENT",
      `options is ${kindOf(options)}; expected { queue, deadLetters, handler }`,
    );
  }
  checkPorts(options.queue, options.deadLetters);
  const isolate = oneOf("isolate", options.isolate ?? "none", ["none", "process"] as const);
  checkHandler(options, isolate);
  checkSchema(options.schema);
  checkFunction("classify", options.classify);
  checkFunction("random", options.random);
  checkSignal(options.signal);
  const timer = (name: keyof ConsumerOptions, least: number, otherwise: number): number =>
    numberIn(name, options[name] ?? otherwise, least, LONGEST_TIMER_MS);
  return {
    queue: options.queue,
    deadLetters: options.deadLetters,
    handler: options.handler as Plan["handler"],
    maxAttempts: checkMaxAttempts(options.maxAttempts ?? DEFAULT_MAX_ATTEMPTS),
    concurrency: wholeIn("concurrency", options.concurrency ?? 1, 1, 10_000),
    backoff: backoffOf(options.backoff),
    timeoutMs: options.timeoutMs === undefined ? 0 : timer("timeoutMs", 1, 0),
    schema: options.schema as StandardSchemaV1 | undefined,
    classify: options.classify as Classify<Message> | undefined,
    isolate,
    worker: options.worker,
    runner: options.runner,
    signal: options.signal,
    now: nowOf(options.clock ?? { now: Date.now }),
    logger: safe(options.logger === null ? silent : (options.logger ?? loud)),
    random: options.random ?? Math.random,
    pollMs: timer("pollMs", 1, 100),
    drainMs: drainOf(options.drainMs ?? 10_000),
    crashWaitsMs: waitsOf(options.crashWaitsMs),
    warmUpMs: timer("warmUpMs", 0, 1_000),
  };
}

/** How long a stop waits, ms. Infinity is as long as a timer can. @throws DloError `BAD_ARGUMENT` */
export function drainOf(value: unknown): number {
  return Math.min(numberIn("drainMs", value, 0, Number.POSITIVE_INFINITY), LONGEST_TIMER_MS);
}

function bad(name: string, value: unknown, expected: string): DloError {
  const shown = typeof value === "number" || typeof value === "boolean" ? String(value) : kindOf(value);
  const words = typeof value === "string" ? JSON.stringify(value.slice(0, 60)) : shown;
  return new DloError("BAD_ARGUMENT", `${name} is ${words}; expected ${expected}`);
}

function numberIn(name: string, value: unknown, least: number, most: number): number {
  if (typeof value === "number" && value >= least && value <= most) return value;
  throw bad(name, value, `a number from ${least} to ${most}`);
}

function wholeIn(name: string, value: unknown, least: number, most: number): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most)
    return value as number;
  throw bad(name, value, `a whole number from ${least} to ${most}`);
}

function oneOf<T extends string>(name: string, value: unknown, allowed: readonly T[]): T {
  if (allowed.includes(value as T)) return value as T;
  throw bad(name, value, allowed.map((one) => `"${one}"`).join(" or "));
}

function backoffOf(backoff: number | Backoff | undefined): Backoff {
  if (backoff === undefined) return DEFAULT_BACKOFF;
  if (typeof backoff === "number") {
    return { baseMs: numberIn("backoff", backoff, 0, MAX_WAIT_MS), factor: 1 };
  }
  if (typeof backoff !== "object" || backoff === null) {
    throw bad("backoff", backoff, "a number of ms or { baseMs, factor, maxMs, jitter }");
  }
  return checkBackoff(backoff);
}

function waitsOf(waits: readonly number[] | undefined): readonly number[] {
  if (waits === undefined) return SOLO_CRASH_WAITS_MS;
  if (!Array.isArray(waits) || waits.length === 0) {
    throw bad("crashWaitsMs", waits, "a list of at least one number of ms");
  }
  return waits.map((one, at) => numberIn(`crashWaitsMs[${at}]`, one, 0, LONGEST_TIMER_MS));
}

function checkHandler(
  options: Pick<ConsumerOptions, "runner"> & { readonly handler: unknown },
  isolate: "none" | "process",
): void {
  const { handler, runner } = options;
  const file = typeof handler === "string" || handler instanceof URL;
  if (isolate === "process" && !file && runner === undefined) {
    throw bad("handler", handler, "the path of a module: a function cannot be sent to another process");
  }
  if (!file && typeof handler !== "function" && runner === undefined) {
    throw bad("handler", handler, "a function, or the path of a module that exports one");
  }
  if (runner !== undefined && isolate !== "process") {
    throw bad("isolate", isolate, '"process" where a runner is given');
  }
}

function checkSchema(schema: unknown): void {
  if (schema === undefined) return;
  const standard = (schema as { "~standard"?: { validate?: unknown } } | null)?.["~standard"];
  if (typeof standard?.validate === "function") return;
  throw bad("schema", schema, 'a Standard Schema (an object with "~standard".validate)');
}

function checkFunction(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== "function") throw bad(name, value, "a function");
}

function checkSignal(signal: unknown): void {
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw bad("signal", signal, "an AbortSignal");
}
