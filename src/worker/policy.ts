import { DloError } from "../core/index.ts";
import type { RunResult } from "../ports/index.ts";

/**
 * What a supervisor decides, without a process in sight: how a child lives, what killed it and who is blamed.
 *
 * A child process, as its parent sees it:
 *
 *     starting --ready--> idle --run--> busy --outcome--> idle
 *        |                 |             |
 *        |               retire        retire (it may finish its run)
 *        |                 v             v
 *        |              leaving <--outcome
 *        |                 |             |
 *       doom             doom          doom   (deadline, silence, fault, crash, close)
 *        v                 v             v
 *      doomed           doomed        doomed
 *
 * and from every state `exit` leads to dead. Only an idle child is given a run, so one child never holds two.
 * A doomed child may still deliver the outcome of its run (it was closing when the handler came back).
 */
export type ChildState = "starting" | "idle" | "busy" | "leaving" | "doomed" | "dead";

/** What can happen to a child. */
export type ChildEvent = "ready" | "run" | "outcome" | "retire" | "doom" | "exit";

const MOVES: Readonly<Record<ChildState, Partial<Record<ChildEvent, ChildState>>>> = {
  starting: { ready: "idle", retire: "doomed", doom: "doomed", exit: "dead" },
  idle: { run: "busy", retire: "leaving", doom: "doomed", exit: "dead" },
  busy: { outcome: "idle", retire: "leaving", doom: "doomed", exit: "dead" },
  leaving: { outcome: "leaving", retire: "leaving", doom: "doomed", exit: "dead" },
  doomed: { ready: "doomed", outcome: "doomed", retire: "doomed", doom: "doomed", exit: "dead" },
  dead: {},
};

/** The next state. @throws DloError `INTERNAL` when the move is not in the table: a defect of the supervisor. */
export function move(state: ChildState, event: ChildEvent): ChildState {
  const next = MOVES[state][event];
  if (next === undefined) {
    throw new DloError("INTERNAL", `a ${state} child process cannot have the event ${event}`);
  }
  return next;
}

/** Who threw outside of a running handler: the run whose asynchronous context it was, 0 when that is unknown. */
export interface Fault {
  readonly run: number;
  readonly origin: "uncaught exception" | "unhandled rejection";
  /** `Name: message`. */
  readonly text: string;
}

/** Why the parent ended a child. */
export type Doom =
  | { readonly why: "deadline"; readonly timeoutMs: number; readonly blocked?: boolean }
  | { readonly why: "silent"; readonly silentMs: number }
  | { readonly why: "fault"; readonly fault: Fault }
  | { readonly why: "crash"; readonly text: string }
  | { readonly why: "start deadline"; readonly timeoutMs: number }
  | { readonly why: "disconnected" }
  | { readonly why: "closing" };

/** The flight recorder's last page: what the child noted about itself before it died. */
export interface Flight {
  /** The run whose handler was entered last; 0: none. */
  readonly started: number;
  /** The run in whose context `process.exit` was called (0: unknown); absent when it was not called. */
  readonly exitRun?: number;
  /** It ended itself because a signal (SIGTERM, SIGINT, SIGHUP) asked it to. */
  readonly asked?: boolean;
  /** Resident bytes seen by the guard when it ended the process; absent when it did not. */
  readonly rssBytes?: number;
}

/** Everything known about a death. */
export interface Death {
  readonly code: number | null;
  readonly signal: string | null;
  /** The end of what the child wrote to stderr. */
  readonly stderr: string;
  readonly doom: Doom | null;
  /** The run it had been given; null when it was idle, leaving or not ready. */
  readonly running: number | null;
  /** How many runs it had been given in its life, this one included. */
  readonly runs: number;
  /** Null where no flight recorder could be kept. */
  readonly flight: Flight | null;
  readonly rssLimitBytes?: number;
  /** The id of the message of an earlier run. */
  idOf(run: number): string | undefined;
}

/**
 * What a death means for the run: `nobody` was running, the handler was never entered so the run is given to
 * `another` child, or a result.
 */
export type Verdict =
  | { readonly kind: "nobody" }
  | { readonly kind: "another" }
  | { readonly kind: "result"; readonly result: RunResult };

const crashed = (cause: string, detail?: string): Verdict => ({
  kind: "result",
  result: { outcome: "crashed", cause, ...(detail === undefined ? {} : { detail }) },
});

const interrupted = (cause: string): Verdict => ({
  kind: "result",
  result: { outcome: "interrupted", cause },
});

const timedOut = (message: string): Verdict => ({
  kind: "result",
  result: {
    outcome: "failed",
    error: { name: "TimeoutError", message, code: "TIMED_OUT", text: `TimeoutError: ${message}` },
  },
});

