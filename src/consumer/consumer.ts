/**
 * The loop people use.
 *
 *   new --run()--> running --stop(), signal, until idle--> stopping (started handlers finish) --> stopped
 *                  running --a Crash, or no handler can be started--> stopped, and run() rejects
 */
import {
  type ConsumeRules,
  DloError,
  describe,
  isPending,
  type Message,
  mayReceive,
  type Outcome,
  type Ran,
  retryAfterOf,
  rulesFor,
  type World,
  waitAfter,
} from "../core/index.ts";
import type { HandlerRunner, Maybe } from "../ports/index.ts";
import { join } from "./agree.ts";
import { Calls } from "./calls.ts";
import { Deadlines } from "./deadlines.ts";
import { type ConsumerEvents, Emitter } from "./events.ts";
import { handlerOf, poolFor, RunContext, runHere, runThere } from "./handle.ts";
import { keepHolds } from "./holds.ts";
import { isGone, Job, type JobOwner, Left } from "./job.ts";
import { type ConsumerOptions, drainOf, type Handler, type Plan, planFor } from "./options.ts";
import { report } from "./report.ts";
import { Change, Waits } from "./waits.ts";

/** Messages out of their slot (delayed, or waiting for a port) at a time; then nothing more is received. */
const MAX_PARKED = 10_000;
/** Messages handled in one go before timers and I/O get their turn. */
const TURN = 128;
/** Waits between tries of a queue that cannot be received from. */
const RECEIVE_BACKOFF = { baseMs: 100, factor: 2, maxMs: 10_000, jitter: 0.2 };

/** How long {@link Consumer.run} goes on. */
export interface RunOptions {
  /** `idle`: until nothing is waiting, in flight or delayed any more. Default: until it is stopped. */
  readonly until?: "stopped" | "idle";
}

/**
 * Takes messages from a queue, many at a time if asked to, and sees each through by the rules of
 * {@link DLQConsumer}, with everything a service needs around them: waits between tries that hold up nobody behind,
 * time limits, a schema, handlers in child processes, suspects that run alone, a stop that lets handlers finish.
 *
 * Nothing is acked that is not handled or safely among the dead letters: where a port fails, the consumer says so
 * (event `error` and the logger), serves the rest and tries again.
 *
 * @example
 * const consumer = new Consumer({ queue, deadLetters, handler: (message) => ship(message.body), concurrency: 10 });
 * consumer.on("dead", ({ id, reason, error }) => console.error(id, reason, error));
 * process.once("SIGTERM", () => consumer.stop());
 * await consumer.run();
 */
export class Consumer<B = unknown> {
  readonly #plan: Plan;
  readonly #rules: ConsumeRules;
  readonly #world: World;
  readonly #events: Emitter<ConsumerEvents>;
  readonly #jobs = new Set<Job>();
  readonly #waits = new Waits();
  readonly #change = new Change();
  readonly #calls: Calls;
  readonly #deadlines: Deadlines | null;
  readonly #stopped = new AbortController();
  readonly #owner: JobOwner;
  #handler: Handler | null = null;
  #runner: HandlerRunner | null = null;
  #running = 0;
  #suspect: Message | null = null;
  #startedAt = 0;
  #fatal: { readonly error: unknown } | null = null;
  /** Why no handler can be started. */
  #unable: { readonly error: unknown } | null = null;
  /** Nothing more is received. A field, because a signal is slow to ask and every message asks. */
  #ending = false;
  /** It was said that nothing is waiting and nothing is running. */
  #saidIdle = false;
  #ended: Promise<void> | null = null;
  #stopping: Promise<void> | null = null;

