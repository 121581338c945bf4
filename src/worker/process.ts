import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, type Message, PermanentError, serializeError } from "../core/index.ts";
import { stayAwake } from "../loop/index.ts";
import type { RunResult } from "../ports/index.ts";
import { type ChildSetup, type Command, isOurs, MARK, type Report } from "./ipc.ts";
import { type Output, passLines } from "./output.ts";
import {
  type ChildState,
  causeOf,
  type Death,
  type Doom,
  type Fault,
  judge,
  move,
  type Verdict,
} from "./policy.ts";
import { openRecorder, type Recorder } from "./record.ts";

/** One handling of a message, from `run()` to its result. */
export interface Run {
  readonly no: number;
  readonly message: Message;
  /** How many children it has been given to that died before they entered the handler. */
  tries: number;
  settle(result: RunResult): void;
  refuse(error: Error): void;
}

/** What a child needs to know, all decided by the pool. */
export interface ChildPlan {
  readonly file: string;
  readonly context: Readonly<Record<string, unknown>>;
  readonly execArgv: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string | undefined;
  readonly timeoutMs: number;
  readonly startTimeoutMs: number;
  /** Longest silence of a busy child, ms; 0: no heartbeat. */
  readonly silentMs: number;
  readonly rssLimitBytes: number;
  readonly output: Output;
  /** How long a leaving child may take by itself, and after SIGTERM, ms. */
  readonly graceMs: number;
}

/** What a child tells its pool. */
export interface ChildOwner {
  ready(child: Child): void;
  /** Its handler module is no good. It is about to end. */
  bad(child: Child, why: string): void;
  /** The run it had is over, or it has become free in another way. */
  free(child: Child, run: Run, result: RunResult): void;
  /** It asked to be let go, or must be let go. */
  leave(child: Child): void;
  dead(child: Child, death: Death, verdict: Verdict, run: Run | null): void;
}

/** Beats in one allowed silence: losing one to a busy machine is no silence. */
const BEATS = 4;
/** What is kept of stderr to look for V8's last words in, bytes. */
const STDERR_TAIL = 8_192;
/** After the exit, what the pipes still hold is waited for so long, ms: a grandchild may keep them open. */
const LAST_WORDS_MS = 100;
/** How many earlier runs of a child can still be named when they turn out to be at fault. */
const NAMES_KEPT = 256;

/**
 * The child's entry. Node 20 cannot start TypeScript, so when this file itself runs as source (under vitest) the
 * built child is used: build dist/ first, as `npm test` does.
 */
function childEntry(): string {
  const built = import.meta.url.endsWith(".ts") ? "../../dist/worker/child.js" : "./child.js";
  return fileURLToPath(new URL(built, import.meta.url));
}

/** One child process and its state, from fork to exit. Tells its owner; decides nothing about other children. */
export class Child {
  state: ChildState = "starting";
  /** Runs it has been given. */
  runs = 0;
  run: Run | null = null;
  /** Whether its handler was ever loaded. */
  wasReady = false;
  readonly pid: number;
  private readonly plan: ChildPlan;
  private readonly owner: ChildOwner;
  private readonly process: ChildProcess;
  private readonly recorder: Recorder | null;
  /** The last runs and their messages' ids, in a ring. */
  private readonly names: { no: number; id: string }[] = [];
  private doomed: Doom | null = null;
  private stderr: Buffer = Buffer.alloc(0);
  private heardAt = performance.now();
  private readonly timers = new Set<NodeJS.Timeout>();
  private deadline: NodeJS.Timeout | undefined;
  private heartbeat: NodeJS.Timeout | undefined;

