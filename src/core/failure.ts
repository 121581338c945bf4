/**
 * Failures: which class a thrown value is of, and what can be said about it. Thrown values are foreign: they may
 * be no errors, come from another realm or another copy of this package, and fight back when read. Nothing here
 * throws, whatever it is given.
 */

/** What a failure means: it will never work; it may work next time; the process is dying. */
export type FailureClass = "permanent" | "transient" | "crash";

/** A user's own view of an error; undefined leaves it to the built-in rule. */
export type Classify<M = unknown> = (error: unknown, message: M) => FailureClass | undefined;

/** Registered, so that two copies of the package know each other's errors. */
const BRAND = Symbol.for("dead-letter-office.failure");

/** On the class, not on each error: a handler that fails makes many. */
function brand(prototype: Error, value: FailureClass): void {
  Object.defineProperty(prototype, BRAND, { value });
}

/** Longest error text kept, in characters; what is longer is cut with a visible mark. */
export const MAX_ERROR_TEXT = 16_384;
/** How deep inner errors and causes are followed, and how many of one level are named. */
const MAX_DEPTH = 5;
const MAX_INNER = 10;

/**
 * Thrown by a handler: this message will fail the same way for ever. It is dead-lettered at once.
 *
 * @example throw new PermanentError("price is negative");
 */
export class PermanentError extends Error {
  static {
    brand(PermanentError.prototype, "permanent");
  }

  override readonly name: string = "PermanentError";

  constructor(message?: string, options: { cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
  }
}

/** Thrown by a handler: may work next time. `retryAfter` (ms) asks for a pause before that. */
export class TransientError extends Error {
  static {
    brand(TransientError.prototype, "transient");
  }

  override readonly name: string = "TransientError";
  readonly retryAfter?: number;

  constructor(message?: string, options: { cause?: unknown; retryAfter?: number } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    if (options.retryAfter !== undefined) this.retryAfter = options.retryAfter;
  }
}

/** The process dying in the middle of a handler, as tests play it. Passed on, and the queue is not touched. */
export class Crash extends Error {
  static {
    brand(Crash.prototype, "crash");
  }

  override readonly name: string = "Crash";

