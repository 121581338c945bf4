import { existsSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { DloError } from "../core/index.ts";
import type { Logger } from "../ports/index.ts";
import { type Output, prefixed } from "./output.ts";
import type { ChildPlan } from "./process.ts";

/** How handlers are run in child processes. */
export interface WorkerPoolOptions {
  /** The handler module: a path (relative to `cwd`) or a `file:` URL. It exports a function, by default or as `handler`. */
  readonly file: string | URL;
  /** How many messages are handled at the same time, each in a process of its own. Default 1. */
  readonly concurrency?: number;
  /** How many ready processes wait beside them to step in after a crash. Default 1; 0 for none. */
  readonly spare?: number;
  /** Longest time a handler may take, ms. Its process is then killed and the run has failed with a TimeoutError. */
  readonly timeoutMs?: number;
  /** Longest time the handler module may take to load, ms. Default 30,000. */
  readonly startTimeoutMs?: number;
  /**
   * Longest time the handler may block its event loop, ms; then its process is killed, before the deadline.
   * Absent: only the deadline ends an endless loop.
   */
  readonly heartbeat?: number;
  /** Kills a process that has grown over so many resident bytes (Buffers count, which `heapLimitMb` does not see). */
  readonly rssLimitBytes?: number;
  /** V8's heap limit for each process, MB (`--max-old-space-size`). */
  readonly heapLimitMb?: number;
  /** A process is replaced after so many messages. Absent: never. */
  readonly recycleAfter?: number;
  /** Environment variables for the processes, on top of this process's own; undefined takes one away. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Node's own arguments. Default: those of this process, but for debugging, testing and one-off ones. */
  readonly execArgv?: readonly string[];
  /** Working directory of the processes. Default: that of this process. */
  readonly cwd?: string;
  /** How long a leaving process may take to end by itself, and again after SIGTERM, before SIGKILL, ms. Default 1,000. */
  readonly graceMs?: number;
  /** How long `close()` waits for running handlers, ms. Default 10,000. */
  readonly drainMs?: number;
  /**
   * Plain data the handler finds in its second argument, beside `attempt` (the message's receive count) and `signal`
   * (aborted when the pool closes and waits no longer). A consumer puts `maxAttempts` and `queue` there.
   */
  readonly context?: Readonly<Record<string, unknown>>;
  readonly logger?: Logger;
  /** Takes what handlers write to stdout and stderr, line by line. Default: passed on with `[worker PID] ` before it. */
  readonly output?: Output;
}

/** The options with everything decided. */
export interface PoolPlan {
  readonly child: ChildPlan;
  readonly concurrency: number;
  readonly spare: number;
  readonly recycleAfter: number;
  readonly drainMs: number;
  readonly logger: Logger;
  /** How many children may start at the same time. */
  readonly parallel: number;
}

const DAY_MS = 86_400_000;

/** @throws DloError `BAD_ARGUMENT`, naming the option, its value and what was expected. */
export function planOf(options: WorkerPoolOptions): PoolPlan {
  const { file, env, cwd, execArgv, logger } = options;
  const count = (name: keyof WorkerPoolOptions, least: number, most: number, otherwise: number): number =>
    whole(name, options[name], least, most, otherwise);
  const heapLimitMb = count("heapLimitMb", 8, 1_048_576, 0);
  const heap = heapLimitMb === 0 ? [] : [`--max-old-space-size=${heapLimitMb}`];
  return {
    child: {
      file: handlerPath(file, cwd),
      context: options.context ?? {},
      execArgv: [...(execArgv ?? inherited(process.execArgv)), ...heap],
      env: { ...process.env, ...env },
      cwd,
      timeoutMs: count("timeoutMs", 1, DAY_MS, 0),
      startTimeoutMs: count("startTimeoutMs", 1, DAY_MS, 30_000),
      silentMs: count("heartbeat", 20, DAY_MS, 0),
      rssLimitBytes: count("rssLimitBytes", 1, Number.MAX_SAFE_INTEGER, 0),
      output: options.output ?? prefixed,
      graceMs: count("graceMs", 0, DAY_MS, 1_000),
    },
    concurrency: count("concurrency", 1, 1_024, 1),
    spare: count("spare", 0, 1_024, 1),
    recycleAfter: count("recycleAfter", 1, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY),
    drainMs: count("drainMs", 0, DAY_MS, 10_000),
    logger: logger ?? silentLogger,
    parallel: Math.max(1, availableParallelism()),
  };
}

const silentLogger: Logger = { info() {}, warn() {}, error() {} };

function whole(name: string, value: unknown, least: number, most: number, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new DloError(
    "BAD_ARGUMENT",
    `worker option ${name} is ${shown(value)}; expected a whole number from ${least} to ${most}`,
  );
}

const shown = (value: unknown): string =>
  typeof value === "string"
    ? JSON.stringify(value)
    : typeof value === "object"
      ? typeof value
      : String(value);

function handlerPath(file: unknown, cwd: string | undefined): string {
  if (file instanceof URL || (typeof file === "string" && file.startsWith("file:"))) {
    return fileURLToPath(file);
  }
  if (typeof file === "string" && file !== "") return resolve(cwd ?? "", file);
  throw new DloError(
    "BAD_ARGUMENT",
    `worker option file is ${shown(file)}; expected the path of a handler module`,
  );
}

/** @throws DloError `BAD_HANDLER` when there is no such file. */
export function checkHandlerFile(file: string): void {
  if (!existsSync(file)) throw new DloError("BAD_HANDLER", `handler file ${file} does not exist`);
  if (!statSync(file).isFile()) throw new DloError("BAD_HANDLER", `handler file ${file} is not a file`);
}

/** Node arguments a child must not inherit: they take a port, run other code, or belong to this process's own limits. */
const OWN =
  /^--?(inspect|debug|test|watch|eval|print|check|interactive|input-type|max-old-space-size|cpu-prof|heap-prof|prof)\b/;
const OWN_SHORT = new Set(["-e", "-p", "-pe", "-c", "-i"]);

/** This process's Node arguments that make sense for a child (loaders, conditions, flags). */
export function inherited(execArgv: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at < execArgv.length; at++) {
    const arg = execArgv[at] ?? "";
    const own = OWN.test(arg) || OWN_SHORT.has(arg);
    if (!own) kept.push(arg);
    // An option whose value is the next argument takes it along.
    else if (/^(-e|-p|-pe|--eval|--print|--input-type)$/.test(arg)) at += 1;
  }
  return kept;
}