  constructor(plan: ChildPlan, owner: ChildOwner) {
    this.plan = plan;
    this.owner = owner;
    this.recorder = openRecorder();
    const setup: ChildSetup = {
      file: plan.file,
      context: plan.context,
      parentPid: process.pid,
      beatMs: plan.silentMs / BEATS,
      rssLimitBytes: plan.rssLimitBytes,
      recorded: this.recorder !== null,
    };
    try {
      this.process = fork(childEntry(), [JSON.stringify(setup)], {
        execArgv: [...plan.execArgv],
        env: plan.env,
        cwd: plan.cwd,
        serialization: "advanced",
        stdio: ["ignore", "pipe", "pipe", "ipc", this.recorder?.fd ?? "ignore"],
      });
    } catch (error) {
      this.recorder?.close();
      throw error;
    }
    this.pid = this.process.pid ?? 0;
    this.listen();
    this.send([MARK, "warm", { id: "warm-up", body: {}, receiveCount: 0, firstReceivedAt: 0 }]);
    this.after(plan.startTimeoutMs, () => {
      if (this.state === "starting") this.kill({ why: "start deadline", timeoutMs: plan.startTimeoutMs });
    });
  }

  /** Gives an idle child a message. One that cannot cross the boundary fails, and the child stays idle. */
  give(run: Run): void {
    this.state = move(this.state, "run");
    this.run = run;
    this.runs += 1;
    this.names[this.runs % NAMES_KEPT] = { no: run.no, id: run.message.id };
    this.heardAt = performance.now();
    try {
      this.send([MARK, "run", run.no, run.message]);
    } catch (error) {
      // The structured clone refused it: it will be refused for ever, so it is the message's own failure.
      const refusal = new PermanentError("the message cannot be handed to another process", { cause: error });
      this.end(run.no, { outcome: "failed", error: serializeError(refusal) });
      return;
    }
    this.startClocks();
    stayAwake();
  }

  /** One timer of each kind for the child's whole life: making and dropping one per message costs ten times more. */
  private startClocks(): void {
    const { timeoutMs, silentMs } = this.plan;
    if (this.deadline !== undefined) this.deadline.refresh();
    else if (timeoutMs > 0) this.deadline = setTimeout(() => this.late(), timeoutMs);
    if (silentMs > 0) this.heartbeat ??= setInterval(() => this.silent(), silentMs / BEATS);
  }

  /** Lets it go: it takes no more messages, may finish the one it has, and is helped along when it stays. */
  retire(): void {
    const was = this.state;
    if (was === "leaving" || was === "doomed" || was === "dead") return;
    this.state = move(was, "retire");
    if (was === "starting") this.kill({ why: "closing" });
    else this.send([MARK, "stop"]);
    if (was === "idle") this.helpAlong();
  }

  /** Ends it at once: for `closing` with SIGTERM first, else with SIGKILL. */
  kill(doom: Doom): void {
    if (this.state === "dead") return;
    this.state = move(this.state, "doom");
    this.doomed ??= doom;
    if (doom.why === "closing" && this.run !== null) {
      this.send([MARK, "stop"]);
      this.process.kill("SIGTERM");
      this.after(this.plan.graceMs, () => this.process.kill("SIGKILL"));
    } else this.process.kill("SIGKILL");
  }

  private helpAlong(): void {
    this.after(this.plan.graceMs, () => {
      this.process.kill("SIGTERM");
      this.after(this.plan.graceMs, () => this.process.kill("SIGKILL"));
    });
  }

  private listen(): void {
    const { process: child, pid } = this;
    child.on("message", (message) => this.hear(message));
    child.on("disconnect", () => {
      // Dying children disconnect too; one that lives on without its channel is of no use.
      this.after(LAST_WORDS_MS, () => this.kill({ why: "disconnected" }));
    });
    if (child.stdout) passLines(child.stdout, { stream: "stdout", pid }, this.plan.output);
    if (child.stderr) {
      child.stderr.on("data", (chunk: Buffer) => {
        const tail = Buffer.concat([this.stderr, chunk]);
        this.stderr = tail.length > STDERR_TAIL ? Buffer.from(tail.subarray(-STDERR_TAIL)) : tail;
      });
      passLines(child.stderr, { stream: "stderr", pid }, this.plan.output);
    }
    this.awaitEnd();
  }