  /** @throws DloError `BAD_ARGUMENT`, naming the option, its value and what was expected. */
  constructor(options: ConsumerOptions<B>) {
    const plan = planFor(options);
    this.#plan = plan;
    this.#events = new Emitter((error) => plan.logger.error(`a listener failed: ${describe(error)}`));
    this.#rules = rulesFor(plan.queue, plan.maxAttempts, {
      classify: plan.classify,
      delay: (message, ran) => this.#delay(message, ran),
    });
    this.#world = {
      queue: plan.queue as World["queue"],
      deadLetters: plan.deadLetters as World["deadLetters"],
      run: () => undefined,
      now: plan.now,
    };
    this.#owner = {
      world: this.#world,
      rules: this.#rules,
      waits: this.#waits,
      random: plan.random,
      delays: plan.queue.supports?.delays === true,
      stopping: () => this.#ending,
      run: (job, message) => this.#run(job, message),
      parked: (job) => this.#leaveSlot(job),
      done: (job, outcome) => this.#done(job, outcome),
      failed: (job, error) => this.#failed(job, error),
      portFailed: (job, during, error) => this.#portFailed(during, error, job.message.id),
    };
    this.#deadlines = plan.timeoutMs === 0 ? null : new Deadlines(plan.timeoutMs);
    this.#calls = new Calls({
      queue: plan.queue,
      waits: this.#waits,
      pollMs: plan.pollMs,
      signal: this.#stopped.signal,
      failed: (error) => this.#portFailed("ready", error),
    });
  }

  /** Hears an event; answers the function that ends it. Listeners that throw are reported and disturb nobody. */
  on<K extends keyof ConsumerEvents>(name: K, listener: (event: ConsumerEvents[K]) => void): () => void {
    return this.#events.on(name, listener);
  }

  /** How many handlers run now, and how many messages are out of their slot (delayed, or waiting for a port). */
  get inFlight(): { readonly running: number; readonly parked: number } {
    return { running: this.#running, parked: this.#jobs.size - this.#running };
  }

  /**
   * Works until it is stopped; resolves when the last started handler is done. Rejects with a handler's Crash, with
   * `BAD_HANDLER` or `WORKER_FAILED` when no handler can be started (what is in flight then stays so), and with
   * `CONFLICT` when another consumer of this process works on the queue with another maxAttempts, or the queue refuses it.
   * A process that dies meanwhile leaves what it held in flight, counted only where a handler had been started.
   */
  run(options: RunOptions = {}): Promise<void> {
    if (this.#ended !== null || this.#stopping !== null) {
      return Promise.reject(new DloError("CLOSED", "this consumer has been run or stopped; make a new one"));
    }
    this.#ended = this.#work(options.until === "idle");
    return this.#ended;
  }

  /**
   * Receives nothing more and lets started handlers finish, for at most `drainMs`; those that do not are told by
   * their signal and given back uncounted. Delayed retries go back at once. Calling it again answers the same promise.
   * Rejects with `BAD_ARGUMENT`, and stops nothing, where `drainMs` is no number of at least 0 (Infinity is one).
   */
  stop(options: { readonly drainMs?: number } = {}): Promise<void> {
    try {
      this.#stopping ??= this.#drain(drainOf(options.drainMs ?? this.#plan.drainMs));
      return this.#stopping;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async #work(untilIdle: boolean): Promise<void> {
    const leave = await join(this.#plan.queue, this.#plan.maxAttempts);
    const stop = (): void => void this.stop();
    const { signal } = this.#plan;
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    const extending = keepHolds({
      queue: this.#plan.queue,
      jobs: this.#jobs,
      waiting: () => this.#suspect,
      failed: (during, error, id) => this.#portFailed(during, error, id),
    });
    try {
      if (this.#plan.isolate === "process") await this.#openRunner();
      else this.#handler = await handlerOf(this.#plan.handler);
      this.#startedAt = performance.now();
      await this.#loop(untilIdle);
      await this.stop();
    } finally {
      signal?.removeEventListener("abort", stop);
      clearInterval(extending);
      this.#waits.end();
      await this.#runner?.close();
      await leave();
    }
    const end = this.#fatal ?? this.#unable;
    if (end !== null) throw end.error;
  }

  async #openRunner(): Promise<void> {
    const pool = this.#plan.runner === undefined ? poolFor(this.#plan) : null;
    this.#runner = this.#plan.runner ?? pool;
    await pool?.start();
  }

  async #loop(untilIdle: boolean): Promise<void> {
    let failures = 0;
    for (let turn = 1; !this.#over(); turn++) {
      if (turn % TURN === 0) await new Promise<void>((done) => setImmediate(done));
      if (!this.#mayReceive()) {
        await this.#change.next();
        continue;
      }
      let message: Message | null;
      this.#calls.looking();
      try {
        const got = this.#plan.queue.receive();
        message = (isPending(got) ? await got : got) ?? null;
        failures = 0;
      } catch (error) {
        this.#portFailed("receive", error);
        await this.#waits.pause(waitAfter(RECEIVE_BACKOFF, ++failures, this.#plan.random));
        continue;
      }
      if (message === null) {
        if (await this.#idle(untilIdle)) return;
        continue;
      }
      this.#calls.got();
      this.#saidIdle = false;
      if (this.#over()) await this.#giveBack(message, false);
      else if (message.suspect === true) await this.#alone(message);
      else this.#start(message);
    }
  }

  #over(): boolean {
    return this.#ending;
  }

  #mayReceive(): boolean {
    const window = { running: this.#running, suspect: this.#suspect };
    return mayReceive(window, this.#plan.concurrency) && this.#jobs.size - this.#running < MAX_PARKED;
  }

  /** Nothing is waiting. True when the run is at its end. */
  async #idle(untilIdle: boolean): Promise<boolean> {
    const { queue, pollMs } = this.#plan;
    if (this.#jobs.size === 0) {
      if (!this.#saidIdle) this.#events.emit("idle", {});
      this.#saidIdle = true;
      try {
        if (untilIdle && (await (queue.pending?.() ?? 0)) === 0) return true;
      } catch (error) {
        this.#portFailed("pending", error);
      }
    }
    if (queue.ready === undefined || untilIdle) await this.#waits.pause(pollMs);
    else await this.#calls.next();
    return false;
  }

  /** A suspect: everybody else finishes first, and nobody starts beside it. */
  async #alone(message: Message): Promise<void> {
    this.#suspect = message;
    while (this.#running > 0 && !this.#over()) await this.#change.next();
    const warm = this.#plan.warmUpMs - (performance.now() - this.#startedAt);
    if (!this.#over()) await this.#waits.pause(warm);
    if (this.#over()) {
      await this.#giveBack(message, false);
      return;
    }
    this.#events.emit("suspect", { id: message.id, attempt: message.receiveCount });
    this.#plan.logger.warn(`message ${message.id} was in flight when a process died; it runs alone`, {
      attempt: message.receiveCount,
    });
    this.#start(message);
  }

  #start(message: Message): void {
    const job = new Job(message, this.#owner);
    this.#jobs.add(job);
    this.#running++;
    job.start();
  }

  #run(job: Job, message: Message): Maybe<Ran> {
    const { queue, maxAttempts, schema, now } = this.#plan;
    job.startedAt = now();
    if (this.#events.hears("started")) {
      this.#events.emit("started", { id: message.id, attempt: message.receiveCount });
    }
    if (this.#runner !== null) {
      return runThere(this.#runner, message, schema).catch((error: unknown) => {
        // No handler could be started at all: nobody is to blame, and going on makes no sense.
        this.#unable ??= { error };
        void this.stop();
        return { ended: "interrupted", cause: describe(error) } as const;
      });
    }
    const context = new RunContext(message.receiveCount, maxAttempts, queue.name);
    job.context = context;
    return runHere(this.#handler as Handler, message, context, schema, this.#deadlines);
  }

  /** How long a message waits after a run that ended this way. */
  #delay(message: Message, ran: NonNullable<Ran>): number {
    const { backoff, crashWaitsMs, random, now } = this.#plan;
    if (ran.ended === "crashed") {
      return crashWaitsMs[Math.min(message.receiveCount, crashWaitsMs.length) - 1] ?? 0;
    }
    const asked = ran.ended === "failed" ? retryAfterOf(ran.error, now()) : undefined;
    return waitAfter(backoff, message.receiveCount, random, asked ?? 0);
  }

  #leaveSlot(job: Job): void {
    if (!job.inSlot) return;
    job.inSlot = false;
    this.#running--;
    if (this.#suspect === job.message) this.#suspect = null;
    this.#change.tell();
  }

  #end(job: Job): void {
    this.#leaveSlot(job);
    this.#jobs.delete(job);
    this.#change.tell();
    // What went back may be there again; and when the last one is done, that is worth saying.
    if (job.settled !== null || this.#jobs.size === 0) this.#calls.look();
  }

  #done(job: Job, outcome: Outcome | null): void {
    this.#end(job);
    report(job, outcome, this.#events, this.#plan);
  }

  #failed(job: Job, error: unknown): void {
    this.#end(job);
    if (!(error instanceof Left)) {
      this.#die(error);
      return;
    }
    if (error.why !== "stale") return;
    const { id } = job.message;
    this.#plan.logger.warn(`message ${id} was taken over by another consumer; nothing is settled here`);
    this.#events.emit("stale", { id });
  }

  /** The process is dying, or as good as: nothing more is received or settled. */
  #die(error: unknown): void {
    this.#fatal ??= { error };
    this.#endLoop();
  }

  #endLoop(): void {
    this.#ending = true;
    this.#stopped.abort();
    this.#waits.end();
    this.#change.tell();
    this.#calls.look();
  }

  #portFailed(during: string, error: unknown, id?: string): void {
    const whose = id === undefined ? "" : ` of message ${id}`;
    this.#plan.logger.error(`${during}${whose} failed, will be tried again: ${describe(error)}`);
    this.#events.emit("error", { error, during, ...(id === undefined ? {} : { id }) });
  }

  async #drain(drainMs: number): Promise<void> {
    this.#endLoop();
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#change.tell();
    }, drainMs);
    while (this.#jobs.size > 0 && !late && this.#fatal === null) await this.#change.next();
    clearTimeout(timer);
    const left = [...this.#jobs];
    for (const job of left) job.context?.abort(job.leave("stopped"));
    // A message goes back only when the process that handles it has ended: nobody shall start it beside that one.
    if (left.length > 0) await this.#runner?.close({ drainMs: 0 });
    for (const job of left) {
      this.#end(job);
      if (this.#fatal === null) await this.#giveBack(job.started ?? job.message, true);
    }
    if (this.#ended === null) await this.#runner?.close();
  }

  /** Back to its place, uncounted where the queue can; else it stays in flight, for `recover` to bring back. */
  async #giveBack(message: Message, started: boolean): Promise<void> {
    const { queue } = this.#plan;
    const { id, receipt } = message;
    try {
      if (queue.release !== undefined) await queue.release(id, receipt);
      else await (receipt === undefined ? queue.retry(id) : queue.retry(id, receipt));
      if (started) this.#events.emit("interrupted", { id, cause: "the consumer stopped" });
    } catch (error) {
      if (!isGone(error)) this.#portFailed("release", error, id);
    }
  }
}