  constructor(message?: string, options: { cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
  }
}

const BY_NAME: Readonly<Record<string, FailureClass>> = {
  PermanentError: "permanent",
  TransientError: "transient",
  Crash: "crash",
};

/** A property of a foreign object; undefined when reading it throws. */
function read(from: object, key: PropertyKey): unknown {
  try {
    return (from as Record<PropertyKey, unknown>)[key];
  } catch {
    return undefined;
  }
}

/** Whether a foreign object has a property at all, readable or not. */
function has(object: object, key: PropertyKey): boolean {
  try {
    return Reflect.has(object, key);
  } catch {
    return false;
  }
}

const isObject = (value: unknown): value is object =>
  (typeof value === "object" && value !== null) || typeof value === "function";

function named(name: unknown): FailureClass | undefined {
  return typeof name === "string" && Object.hasOwn(BY_NAME, name) ? BY_NAME[name] : undefined;
}

/** By the names of the classes it descends from: a subclass with a name of its own stays what it is. */
function byAncestry(error: object): FailureClass | undefined {
  try {
    let proto: object | null = Object.getPrototypeOf(error);
    for (let depth = 0; proto !== null && depth < 20; depth++) {
      const make = Object.hasOwn(proto, "constructor") ? read(proto, "constructor") : undefined;
      const found = typeof make === "function" ? named(read(make, "name")) : undefined;
      if (found) return found;
      proto = Object.getPrototypeOf(proto);
    }
  } catch {
    // A proxy that does not want to be looked at: nothing is known of it.
  }
  return undefined;
}

/**
 * The class of a failure: the user's answer first, then the brand, then `name`, then the names of the classes it
 * descends from. Anything unknown is transient. A classifier that throws or answers nonsense is not heard.
 */
export function classify<M>(error: unknown, custom?: Classify<M>, message?: M): FailureClass {
  if (custom) {
    try {
      const own = custom(error, message as M);
      if (own === "permanent" || own === "transient" || own === "crash") return own;
    } catch {
      // Its fault must not decide over the message.
    }
  }
  if (!isObject(error)) return "transient";
  const brand = read(error, BRAND) ?? read(error, "failureClass");
  if (brand === "permanent" || brand === "transient" || brand === "crash") return brand;
  return named(read(error, "name")) ?? byAncestry(error) ?? "transient";
}

/** How long the error asks to wait, ms: its `retryAfterMs` or `retryAfter` (a number of ms, or a Date). */
export function retryAfterOf(error: unknown, now: number): number | undefined {
  if (!isObject(error)) return undefined;
  const asked = read(error, "retryAfterMs") ?? read(error, "retryAfter");
  if (typeof asked === "number") return Number.isFinite(asked) && asked >= 0 ? asked : undefined;
  const at = isObject(asked) ? read(asked, "getTime") : undefined;
  if (typeof at !== "function") return undefined;
  try {
    const ms = Number(at.call(asked)) - now;
    return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
  } catch {
    return undefined;
  }
}

/** Cuts a text to `limit` characters, with a mark that says how long it was. */
export function cut(text: string, limit: number = MAX_ERROR_TEXT): string {
  if (text.length <= limit) return text;
  const mark = `… (cut, ${text.length} characters)`;
  return text.slice(0, Math.max(0, limit - mark.length)) + mark;
}

/** A foreign value as text; never throws. */
function textOf(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "(unreadable)";
  }
}

function nameOf(error: object): string {
  const name = read(error, "name");
  if (typeof name === "string" && name !== "") return name;
  const make = read(error, "constructor");
  const own = typeof make === "function" ? read(make, "name") : undefined;
  return typeof own === "string" && own !== "" ? own : "Error";
}

/** A thrown object that is no error, by its plain fields: what was thrown must be recognisable. */
function fieldsOf(value: object): string {
  try {
    const seen = new Set<unknown>();
    const text = JSON.stringify(value, (_key, inner: unknown) => {
      if (typeof inner === "bigint" || typeof inner === "symbol" || typeof inner === "function") {
        return textOf(inner).slice(0, 100);
      }
      if (!isObject(inner)) return inner;
      if (seen.has(inner)) return "(seen above)";
      seen.add(inner);
      return inner;
    });
    if (typeof text === "string") return cut(text, 1_000);
  } catch {
    // Falls through: a getter or toJSON of its own threw.
  }
  const code = read(value, "code");
  return code === undefined ? "(an object that cannot be read)" : `(unreadable) code ${textOf(code)}`;
}

/** The list of an AggregateError's inner errors; anything else has none. */
function innerOf(error: object): unknown[] {
  const errors = read(error, "errors");
  try {
    return Array.isArray(errors) ? errors.slice(0, MAX_INNER) : [];
  } catch {
    return [];
  }
}

function describeObject(error: object, depth: number): string {
  if (typeof error === "function") return `NonError: ${cut(textOf(error), 200)}`;
  const name = nameOf(error);
  const message = read(error, "message");
  const text = read(error, "text");
  // From another process: described there, where the thrown value itself was at hand.
  if (typeof text === "string" && typeof message === "string" && text === `${name}: ${message}`)
    return cut(text);
  if (message === undefined && !has(error, "message")) return `NonError: ${fieldsOf(error)}`;
  const words = message === undefined ? "(its message cannot be read)" : textOf(message);
  const inner = depth < MAX_DEPTH ? innerOf(error) : [];
  const more = inner.length > 0 ? ` [${inner.map((one) => describeAt(one, depth + 1)).join("; ")}]` : "";
  return cut(`${name}: ${words}${more}`);
}

function describeAt(error: unknown, depth: number): string {
  try {
    return isObject(error) ? describeObject(error, depth) : `NonError: ${cut(textOf(error))}`;
  } catch {
    return "NonError: (unreadable)";
  }
}

/**
 * What a letter says about an error: always a string, `Name: message`. Values that are no errors are called
 * `NonError`; the inner errors of an AggregateError follow in brackets.
 *
 * @example describe(new TypeError("x is not a function")) // "TypeError: x is not a function"
 */
export function describe(error: unknown): string {
  return describeAt(error, 0);
}

/** The error's stack, where it has one as text. */
export function stackOf(error: unknown): string | undefined {
  const stack = isObject(error) ? read(error, "stack") : undefined;
  return typeof stack === "string" && stack !== "" ? cut(stack) : undefined;
}

/** An error as it crosses a process boundary. Every field is plain data, whatever was thrown. */
export interface SerializedError {
  /** The class's name; the failure classes are recognised by it (`PermanentError`, `TransientError`). */
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  /** The error's `code`, where it had one. */
  readonly code?: string;
  readonly cause?: SerializedError;
  /** The inner errors of an AggregateError. */
  readonly errors?: readonly SerializedError[];
  /** How long the error asks to wait before the next try, ms. */
  readonly retryAfterMs?: number;
  /** What its class says, where `name` alone does not (a subclass of PermanentError with its own name). */
  readonly failureClass?: FailureClass;
  /** `Name: message` as {@link describe} put it where it was thrown. */
  readonly text?: string;
  /** Its other own properties that are plain text, numbers, true or false (`status`, `errno`, a numeric `code`). */
  readonly props?: Readonly<Record<string, string | number | boolean>>;
}

/** Most own properties carried, and the longest text among them, in characters. */
const MAX_PROPS = 32;
const MAX_PROP_TEXT = 1_000;
const NOT_PROPS = new Set([
  "name",
  "message",
  "stack",
  "cause",
  "errors",
  "retryAfterMs",
  "failureClass",
  "text",
  "props",
]);

/** The own properties of an error that are plain; objects may hold anything, secrets too, and stay behind. */
function propsOf(error: object): Record<string, string | number | boolean> | undefined {
  const props: Record<string, string | number | boolean> = {};
  let count = 0;
  try {
    for (const key of Object.keys(error)) {
      if (NOT_PROPS.has(key) || key === "__proto__") continue;
      const value = read(error, key);
      if (typeof value === "string") props[key] = cut(value, MAX_PROP_TEXT);
      else if (typeof value === "number" || typeof value === "boolean") props[key] = value;
      else continue;
      if (++count >= MAX_PROPS) break;
    }
  } catch {
    // A proxy that does not list its keys: what was read so far is kept.
  }
  return count === 0 ? undefined : props;
}

/**
 * The error of another process as a rule of the user's may look at it: own properties (`error.status`) stand where
 * they stood. It is no `Error`: tell it by name.
 */
export function revived(error: SerializedError): SerializedError {
  return error.props === undefined ? error : { ...error, ...error.props };
}

/**
 * Any thrown value as plain data, with stack, code, causes and inner errors, cut to budgets. What comes out is
 * classified and described as the value itself would be. `now` (epoch ms) turns a `retryAfter` date into ms.
 */
export function serializeError(error: unknown, now: number = 0): SerializedError {
  return serializeAt(error, now, 0, new Set());
}

function serializeAt(error: unknown, now: number, depth: number, seen: Set<unknown>): SerializedError {
  const text = describe(error);
  if (!isObject(error)) return { name: "NonError", message: cut(textOf(error)), text };
  seen.add(error);
  const name = text.startsWith("NonError: ") ? "NonError" : nameOf(error);
  const message = text.slice(name.length + 2);
  const follow = (inner: unknown): SerializedError | undefined =>
    depth >= MAX_DEPTH || seen.has(inner) ? undefined : serializeAt(inner, now, depth + 1, seen);
  const stack = stackOf(error);
  const code = read(error, "code");
  const cause = read(error, "cause");
  const chained = cause === undefined || cause === null ? undefined : follow(cause);
  const errors = innerOf(error)
    .map(follow)
    .filter((one) => one !== undefined);
  const wait = retryAfterOf(error, now);
  const failureClass = classify(error);
  const props = propsOf(error);
  return {
    name,
    message,
    text,
    ...(stack === undefined ? {} : { stack }),
    ...(typeof code === "string" || typeof code === "number"
      ? { code: cut(String(code), MAX_PROP_TEXT) }
      : {}),
    ...(chained === undefined ? {} : { cause: chained }),
    ...(errors.length === 0 ? {} : { errors }),
    ...(wait === undefined ? {} : { retryAfterMs: wait }),
    ...(failureClass === "transient" ? {} : { failureClass }),
    ...(props === undefined ? {} : { props }),
  };
}
