/**
 * One message on its way through a {@link Consumer}.
 *
 *   running (in a slot) -> done
 *                       -> parked (a delayed retry, or a port that failed: out of the slot, nobody waits for it) -> done
 *                       -> left (stale, given up at a stop, or the process is dying: nothing more is settled)
 */
import {
  type ConsumeRules,
  DloError,
  isPending,
  type Message,
  type Need,
  type Outcome,
  perform,
  processOne,
  type Ran,
  type Steps,
  type World,
  waitAfter,
} from "../core/index.ts";
import type { Maybe } from "../ports/index.ts";
import type { RunContext } from "./handle.ts";
import type { Waits } from "./waits.ts";

/** Waits between tries of a port that fails. */
const PORT_BACKOFF = { baseMs: 100, factor: 2, maxMs: 30_000, jitter: 0.2 };

/** Thrown through a job that nothing more may be settled for. */
export class Left extends Error {
  readonly why: "stale" | "stopped";
  constructor(why: "stale" | "stopped") {
    super(why);
    this.why = why;
  }
}

/** What a job asks of its consumer. */
export interface JobOwner {
  readonly world: World;
  readonly rules: ConsumeRules;
  readonly waits: Waits;
  readonly random: () => number;
  /** Whether the queue itself can hold a retry back. */
  readonly delays: boolean;
  /** True once nothing may be settled any more, or, for a port that fails, tried again. */
  stopping(): boolean;
  run(job: Job, message: Message): Maybe<Ran>;
  /** Out of its slot: somebody else may run. */
  parked(job: Job): void;
  /** It has been seen through. */
  done(job: Job, outcome: Outcome | null): void;
  /** It ended with {@link Left}, or a Crash. */
  failed(job: Job, error: unknown): void;
  portFailed(job: Job, during: string, error: unknown): void;
}

export class Job {
  readonly message: Message;
  readonly steps: Steps<Outcome | null>;
  /** The message as it was started; the settling fence may differ from the received one's. */
  started: Message | null = null;
  startedAt = 0;
  context: RunContext | null = null;
  inSlot = true;
  left: Left | null = null;
  /** What the procedure settled it with, for the events. */
  settled: Need | null = null;
  ran: Ran = undefined;
  readonly #owner: JobOwner;

  constructor(message: Message, owner: JobOwner) {
    this.message = message;
    this.#owner = owner;
    this.steps = processOne(owner.rules);
  }

  /** Sees the message through and tells the owner how it ended; at once while nothing is pending. */
  start(): void {
    let step: IteratorResult<Need, Outcome | null>;
    try {
      step = this.steps.next();
      while (step.done !== true) {
        const need = step.value;
        const answer = this.#answer(need);
        if (isPending(answer)) {
          void this.#later(need, answer);
          return;
        }
        step = this.steps.next(answer);
      }
    } catch (error) {
      this.#owner.failed(this, error);
      return;
    }
    this.#owner.done(this, step.value);
  }

  /** One async function for all that is pending: a message would pay for a promise more at each step. */
  async #later(first: Need, pending: PromiseLike<unknown>): Promise<void> {
    let outcome: Outcome | null;
    try {
      let need = first;
      let answer: unknown = pending;
      for (;;) {
        if (isPending(answer)) {
          try {
            answer = await answer;
          } catch (error) {
            if (need.type === "run" || error instanceof Left) throw error;
            answer = await this.#again(need, error);
          }
          if (need.type === "run") this.#ended(answer as Ran);
        }
        const step = this.steps.next(answer);
        if (step.done === true) {
          outcome = step.value;
          break;
        }
        need = step.value;
        answer = this.#answer(need);
      }
    } catch (error) {
      this.#owner.failed(this, error);
      return;
    }
    this.#owner.done(this, outcome);
  }

  #answer(need: Need): unknown {
    if (need.type === "receive") return this.message;
    if (need.type === "run") return this.#run(need.message);
    if (this.left !== null) throw this.left;
    this.#note(need);
    if (need.type === "retry" && need.delayMs > 0 && !this.#owner.delays) return this.#heldBack(need);
    return this.#ask(need);
  }

  #run(message: Message): Maybe<Ran> {
    this.started = message;
    const ran = this.#owner.run(this, message);
    return isPending(ran) ? ran : this.#ended(ran);
  }

  #ended(ran: Ran): Ran {
    if (this.left !== null) throw this.left;
    this.ran = ran;
    return ran;
  }

  #note(need: Need): void {
    if (need.type === "put" || need.type === "bury" || need.type === "retry" || need.type === "release") {
      this.settled = need;
    }
  }

  /** Calls the port; one that throws is tried again, later. Who awaits the answer sees to it that one that rejects is too. */
  #ask(need: Need): unknown {
    try {
      return perform(need, this.#owner.world);
    } catch (error) {
      return this.#again(need, error);
    }
  }

  /**
   * The same call again and again, with growing waits, until it succeeds: the procedure stands still at it, so
   * nothing is settled in the wrong order. A stop gives it one last try.
   */
  async #again(need: Need, first: unknown): Promise<unknown> {
    let error = first;
    for (let failures = 1; ; failures++) {
      if (isGone(error)) throw this.leave("stale");
      this.#owner.portFailed(this, need.type, error);
      if (this.left !== null) throw this.left;
      if (failures > 1 && this.#owner.stopping()) throw this.leave("stopped");
      if (!(need.type === "has" || need.type === "begin" || need.type === "supersede"))
        this.#owner.parked(this);
      await this.#owner.waits.pause(waitAfter(PORT_BACKOFF, failures, this.#owner.random));
      if (this.left !== null) throw this.left;
      try {
        return await perform(need, this.#owner.world);
      } catch (next) {
        error = next;
      }
    }
  }

  /** For queues that cannot delay: the message stays in our hands meanwhile, out of its slot. A stop ends the wait. */
  async #heldBack(need: Need & { type: "retry" }): Promise<unknown> {
    this.#owner.parked(this);
    await this.#owner.waits.pause(need.delayMs);
    if (this.left !== null) throw this.left;
    const now = { ...need, delayMs: 0 };
    try {
      return await this.#ask(now);
    } catch (error) {
      if (error instanceof Left) throw error;
      return this.#again(now, error);
    }
  }

  /** Nothing more is settled for it. */
  leave(why: "stale" | "stopped"): Left {
    this.left ??= new Left(why);
    return this.left;
  }
}

/** Whether a queue says that this delivery is no longer ours to settle. */
export function isGone(error: unknown): boolean {
  const code =
    error instanceof DloError ? error.code : (error as { code?: unknown } | null | undefined)?.code;
  return code === "STALE_DELIVERY" || code === "NOT_FOUND";
}
