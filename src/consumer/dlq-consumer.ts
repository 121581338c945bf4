import {
  type Classify,
  type ConsumeRules,
  checkMaxAttempts,
  copyBody,
  DEFAULT_MAX_ATTEMPTS,
  DloError,
  type Message,
  type Outcome,
  processOne,
  replay,
  replayRulesFor,
  rulesFor,
  type World,
} from "../core/index.ts";
import type { Clock, DeadLetters, Maybe, Queue } from "../ports/index.ts";
import { drive } from "./drive.ts";
import { listLetters } from "./letters.ts";
import { sendingApart } from "./send-again.ts";

/** What a handler is given: its own copy, which it may change as it likes. */
export type Handled<B = unknown> = Omit<Message<B>, "receipt" | "suspect" | "starts" | "undecodable">;

/** The queue as the consumer needs it. Everything else of {@link Queue} is used when present. */
export type ConsumerQueue<B = unknown> = Pick<Queue<B>, "send" | "receive" | "ack" | "retry"> &
  Partial<Queue<B>>;

/** The store as the consumer needs it. Everything else of {@link DeadLetters} is used when present. */
export type ConsumerLetters<B = unknown> = Pick<DeadLetters<B>, "put" | "has" | "remove"> &
  Partial<DeadLetters<B>>;

/** The body type of a queue's messages. */
export type BodyOf<Q> = Q extends { receive(): infer R }
  ? NonNullable<Awaited<R>> extends { body: infer B }
    ? B
    : unknown
  : unknown;

/** Whether calling `F` gives a promise: true, false, or boolean where its type leaves that open. */
type Pending<F> = F extends (...args: never[]) => infer R
  ? 0 extends 1 & R
    ? boolean
    : [Extract<R, PromiseLike<unknown>>] extends [never]
      ? false
      : [Exclude<R, PromiseLike<unknown>>] extends [never]
        ? true
        : boolean
  : false;

type Answer<P, R> = [P] extends [false] ? R : true extends P ? (false extends P ? Maybe<R> : Promise<R>) : R;

/** One `true` among the flags makes it true; a boolean leaves it open; only `false` makes it false. */
type Any<A, B> = [A] extends [true] ? true : [B] extends [true] ? true : A | B;

type Consuming<Q, D, H> = Any<
  Any<
    Any<Pending<Q extends { receive: infer F } ? F : never>, Pending<Q extends { ack: infer F } ? F : never>>,
    Any<Pending<Q extends { retry: infer F } ? F : never>, Pending<D extends { has: infer F } ? F : never>>
  >,
  Any<Pending<D extends { put: infer F } ? F : never>, Pending<H>>
>;

type Replaying<Q, D> = Any<
  Any<Pending<Q extends { send: infer F } ? F : never>, Pending<D extends { remove: infer F } ? F : never>>,
  Pending<D extends { list: infer F } ? F : never>
>;

/** Options beyond the contract's five arguments. */
export interface DLQConsumerOptions<B = unknown> {
  /** A view of one's own on what a failure means; see {@link classify}. */
  readonly classify?: Classify<Message<B>>;
}

/**
 * One message at a time by the contract: handled, sent back, or moved to the dead letters exactly once. The count
 * is the queue's, so a new consumer on the same queue goes on where a dead one stopped.
 *
 * With synchronous ports and handler `processOne` and `replay` answer at once; otherwise with a promise.
 *
 * @example
 * const consumer = new DLQConsumer(queue, deadLetters, (message) => ship(message.body), { now: Date.now });
 * consumer.processOne(); // "ok" | "retry" | "dead" | null
 */
export class DLQConsumer<
  Q extends ConsumerQueue = ConsumerQueue,
  D extends ConsumerLetters = ConsumerLetters,
  H extends (message: Handled<BodyOf<Q>>) => unknown = (message: Handled<BodyOf<Q>>) => unknown,