/** Exit code of a child whose channel to its parent was closed: by its handler, or because the parent is gone. */
export const CHANNEL_CLOSED_EXIT = 107;

/** Names the cause of a death in the child's own words, for logs: `exit code 3`, `signal SIGKILL`. */
export function causeOf(death: Pick<Death, "code" | "signal" | "stderr" | "flight">): string {
  if (death.flight?.rssBytes !== undefined) return "memory limit exceeded";
  if (outOfHeap(death)) return "heap out of memory";
  if (death.signal !== null) return `signal ${death.signal}`;
  if (death.code === CHANNEL_CLOSED_EXIT) return "IPC channel closed";
  return `exit code ${death.code ?? "unknown"}`;
}

/** V8 says so on stderr and aborts; the words alone could be the handler's own. */
function outOfHeap(death: Pick<Death, "code" | "signal" | "stderr">): boolean {
  const aborted = death.signal === "SIGABRT" || death.code === 134 || death.signal === "SIGTRAP";
  return aborted && /heap out of memory|heap limit|OOM/i.test(death.stderr);
}

/** Decides whom a death is laid at the door of. */
export function judge(death: Death): Verdict {
  const { doom, running, flight } = death;
  if (running === null) return { kind: "nobody" };
  if (doom?.why === "closing") return interrupted("closing");
  if (flight !== null && flight.started !== running) return { kind: "another" };
  if (doom !== null) return judgeDoom(death, doom, running);
  if (flight?.rssBytes !== undefined) {
    const limit = death.rssLimitBytes === undefined ? "" : ` of ${megabytes(death.rssLimitBytes)}`;
    return crashed("memory limit exceeded", `${megabytes(flight.rssBytes)} resident, over the limit${limit}`);
  }
  if (outOfHeap(death)) return crashed("heap out of memory");
  if (flight?.asked === true) return interrupted("asked to end by a signal");
  if (flight?.exitRun !== undefined && !guilty(flight.exitRun, running, death.runs)) {
    return interrupted(`${causeOf(death)} by ${owner(death, flight.exitRun)}`);
  }
  return crashed(causeOf(death));
}

function judgeDoom(death: Death, doom: Doom, running: number): Verdict {
  switch (doom.why) {
    case "deadline": {
      const how =
        doom.blocked === undefined
          ? ""
          : doom.blocked
            ? " (its event loop was blocked)"
            : " (it was waiting)";
      return timedOut(`handler timed out after ${doom.timeoutMs} ms${how}; its process was killed`);
    }
    case "silent":
      return timedOut(
        `handler timed out: its event loop was blocked for ${doom.silentMs} ms; its process was killed`,
      );
    case "fault": {
      const { fault } = doom;
      if (guilty(fault.run, running, death.runs)) return crashed(fault.origin, fault.text);
      return interrupted(`${fault.origin} of ${owner(death, fault.run)}`);
    }
    case "crash":
      return crashed("Crash", doom.text);
    case "disconnected":
      return crashed("IPC channel closed");
    case "start deadline":
    case "closing":
      return interrupted(doom.why);
  }
}

/**
 * A fault or an exit is laid at the door of the run in whose context it happened. Where the context is lost (0),
 * only a run that had its process to itself is blamed: nothing else can have done it.
 */
function guilty(run: number, running: number, runs: number): boolean {
  return run === running || (run === 0 && runs === 1);
}

function owner(death: Death, run: number): string {
  const id = run === 0 ? undefined : death.idOf(run);
  return id === undefined ? "another message" : `message ${JSON.stringify(id)}`;
}

const megabytes = (bytes: number): string => `${Math.round(bytes / 1_048_576)} MB`;

/** First wait after a child that died before it was ready, and the longest, ms. */
export const START_BACKOFF_MS = 100;
export const START_BACKOFF_MAX_MS = 5_000;

/** After so many children in a row died before they were ready, waiting runs are refused instead of kept. */
export const START_FAILURES_MAX = 5;

/** How long to wait before the next start after `failures` failed ones in a row: doubled each time, ms. */
export function startBackoffMs(failures: number): number {
  if (failures <= 0) return 0;
  return Math.min(START_BACKOFF_MAX_MS, START_BACKOFF_MS * 2 ** (failures - 1));
}

/** How many children to start now. Until one has become ready, one at a time: a bad handler is found out once. */
export function startsDue(now: {
  readonly wanted: number;
  readonly alive: number;
  readonly starting: number;
  readonly failures: number;
  readonly everReady: boolean;
  readonly parallel: number;
}): number {
  const together = now.failures > 0 || !now.everReady ? 1 : now.parallel;
  return Math.max(0, Math.min(now.wanted - now.alive, together - now.starting));
}
