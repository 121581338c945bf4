/**
 * The entry of a child process: loads the handler module, runs one message at a time, reports how it ended. The
 * parent (supervisor.ts) judges; this side only tells the truth about what it saw.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { classify, DloError, describe, type Message, serializeError, stackOf } from "../core/index.ts";
import { stayAwake } from "../loop/index.ts";
import { type ChildSetup, type Command, isOurs, MARK, type Report } from "./ipc.ts";
import { CHANNEL_CLOSED_EXIT } from "./policy.ts";
import { noteAsked, noteExit, noteStart, useRecorder } from "./record.ts";

type Handler = (message: Message, told: HandlerContext) => unknown;

/** What a handler is told beside the message; as in process, but that the signal speaks only when the parent closes. */
interface HandlerContext {
  readonly signal: AbortSignal;
  readonly attempt: number;
}

const setup = JSON.parse(process.argv[2] ?? "{}") as ChildSetup;
// The handler sees the command line it would have if it were started by itself.
process.argv.splice(1, 2, setup.file);
if (setup.recorded) useRecorder();

// Taken before the handler module can replace or drop them.
const rawSend = process.send?.bind(process);
const channel = process.channel;
const exit = process.exit.bind(process);

const context = new AsyncLocalStorage<{ readonly run: number }>();
let handler: Handler | null = null;
let running = false;
let stopping = false;
let asked = false;
/** Made when a handler first asks for its signal: most never do. */
let ending: AbortController | undefined;

/** Without a channel nobody can hear how a run ends: the process is of no use any more. */
function send(report: Report, then?: () => void): void {
  if (rawSend === undefined || !process.connected) exit(CHANNEL_CLOSED_EXIT);
  rawSend?.(report, (error: Error | null) => {
    if (error !== null) exit(CHANNEL_CLOSED_EXIT);
    then?.();
  });
}

/** The handler cannot be loaded: says why and ends. */
function bad(why: string, thrown?: unknown): void {
  const error = thrown === undefined ? null : serializeError(thrown, Date.now());
  send([MARK, "bad", why, error], () => exit(1));
}

function contextFor(message: Message): HandlerContext {
  return {
    ...setup.context,
    attempt: message.receiveCount,
    get signal() {
      ending ??= new AbortController();
      return ending.signal;
    },
  };
}

async function handle(no: number, message: Message, call: Handler | null): Promise<void> {
  running = true;
  noteStart(no);
  try {
    // Whatever the handler leaves behind (timers, promises) carries its run with it.
    await context.run({ run: no }, () => call?.(message, contextFor(message)));
    send([MARK, "ok", no]);
  } catch (thrown) {
    if (classify(thrown) === "crash") send([MARK, "crash", no, describe(thrown)]);
    else send([MARK, "failed", no, serializeError(thrown, Date.now())]);
  }
  running = false;
  if (stopping) channel?.unref();
  else stayAwake();
}

/** Something threw where no handler can catch it. As in any Node process that is its end; the parent sees to it. */
function fault(origin: string, thrown: unknown): void {
  const owner = context.getStore()?.run ?? 0;
  if (handler === null) {
    bad("throws while it is loaded", thrown);
    return;
  }
  const text = describe(thrown);
  process.stderr.write(`${origin}: ${stackOf(thrown) ?? text}\n`);
  send([MARK, "fault", owner, origin, text]);
}

function findHandler(module: Record<string, unknown>): Handler | null {
  const inner = module["default"] as Record<string, unknown> | null | undefined;
  // CommonJS and transpiled modules keep their exports one level further down.
  for (const found of [inner, module["handler"], inner?.["default"], inner?.["handler"]]) {
    if (typeof found === "function") return found as Handler;
  }
  return null;
}

async function load(): Promise<void> {
  let module: Record<string, unknown>;
  try {
    module = (await import(pathToFileURL(setup.file).href)) as Record<string, unknown>;
  } catch (thrown) {
    bad("throws while it is loaded", thrown);
    return;
  }
  handler = findHandler(module);
  if (handler === null) {
    const names = Object.keys(module).join(", ") || "nothing";
    bad(`exports no function as default or as "handler" (it exports: ${names})`);
    return;
  }
  send([MARK, "ready"]);
  if (setup.beatMs > 0) setInterval(() => send([MARK, "beat"]), setup.beatMs).unref();
}

function onMessage(message: unknown): void {
  if (!isOurs(message)) return;
  const command = message as Command;
  if (command[1] === "run") void handle(command[2], command[3], handler);
  else if (command[1] === "warm") void handle(0, command[2], null);
  else if (command[1] === "stop") {
    // Without the channel holding it, the process ends when the handler's own timers and sockets are done.
    stopping = true;
    if (!running) channel?.unref();
  }
}

/**
 * A terminal or a process manager signals the whole group. The parent decides what becomes of the running message,
 * so the first signal only asks to be let go; one that comes when the parent has said stop ends the process, unless
 * the handler module listens too and does it its own way.
 */
function onSignal(signal: NodeJS.Signals): void {
  asked = true;
  if (!stopping) {
    send([MARK, "leave"]);
    return;
  }
  // A handler that looks at its signal has until the parent's SIGKILL to come back.
  if (running && ending !== undefined) {
    ending.abort(new DloError("CLOSED", "the consumer stops and waits no longer"));
  } else if (process.listenerCount(signal) === 1) exit(0);
}

/** Node gives warnings and stack traces their own writers; only the thread can act while the loop is blocked. */
function watch(): void {
  const watchdog = new Worker(new URL("./watchdog.js", import.meta.url), {
    workerData: setup,
    env: {},
    execArgv: [],
  });
  watchdog.unref();
  watchdog.on("error", (error) => {
    process.stderr.write(`the watchdog thread failed, so this process is replaced: ${describe(error)}\n`);
    send([MARK, "leave"]);
  });
}

watch();
process.on("message", onMessage);
process.on("disconnect", () => exit(CHANNEL_CLOSED_EXIT));
process.on("uncaughtException", (error, origin) => {
  if (origin !== "unhandledRejection") fault("uncaught exception", error);
});
process.on("unhandledRejection", (reason) => fault("unhandled rejection", reason));
process.on("exit", () => {
  if (asked || stopping) noteAsked();
  else noteExit(context.getStore()?.run ?? 0);
});
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, onSignal);
void load();
