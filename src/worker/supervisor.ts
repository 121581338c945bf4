import { DloError, LONGEST_TIMER_MS, type Message } from "../core/index.ts";
import type { HandlerRunner, RunResult } from "../ports/index.ts";
import { checkHandlerFile, type PoolPlan, planOf, type WorkerPoolOptions } from "./options.ts";
import { type Death, START_FAILURES_MAX, startBackoffMs, startsDue, type Verdict } from "./policy.ts";
import { Child, type ChildOwner, deathCause, type Run } from "./process.ts";

/** A run is given to so many children that die before they enter its handler; then it is handed back uncounted. */
const TRIES_MAX = 3;

/** How long a spare that stepped in has the processor to itself before its successor is started, ms. */
const REFILL_AFTER_MS = 15;

/** How many children there are, by what they do, and what the pool has seen. */
export interface WorkerPoolStatus {
  readonly starting: number;
  readonly idle: number;
  readonly busy: number;
  /** Messages waiting for a child. */
  readonly waiting: number;
  readonly started: number;
  /** Children that died of the message they had. */
  readonly crashed: number;
  /** Children in a row that died before they were ready. */
  readonly startFailures: number;
}

/**
 * Runs handlers in child processes: one process per message at a time, a warm spare beside them, and a name for
 * every way a process can end. A handler that exits, runs out of memory, crashes natively, or never comes back takes
 * down its child and nothing else; the next message goes to the spare at once.
 *
 * A killed parent leaves no child behind: each has a thread that watches for it and ends the process within a second.
 * An idle pool keeps its process alive until `close()`, as an open server does.
 *
 * @example
 * const pool = new WorkerPool({ file: "./handler.mjs", concurrency: 4, timeoutMs: 30_000 });
 * await pool.start();
 * const result = await pool.run(message); // { outcome: "crashed", cause: "signal SIGSEGV" }
 * await pool.close();
 */
export class WorkerPool implements HandlerRunner {
  private readonly plan: PoolPlan;
  private readonly children = new Set<Child>();
  /** Idle children; the one that came last goes first, so that spares stay unused. */
  private readonly idle: Child[] = [];
  private readonly waiting: Run[] = [];
  private readonly owner: ChildOwner;
  private lastRun = 0;
  private started = 0;
  private crashed = 0;
  private failures = 0;
  private everReady = false;
  private starting: Promise<void> | null = null;
  private startWaiter: { done(): void; fail(error: Error): void } | null = null;
  private closing = false;
  private closed: Promise<void> | null = null;
  private allGone: (() => void) | null = null;
  private backoff: NodeJS.Timeout | undefined;
  private fillSoon: NodeJS.Timeout | undefined;
  /** What was wrong with the handler module when the last child found it unusable. */
  private badHandler: string | null = null;

  /** @throws DloError `BAD_ARGUMENT` for an option that makes no sense. Starts nothing. */
  constructor(options: WorkerPoolOptions) {
    this.plan = planOf(options);
    this.owner = {
      ready: (child) => this.onReady(child),
      bad: (_child, why) => {
        this.badHandler = why;
      },
      free: (child, run, result) => this.onFree(child, run, result),
      leave: (child) => this.release(child),
      dead: (child, death, verdict, run) => this.onDead(child, death, verdict, run),
    };
  }

  /**
   * Starts the children; resolves when the first one is ready, while the others may still be starting.
   *
   * @throws DloError `BAD_HANDLER` (the file is missing, exports no function, throws while it is loaded),
   * `WORKER_FAILED` (five children in a row died before they were ready), `CLOSED`.
   */
  start(): Promise<void> {
    if (this.closing) return Promise.reject(poolClosed());
    if (this.starting !== null) return this.starting;
    const started = new Promise<void>((done, fail) => {
      this.startWaiter = { done, fail };
    });
    this.starting = started;
    try {
      checkHandlerFile(this.plan.child.file);
      this.fill();
    } catch (error) {
      this.giveUp(error as Error);
    }
    return started;
  }

