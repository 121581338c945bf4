/**
 * processOne: what happens to one message, and in which order. Each order below is needed; the checker in
 * test/explore switches each rule off and shows what is then lost or doubled.
 *
 *   receive -> nothing: null
 *           -> has the DLQ this life of it?        ack: dead      (died between put and ack)
 *           -> a later life: the earlier entry goes               (replayer died between send and remove)
 *           -> starts used up?                     letter: poison, handler not called
 *           -> cannot be decoded?                  letter: permanent, handler not called
 *           -> begin -> run -> returned            ack: ok
 *                           -> Crash               thrown on, no call at all
 *                           -> process crashed     retry, or letter: poison
 *                           -> interrupted         release: not counted
 *                           -> failed              retry, or letter: permanent, exhausted
 *   letter  -> bury (put and ack in one transaction), or put, then ack
 */
import { afterFailure, isPoison, letterOf, runsBefore } from "./decide.ts";
import { type Classify, classify, describe, stackOf } from "./failure.ts";
import type { DeadLetter, Message, Outcome, Reason } from "./message.ts";
import type { Need, Ran, Steps } from "./steps.ts";

/** What the procedure must know of its surroundings. */
export interface ConsumeRules {
  readonly maxAttempts: number;
  /** The queue has `begin`: starts are counted, not receives. */
  readonly begins: boolean;
  /** The queue has `bury`. */
  readonly buries: boolean;
  /** The queue has `release`. */
  readonly releases: boolean;
  readonly queueName?: string | undefined;
  readonly classify?: Classify<Message> | undefined;
  /** How long to wait before the next try, ms, by how the last run ended; absent: at once. */
  readonly delay?: ((message: Message, ran: NonNullable<Ran>) => number) | undefined;
}

/** The rules for a queue, by which of the optional methods it has. */
export function rulesFor(
  queue: { name?: unknown; begin?: unknown; bury?: unknown; release?: unknown },
  maxAttempts: number,
  own: Pick<ConsumeRules, "classify" | "delay"> = {},
): ConsumeRules {
  return {
    maxAttempts,
    begins: typeof queue.begin === "function",
    buries: typeof queue.bury === "function",
    releases: typeof queue.release === "function",
    queueName: typeof queue.name === "string" ? queue.name : undefined,
    classify: own.classify,
    delay: own.delay,
  };
}

const RECEIVE: Need = { type: "receive" };
const NOW: Need = { type: "now" };

/**
 * Takes one message and sees it through. Answers what became of it, null when nothing was waiting. Throws what a
 * port throws, and a Crash of the handler; the message then stays in flight, for `recover` to bring back.
 */
export function* processOne(rules: ConsumeRules): Steps<Outcome | null> {
  const message = (yield RECEIVE) as Message | null | undefined;
  if (message === null || message === undefined) return null;
  if (yield { type: "has", message }) {
    yield { type: "ack", message };
    return "dead";
  }
  if (message.generation !== undefined && message.generation > 1) yield { type: "supersede", message };
  if (isPoison(message, rules.maxAttempts)) {
    return yield* bury(rules, message, "poison", null, runsBefore(message, rules.maxAttempts));
  }
  if (message.undecodable !== undefined) {
    return yield* bury(
      rules,
      message,
      "permanent",
      `DecodeError: ${message.undecodable}`,
      message.receiveCount,
    );
  }
  const started = rules.begins ? ((yield { type: "begin", message }) as Message) : message;
  const ran = (yield { type: "run", message: started }) as Ran;
  if (ran === undefined) {
    yield { type: "ack", message: started };
    return "ok";
  }
  return yield* afterRun(rules, started, ran);
}

/** The handler did not return. */
function* afterRun(rules: ConsumeRules, message: Message, ran: NonNullable<Ran>): Steps<Outcome> {
  if (ran.ended === "interrupted") {
    yield rules.releases ? { type: "release", message } : { type: "retry", message, delayMs: 0, error: null };
    return "retry";
  }
  if (ran.ended === "crashed") {
    if (message.receiveCount >= rules.maxAttempts) {
      return yield* bury(rules, message, "poison", null, message.receiveCount, { cause: ran.cause });
    }
    return yield* again(rules, message, null, ran);
  }
  const failure = classify(ran.error, rules.classify, message);
  if (failure === "crash") throw ran.error;
  const verdict = afterFailure(failure, message.receiveCount, rules.maxAttempts);
  const error = describe(ran.error);
  if (verdict === "retry") return yield* again(rules, message, error, ran);
  return yield* bury(rules, message, verdict, error, message.receiveCount, { stack: stackOf(ran.error) });
}

/** To the back of the queue. */
function* again(
  rules: ConsumeRules,
  message: Message,
  error: string | null,
  ran: NonNullable<Ran>,
): Steps<Outcome> {
  const delayMs = rules.delay?.(message, ran) ?? 0;
  yield ran.ended === "crashed"
    ? { type: "retry", message, delayMs, error, cause: ran.cause }
    : { type: "retry", message, delayMs, error };
  return "retry";
}

/** Dead-letters it: one transaction where queue and store share one, else the entry first and then the ack. */
function* bury(
  rules: ConsumeRules,
  message: Message,
  reason: Reason,
  error: string | null,
  attempts: number,
  known: { readonly stack?: string | undefined; readonly cause?: string } = {},
): Steps<Outcome> {
  const failedAt = (yield NOW) as number;
  const evidence = { ...known, sourceQueue: rules.queueName };
  const entry: DeadLetter = letterOf(message, reason, error, attempts, failedAt, evidence);
  if (rules.buries && (yield { type: "bury", message, entry }) === true) return "dead";
  yield { type: "put", entry };
  yield { type: "ack", message };
  return "dead";
}
