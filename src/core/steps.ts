/**
 * A procedure is a generator that asks the world for one thing at a time and says nothing about how it is done:
 * at once, with a promise, by a checker that stops it before and after each effect. `perform` is the one place
 * that turns a need into a call of a port.
 */
import type { DeadLetter, Message } from "./message.ts";

/** What a procedure asks of the world. `run` is answered by {@link Ran}; everything else by the port's answer. */
export type Need =
  | { readonly type: "receive" }
  | { readonly type: "has"; readonly message: Message }
  | { readonly type: "supersede"; readonly message: Message }
  | { readonly type: "begin"; readonly message: Message }
  | { readonly type: "run"; readonly message: Message }
  | { readonly type: "now" }
  | { readonly type: "put"; readonly entry: DeadLetter }
  | { readonly type: "bury"; readonly message: Message; readonly entry: DeadLetter }
  | { readonly type: "ack"; readonly message: Message }
  | {
      readonly type: "retry";
      readonly message: Message;
      readonly delayMs: number;
      readonly error: string | null;
      /** How its process died, where it did. */
      readonly cause?: string;
    }
  | { readonly type: "release"; readonly message: Message }
  | { readonly type: "list" }
  | { readonly type: "mark"; readonly entry: DeadLetter }
  | { readonly type: "resend"; readonly entry: DeadLetter }
  | { readonly type: "send"; readonly entry: DeadLetter }
  | { readonly type: "remove"; readonly entry: DeadLetter };

/** A procedure that ends with an `R`. */
export type Steps<R> = Generator<Need, R, unknown>;

/**
 * How a run of the handler ended. undefined: it returned. `failed`: it threw. `crashed`: its process died, a start
 * without an outcome. `interrupted`: ended by a cause that lies elsewhere; not counted.
 */
export type Ran =
  | undefined
  | { readonly ended: "failed"; readonly error: unknown }
  | { readonly ended: "crashed"; readonly cause: string }
  | { readonly ended: "interrupted"; readonly cause: string };

type Maybe<T> = T | PromiseLike<T>;

/** The ports as `perform` calls them; `src/ports` has them in full, with what they promise. */
export interface World {
  readonly queue: {
    readonly name?: unknown;
    send(message: never, id?: string): Maybe<unknown>;
    receive(): Maybe<unknown>;
    ack(id: string, receipt?: string | number): Maybe<unknown>;
    retry(
      id: string,
      receipt?: string | number,
      options?: { delayMs?: number; error?: string },
    ): Maybe<unknown>;
    begin?(id: string, receipt?: string | number): Maybe<unknown>;
    release?(id: string, receipt?: string | number): Maybe<unknown>;
    bury?(id: string, receipt: string | number | undefined, entry: never, letters: never): Maybe<unknown>;
  };
  readonly deadLetters: {
    put(entry: never): Maybe<unknown>;
    has(id: string, generation?: number, body?: never, sourceQueue?: string): Maybe<unknown>;
    remove(id: string, generation?: number, body?: never, sourceQueue?: string): Maybe<unknown>;
    list?(): Maybe<unknown>;
    markReplaying?(id: string, generation: number, sourceQueue?: string): Maybe<unknown>;
    resend?(id: string, generation: number, queue: never): Maybe<unknown>;
  };
  /** Runs the handler. What it throws or rejects with is the handler's own failure. */
  run(message: Message): unknown;
  /** All letters, for stores whose `list` goes by another name. */
  list?(): unknown;
  /** Sends a letter without a generation, for queues whose `send` takes id and body apart. */
  send?(entry: DeadLetter): unknown;
  now(): number;
}

/** Whether an answer is still pending. */
export function isPending(answer: unknown): answer is PromiseLike<unknown> {
  return (
    answer !== null &&
    (typeof answer === "object" || typeof answer === "function") &&
    typeof (answer as { then?: unknown }).then === "function"
  );
}

const failed = (error: unknown): Ran => ({ ended: "failed", error });
const returned = (): Ran => undefined;