  /**
   * Runs the handler with a copy of this message in a child process; waits for a free child when all are busy.
   * Never rejects for what the handler or its process does.
   *
   * @throws DloError `BAD_HANDLER`, `WORKER_FAILED` or `CLOSED` when no child could be started, so that the message
   * was not touched.
   */
  run(message: Message): Promise<RunResult> {
    if (this.closing) return Promise.reject(poolClosed());
    return new Promise((settle, refuse) => {
      this.waiting.push({ no: ++this.lastRun, message, tries: 0, settle, refuse });
      // Whatever start() is told, the waiting runs are told too.
      if (this.starting === null) this.start().catch(() => {});
      this.pump();
    });
  }

  /**
   * Ends the pool. Running handlers have `drainMs` (default: the pool's own) to come back; then their processes get
   * SIGTERM, and SIGKILL after the grace time, and their runs are `interrupted`, as those that still wait at once are.
   * Resolves when every child has exited. Calling it again answers the same promise.
   */
  close(options: { drainMs?: number } = {}): Promise<void> {
    this.closing = true;
    this.closed ??= this.shut(options.drainMs ?? this.plan.drainMs);
    return this.closed;
  }

  /** A look at the pool, for status pages and tests. */
  status(): WorkerPoolStatus {
    const of = (state: Child["state"]): number => [...this.children].filter((c) => c.state === state).length;
    return {
      starting: of("starting"),
      idle: of("idle"),
      busy: [...this.children].filter((child) => child.run !== null).length,
      waiting: this.waiting.length,
      started: this.started,
      crashed: this.crashed,
      startFailures: this.failures,
    };
  }

  private async shut(drainMs: number): Promise<void> {
    clearTimeout(this.backoff);
    clearTimeout(this.fillSoon);
    this.startWaiter?.fail(poolClosed());
    this.startWaiter = null;
    for (const run of this.waiting.splice(0)) run.settle({ outcome: "interrupted", cause: "closing" });
    if (this.children.size === 0) return;
    const gone = new Promise<void>((done) => {
      this.allGone = done;
    });
    for (const child of [...this.children]) child.retire();
    const drain = setTimeout(
      () => {
        for (const child of [...this.children]) if (child.run !== null) child.kill({ why: "closing" });
      },
      Math.min(drainMs, LONGEST_TIMER_MS),
    );
    await gone;
    clearTimeout(drain);
  }

  /** Gives waiting runs to idle children. A suspect gets a child that has run nothing, so that blame is certain. */
  private pump(): void {
    while (this.waiting.length > 0 && this.idle.length > 0 && this.busy() < this.plan.concurrency) {
      const run = this.waiting.shift();
      if (run === undefined) return;
      const child = (run.message.suspect === true ? this.idle.shift() : this.idle.pop()) as Child;
      child.give(run);
    }
  }

  private busy(): number {
    let busy = 0;
    for (const child of this.children) if (child.run !== null) busy += 1;
    return busy;
  }

  /** Starts as many children as are wanted and may start now. */
  private fill(): void {
    if (this.closing) return;
    let alive = 0;
    let starting = 0;
    for (const { state } of this.children) {
      if (state === "starting") starting += 1;
      if (state === "starting" || state === "idle" || state === "busy") alive += 1;
    }
    const { concurrency, spare, parallel, child: childPlan } = this.plan;
    const { failures, everReady } = this;
    const due = startsDue({ wanted: concurrency + spare, alive, starting, failures, everReady, parallel });
    for (let n = 0; n < due; n++) {
      try {
        const child = new Child(childPlan, this.owner);
        this.started += 1;
        this.children.add(child);
      } catch (error) {
        this.startFailed(`cannot start a process: ${(error as Error).message}`);
        return;
      }
    }
  }

  private onReady(child: Child): void {
    this.failures = 0;
    this.badHandler = null;
    this.everReady = true;
    this.startWaiter?.done();
    this.startWaiter = null;
    this.idle.unshift(child);
    this.pump();
    this.fill();
  }

  private onFree(child: Child, run: Run, result: RunResult): void {
    run.settle(result);
    if (child.state === "idle") {
      this.idle.push(child);
      if (child.runs >= this.plan.recycleAfter) this.release(child);
    }
    this.pump();
  }

  /** Lets a child go and has another one started. */
  private release(child: Child): void {
    this.drop(child);
    child.retire();
    this.refill();
  }