  /** Buries the child when it has exited and its pipes are read to their end, or have been given a moment. */
  private awaitEnd(): void {
    const child = this.process;
    let failure = "";
    const bury = (): void => this.bury(child.exitCode, child.signalCode, failure);
    const ends = [
      new Promise<void>((done) => child.once("close", () => done())),
      new Promise<void>((done) => (child.connected ? child.once("disconnect", done) : done())),
    ];
    child.once("exit", () => {
      void Promise.all(ends).then(bury);
      this.after(LAST_WORDS_MS, bury);
    });
    child.on("error", (error) => {
      failure = error.message;
      if (child.pid === undefined) bury();
    });
  }

  private hear(message: unknown): void {
    if (!isOurs(message) || this.state === "dead") return;
    this.heardAt = performance.now();
    const report = message as Report;
    switch (report[1]) {
      case "ready":
        this.state = move(this.state, "ready");
        this.wasReady = true;
        if (this.state === "idle") this.owner.ready(this);
        break;
      case "bad":
        this.owner.bad(this, report[3] === null ? report[2] : `${report[2]}: ${describe(report[3])}`);
        break;
      case "ok":
        this.end(report[2], { outcome: "ok" });
        break;
      case "failed":
        this.end(report[2], { outcome: "failed", error: report[3] });
        break;
      case "crash":
        if (this.run?.no === report[2]) this.kill({ why: "crash", text: report[3] });
        break;
      case "fault": {
        const origin = report[3] as Fault["origin"];
        this.kill({ why: "fault", fault: { run: report[2], origin, text: report[4] } });
        break;
      }
      case "leave":
        this.owner.leave(this);
        break;
      case "beat":
        break;
    }
  }

  /** The outcome of a run. One that comes after the child was doomed for this very run is too late to count. */
  private end(no: number, result: RunResult): void {
    const { run } = this;
    if (run === null || run.no !== no) return;
    if (this.doomed !== null && this.doomed.why !== "closing") return;
    this.run = null;
    this.state = move(this.state, "outcome");
    if (this.state === "leaving") this.helpAlong();
    this.owner.free(this, run, result);
  }

  /** The deadline. What has already arrived is read first: this process may have been the slow one. */
  private late(): void {
    const { run } = this;
    if (run === null) return;
    setImmediate(() => {
      if (this.run !== run || this.doomed !== null) return;
      const { timeoutMs, silentMs } = this.plan;
      const blocked = silentMs > 0 ? { blocked: this.silence() > (silentMs * 2) / BEATS } : {};
      this.kill({ why: "deadline", timeoutMs, ...blocked });
    });
  }

  private silent(): void {
    const { run } = this;
    if (run === null || this.silence() < this.plan.silentMs) return;
    setImmediate(() => {
      if (this.run !== run || this.doomed !== null || this.silence() < this.plan.silentMs) return;
      this.kill({ why: "silent", silentMs: Math.round(this.silence()) });
    });
  }

  private silence(): number {
    return performance.now() - this.heardAt;
  }

  private bury(code: number | null, signal: NodeJS.Signals | null, failure: string): void {
    if (this.state === "dead") return;
    this.state = move(this.state, "exit");
    clearTimeout(this.deadline);
    clearInterval(this.heartbeat);
    for (const timer of this.timers) clearTimeout(timer);
    const { run } = this;
    this.run = null;
    const death: Death = {
      code,
      signal,
      stderr: this.stderr.toString("latin1") + failure,
      doom: this.doomed,
      running: run?.no ?? null,
      runs: this.runs,
      flight: this.recorder?.read() ?? null,
      rssLimitBytes: this.plan.rssLimitBytes,
      idOf: (no) => this.names.find((name) => name?.no === no)?.id,
    };
    this.recorder?.close();
    this.owner.dead(this, death, judge(death), run);
  }

  private after(ms: number, then: () => void): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      if (this.state !== "dead") then();
    }, ms);
    this.timers.add(timer);
  }

  /** A child that can no longer be told is dying; its exit says the rest. */
  private send(command: Command): void {
    this.process.send(command, () => {});
  }
}

/** The cause of a death in words, for logs. */
export function deathCause(death: Death): string {
  return death.doom === null ? causeOf(death) : death.doom.why;
}