/** Runs the handler; the only call that stands in a `try`, so that no other failure is taken for the handler's. */
function run(world: World, message: Message): Maybe<Ran> {
  try {
    const answer = world.run(message);
    return isPending(answer) ? answer.then(returned, failed) : undefined;
  } catch (error) {
    return failed(error);
  }
}

/** Settles by id alone where the queue issues no receipts: a plain queue sees exactly one argument. */
function retry(world: World, need: Need & { type: "retry" }): unknown {
  const { id, receipt } = need.message;
  if (receipt === undefined && need.delayMs === 0) return world.queue.retry(id);
  return world.queue.retry(id, receipt, {
    ...(need.delayMs === 0 ? {} : { delayMs: need.delayMs }),
    ...(need.error === null ? {} : { error: need.error }),
    ...(need.cause === undefined ? {} : { cause: need.cause }),
  });
}

/** The queue's name, where it has one. */
function sourceOf({ queue }: World): string | undefined {
  return typeof queue.name === "string" ? queue.name : undefined;
}

/**
 * Almost always nothing is known of an id, and a store that must encode a body to compare it would do so for every
 * message: body and queue are shown only where there is something to compare them with.
 */
function has(world: World, { id, generation, body }: Message): unknown {
  const { deadLetters } = world;
  if (generation === undefined) return deadLetters.has(id);
  const ofThisOne = (known: unknown): unknown =>
    known ? deadLetters.has(id, generation, body as never, sourceOf(world)) : known;
  const known = deadLetters.has(id, generation);
  return isPending(known) ? known.then(ofThisOne) : ofThisOne(known);
}

/** Of several messages under one id the one with this body, of this queue. */
function remove(
  { deadLetters }: World,
  { id, generation, body }: Pick<DeadLetter, "id" | "generation" | "body">,
  source: string | undefined,
): unknown {
  if (generation === undefined) return deadLetters.remove(id);
  return deadLetters.remove(id, generation, body as never, source);
}

/** The entry of the life before this one. */
function supersede(world: World, { id, generation = 1, body }: Message): unknown {
  return remove(world, { id, generation: generation - 1, body }, sourceOf(world));
}

/** The message a letter becomes again: its own id and body, and, where lives are counted, the next life. */
function resendOf(entry: DeadLetter): never {
  if (entry.generation === undefined) return { id: entry.id, body: entry.body } as never;
  return {
    id: entry.id,
    body: entry.body,
    generation: entry.generation + 1,
    ...(entry.headers === undefined ? {} : { headers: entry.headers }),
    ...(entry.properties === undefined ? {} : { properties: entry.properties }),
    ...(entry.raw === undefined ? {} : { raw: entry.raw }),
  } as never;
}

/** Answers a need by calling the port it is for. A port that throws, throws out of here. */
export function perform(need: Need, world: World): unknown {
  switch (need.type) {
    case "receive":
      return world.queue.receive();
    case "has":
      return has(world, need.message);
    case "run":
      return run(world, need.message);
    case "ack": {
      const { id, receipt } = need.message;
      return receipt === undefined ? world.queue.ack(id) : world.queue.ack(id, receipt);
    }
    case "begin":
      return world.queue.begin?.(need.message.id, need.message.receipt);
    case "retry":
      return retry(world, need);
    case "now":
      return world.now();
    case "put":
      return world.deadLetters.put(need.entry as never);
    case "bury": {
      const { id, receipt } = need.message;
      return world.queue.bury?.(id, receipt, need.entry as never, world.deadLetters as never);
    }
    case "release":
      return world.queue.release?.(need.message.id, need.message.receipt);
    case "supersede":
      return supersede(world, need.message);
    case "list":
      return world.list ? world.list() : world.deadLetters.list?.();
    case "mark": {
      const { id, generation = 1, sourceQueue } = need.entry;
      return world.deadLetters.markReplaying?.(id, generation, sourceQueue);
    }
    case "resend":
      return world.deadLetters.resend?.(need.entry.id, need.entry.generation ?? 1, world.queue as never);
    case "send":
      return world.send !== undefined && need.entry.generation === undefined
        ? world.send(need.entry)
        : world.queue.send(resendOf(need.entry));
    case "remove":
      return remove(world, need.entry, need.entry.sourceQueue);
  }
}