  private drop(child: Child): void {
    const at = this.idle.indexOf(child);
    if (at >= 0) this.idle.splice(at, 1);
  }

  private onDead(child: Child, death: Death, verdict: Verdict, run: Run | null): void {
    this.children.delete(child);
    this.drop(child);
    this.tell(child, death, verdict, run);
    if (run !== null) this.conclude(run, verdict);
    if (this.closing) {
      if (this.children.size === 0) this.allGone?.();
      return;
    }
    this.pump();
    if (child.wasReady) this.refill();
    else this.startFailed(deathCause(death));
  }

  private conclude(run: Run, verdict: Verdict): void {
    if (verdict.kind === "result") {
      if (verdict.result.outcome === "crashed") this.crashed += 1;
      run.settle(verdict.result);
      return;
    }
    run.tries += 1;
    if (this.closing || run.tries >= TRIES_MAX) {
      run.settle({
        outcome: "interrupted",
        cause: this.closing ? "closing" : "its process died before it began",
      });
      return;
    }
    this.waiting.unshift(run);
  }

  /**
   * The next message first, then the new spare: starting a process takes this thread and the processor some
   * milliseconds. Where no spare is left there is nothing to wait for.
   */
  private refill(): void {
    clearTimeout(this.fillSoon);
    this.fillSoon = setTimeout(
      () => {
        if (this.backoff === undefined) this.fill();
      },
      this.idle.length > 0 ? REFILL_AFTER_MS : 0,
    );
  }

  /** A child died before it was ready: nobody is blamed, and the next start waits longer each time. */
  private startFailed(cause: string): void {
    this.failures += 1;
    const waitMs = startBackoffMs(this.failures);
    const why = this.badHandler ?? `ended its process before it was ready: ${cause}`;
    this.plan.logger.error(`worker: handler file ${this.plan.child.file} ${why}`, {
      failures: this.failures,
      waitMs,
    });
    const error = this.startError(cause);
    if (error !== null && !this.everReady) {
      this.giveUp(error);
      return;
    }
    if (error !== null && this.idle.length === 0 && this.busy() === 0) this.refuse(error);
    this.backoff ??= setTimeout(() => {
      this.backoff = undefined;
      this.fill();
    }, waitMs);
  }

  /** The handler was never any good: the pool falls back to not started, and the next start() tries anew. */
  private giveUp(error: Error): void {
    this.startWaiter?.fail(error);
    this.startWaiter = null;
    this.starting = null;
    this.failures = 0;
    this.badHandler = null;
    this.refuse(error);
  }

  private refuse(error: Error): void {
    for (const run of this.waiting.splice(0)) run.refuse(error);
  }

  /** What start() and waiting runs are told; null while it is worth trying on. */
  private startError(cause: string): DloError | null {
    const { file } = this.plan.child;
    if (this.badHandler !== null)
      return new DloError("BAD_HANDLER", `handler file ${file} ${this.badHandler}`);
    if (this.failures < START_FAILURES_MAX) return null;
    return new DloError(
      "WORKER_FAILED",
      `the process for handler file ${file} ended ${this.failures} times before it was ready, last: ${cause}`,
    );
  }

  private tell(child: Child, death: Death, verdict: Verdict, run: Run | null): void {
    const { logger } = this.plan;
    const { pid } = child;
    if (death.doom?.why === "fault" && death.doom.fault.run !== death.running) {
      const { fault } = death.doom;
      const id = death.idOf(fault.run);
      logger.warn(`worker ${pid}: ${fault.origin} after its handler had returned`, {
        ...(id === undefined ? {} : { message: id }),
        error: fault.text,
      });
    }
    if (run === null || verdict.kind !== "result") return;
    const { result } = verdict;
    if (result.outcome === "crashed" || result.outcome === "interrupted") {
      const detail =
        result.outcome === "crashed" && result.detail !== undefined ? { detail: result.detail } : {};
      logger.warn(`worker ${pid} ${result.outcome}: ${result.cause}`, { message: run.message.id, ...detail });
    }
  }
}

const poolClosed = (): DloError => new DloError("CLOSED", "the worker pool is closed");