> {
  readonly #world: World;
  readonly #rules: ConsumeRules;

  /**
   * @throws DloError `BAD_ARGUMENT` where a port lacks a method (named), the handler is no function, or
   * `maxAttempts` is not a whole number of at least 1.
   */
  constructor(
    queue: Q,
    deadLetters: D,
    handler: H,
    clock: Clock | (() => number) = { now: Date.now },
    maxAttempts: number = DEFAULT_MAX_ATTEMPTS,
    options: DLQConsumerOptions<BodyOf<Q>> = {},
  ) {
    checkPorts(queue, deadLetters);
    if (typeof handler !== "function") {
      throw new DloError("BAD_ARGUMENT", `handler is ${kindOf(handler)}; expected a function`);
    }
    this.#rules = rulesFor(queue, checkMaxAttempts(maxAttempts), {
      classify: options.classify as Classify<Message> | undefined,
    });
    this.#world = {
      queue: queue as World["queue"],
      deadLetters: deadLetters as World["deadLetters"],
      run: (message) => handler(copyFor(message as Message<BodyOf<Q>>)),
      list: () => listLetters(deadLetters),
      now: nowOf(clock),
      ...sendingApart(queue),
    };
  }

  /**
   * Takes the next message and sees it through: `"ok"` handled and acked, `"retry"` sent to the back of the queue,
   * `"dead"` moved to the dead letters (or found there), null when nothing was waiting.
   *
   * Throws a handler's {@link Crash} and whatever a port throws; the message is then still in flight. A process
   * that dies in here leaves it in flight too, or, between put and ack, in the store as well: the next consumer
   * finds it there and only acks.
   */
  processOne(): Answer<Consuming<Q, D, H>, Outcome | null> {
    return drive(processOne(this.#rules), this.#world) as Answer<Consuming<Q, D, H>, Outcome | null>;
  }

  /**
   * Sends letters back to the queue under their own ids, starting again at receiveCount 1; all of them in the
   * store's order, or those with the given ids, each once. Answers the ids sent; unknown ids are not among them.
   * A store may serve several queues: letters that say they died in another one than this stay where they are.
   *
   * A process that dies in here leaves the letter it was at in the store, and perhaps in the queue as well.
   */
  replay(ids?: readonly string[] | null): Answer<Replaying<Q, D>, string[]> {
    if (ids !== undefined && ids !== null && !Array.isArray(ids)) {
      throw new DloError("BAD_ARGUMENT", `ids is ${kindOf(ids)}; expected an array of message ids`);
    }
    const store = this.#world.deadLetters;
    checkMethods("queue", this.#world.queue, ["send"]);
    checkMethods("deadLetters", store, ["remove"]);
    return drive(replay(replayRulesFor(store, this.#world.queue), ids), this.#world) as Answer<
      Replaying<Q, D>,
      string[]
    >;
  }
}

const has = (object: object, method: string): boolean =>
  typeof (object as Record<string, unknown>)[method] === "function";

/** What a value is, for an error message; never the value itself. */
export function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : typeof value;
}

/** Refuses ports that lack a method, naming it (`BAD_ARGUMENT`). */
export function checkPorts(queue: unknown, deadLetters: unknown): void {
  checkMethods("queue", queue, ["receive", "ack", "retry"]);
  checkMethods("deadLetters", deadLetters, ["put", "has"]);
}

function checkMethods(name: string, port: unknown, methods: readonly string[]): void {
  if (typeof port !== "object" && typeof port !== "function") {
    throw new DloError(
      "BAD_ARGUMENT",
      `${name} is ${kindOf(port)}; expected an object with ${methods.join(", ")}`,
    );
  }
  if (port === null) {
    throw new DloError("BAD_ARGUMENT", `${name} is null; expected an object with ${methods.join(", ")}`);
  }
  for (const method of methods) {
    if (!has(port, method)) {
      throw new DloError("BAD_ARGUMENT", `${name}.${method} is missing; expected a method of that name`);
    }
  }
}

/** The time, from a clock or a function. */
export function nowOf(clock: unknown): () => number {
  if (typeof clock === "object" && clock !== null && has(clock, "now")) {
    return () => (clock as Clock).now();
  }
  if (typeof clock === "function") {
    return has(clock, "now") ? () => (clock as unknown as Clock).now() : (clock as () => number);
  }
  throw new DloError("BAD_ARGUMENT", `clock is ${kindOf(clock)}; expected an object with now()`);
}

/** The message as the handler sees it: a copy of its own, without what belongs to the consumer. */
export function copyFor<B>(message: Message<B>): Handled<B> {
  const { generation, headers, properties, raw } = message;
  const copy: { -readonly [K in keyof Handled<B>]: Handled<B>[K] } = {
    id: message.id,
    body: copyBody(message.body),
    receiveCount: message.receiveCount,
    firstReceivedAt: message.firstReceivedAt,
  };
  // Fields one by one: spreading empty objects into it costs more than all the rest.
  if (generation !== undefined) copy.generation = generation;
  if (headers !== undefined) copy.headers = copyBody(headers);
  if (properties !== undefined) copy.properties = copyBody(properties);
  if (raw !== undefined) copy.raw = copyBody(raw);
  return copy;
}
