import { existsSync, statSync } from "node:fs";
import type { Command } from "commander";
import { Consumer } from "../../consumer/index.ts";
import { DloError } from "../../core/index.ts";
import type { WorkerInfo } from "../../http/index.ts";
import { parseDuration } from "../../office/index.ts";
import { Settings } from "../config.ts";
import { openAsWorker } from "../engine.ts";
import { EXIT } from "../exit.ts";
import { type Io, ProgressLine, say } from "../io.ts";
import { loggerTo } from "../log.ts";
import { withData } from "../options.ts";
import type { Act } from "../program.ts";
import { openRabbit } from "../rabbit.ts";
import { counted, escapeLine } from "../text.ts";

const DEFAULTS = { maxAttempts: 3, concurrency: 1, timeoutMs: 30_000, backoffMs: 1000 };
/** The longest wait between two tries, however often it doubled. */
const MAX_BACKOFF_MS = 300_000;
const DRAIN_MARGIN_MS = 1000;

interface WorkOptions {
  untilEmpty?: boolean;
  /** True, or where the RabbitMQ's management API is. */
  refuseLossy?: boolean | string;
  data?: string;
}

/** What `dlo work` was asked to do, checked. */
export interface Work {
  readonly queue: string;
  readonly handler: string;
  readonly maxAttempts: number;
  readonly concurrency: number;
  readonly isolate: "none" | "process";
  readonly timeoutMs: number;
  readonly backoffMs: number;
  readonly untilEmpty: boolean;
}

function needed(settings: Settings, setting: "queue" | "handler"): string {
  const found = setting === "handler" ? settings.path(setting) : settings.get(setting);
  if (found && found.value !== "") return found.value;
  const variable = setting === "queue" ? "DLO_QUEUE" : "DLO_HANDLER";
  throw new DloError("BAD_ARGUMENT", `which ${setting}? expected --${setting} (or ${variable})`);
}

const ISOLATIONS = ["process", "none"] as const;
const isolation = (text: string): "process" | "none" | null => ISOLATIONS.find((one) => one === text) ?? null;
const span = (text: string): number | null => {
  const ms = parseDuration(text);
  return ms === null || ms < 1 ? null : ms;
};

/** Reads the settings; every mistake is found before any data is touched. */
export function workOf(settings: Settings, options: WorkOptions): Work {
  const handler = needed(settings, "handler");
  if (!existsSync(handler)) throw new DloError("BAD_HANDLER", `handler file ${handler} does not exist`);
  if (!statSync(handler).isFile()) throw new DloError("BAD_HANDLER", `handler ${handler} is not a file`);
  return {
    queue: needed(settings, "queue"),
    handler,
    maxAttempts: settings.count("maxAttempts", 1) ?? DEFAULTS.maxAttempts,
    concurrency: settings.count("concurrency", 1) ?? DEFAULTS.concurrency,
    isolate: settings.parsed("isolate", isolation, '"process" or "none"') ?? "process",
    timeoutMs:
      settings.parsed("timeout", span, "a duration with a unit, such as 500ms or 30s") ?? DEFAULTS.timeoutMs,
    backoffMs:
      settings.parsed("backoff", parseDuration, "a duration with a unit, such as 500ms or 30s") ??
      DEFAULTS.backoffMs,
    untilEmpty: options.untilEmpty === true,
  };
}

/** Counts what the consumer tells and keeps the line of progress; what it warns of goes through the logger. */
class Told {
  handled = 0;
  retried = 0;
  dead = 0;

  constructor(io: Io, consumer: Consumer, line: ProgressLine) {
    const show = (): void => line.show(this.summary);
    consumer.on("handled", () => {
      this.handled += 1;
      show();
    });
    consumer.on("retried", ({ id, error, attempt }) => {
      this.retried += 1;
      if (error === null) {
        line.clear();
        void say(
          io,
          `dlo: attempt ${attempt} of message ${escapeLine(id)} ended its process; it is tried again`,
        );
      }
      show();
    });
    consumer.on("dead", () => {
      this.dead += 1;
      show();
    });
  }

  get summary(): string {
    return `handled ${this.handled}, retried ${this.retried}, dead ${this.dead}`;
  }
}

/** Where the messages come from and the letters go to. */
export interface Source {
  readonly queue: ConstructorParameters<typeof Consumer>[0]["queue"];
  readonly deadLetters: ConstructorParameters<typeof Consumer>[0]["deadLetters"];
  /** For people. */
  readonly where: string;
  /**
   * Refuses where the queue's letters would vanish.
   * @param management - address of a RabbitMQ's management API; guessed where it is absent.
   */
  checkLettersKept(management?: string): Promise<void>;
  close(): Promise<void>;
}

/** Runs until it is told to stop, or (until empty) until nothing waits any more. */
async function run(io: Io, work: Work, source: Source): Promise<number> {
  const stop = new AbortController();
  const line = new ProgressLine(io);
  const consumer = new Consumer({
    queue: source.queue,
    deadLetters: source.deadLetters,
    handler: work.handler,
    maxAttempts: work.maxAttempts,
    concurrency: work.concurrency,
    isolate: work.isolate,
    timeoutMs: work.timeoutMs,
    backoff: {
      baseMs: work.backoffMs,
      factor: 2,
      maxMs: Math.max(work.backoffMs, MAX_BACKOFF_MS),
      jitter: 0.2,
    },
    signal: stop.signal,
    // No handler runs longer than its time limit, so none is cut short by the stop.
    drainMs: work.timeoutMs + DRAIN_MARGIN_MS,
    logger: loggerTo(io, () => line.clear()),
  });
  const told = new Told(io, consumer, line);
  const onStop = (): void => {
    void say(io, "stopping: running handlers end first (once more to stop at once)");
    stop.abort();
  };
  if (io.signal.aborted) stop.abort();
  else io.signal.addEventListener("abort", onStop, { once: true });
  await say(
    io,
    `working on ${work.queue} in ${source.where}: ${work.concurrency} at a time, ${counted(work.maxAttempts, "attempt")}, isolation ${work.isolate}`,
  );
  try {
    await consumer.run({ until: work.untilEmpty ? "idle" : "stopped" });
  } finally {
    io.signal.removeEventListener("abort", onStop);
    line.clear();
  }
  await say(io, told.summary);
  return EXIT.done;
}

async function work(io: Io, options: WorkOptions): Promise<number> {
  const settings = await Settings.read(io, { ...options });
  const asked = workOf(settings, options);
  const url = settings.get("url");
  const info: WorkerInfo = {
    queue: asked.queue,
    maxAttempts: asked.maxAttempts,
    concurrency: asked.concurrency,
    isolate: asked.isolate,
    pid: process.pid,
    startedAt: Date.now(),
  };
  const { refuseLossy } = options;
  const management = refuseLossy === true ? null : refuseLossy || undefined;
  const source = url ? await openRabbit(io, url, info, management) : await openAsWorker(settings.data, info);
  try {
    if (refuseLossy) await source.checkLettersKept(refuseLossy === true ? undefined : refuseLossy);
    return await run(io, asked, source);
  } finally {
    await source.close();
  }
}

export function define(command: Command, act: Act): void {
  withData(command)
    .option("--queue <name>", "the queue (DLO_QUEUE); made where it is not there yet")
    .option("--handler <file>", "file that exports the handler, as default or as handler (DLO_HANDLER)")
    .option("--concurrency <n>", "messages at a time (default 1)")
    .option("--max-attempts <n>", "handler runs before a failing message is moved aside (default 3)")
    .option("--isolate <how>", "process (default): handlers run in child processes; none: in this one")
    .option("--timeout <duration>", "longest run of the handler (default 30s)")
    .option("--backoff <duration>", "wait before the first retry; doubled with each further one (default 1s)")
    .option("--until-empty", "end when nothing waits any more, delayed retries included")
    .option(
      "--refuse-lossy [management-url]",
      "do not start where the broker would lose letters of the queue (RabbitMQ: asks its management API)",
    )
    .option("--url <url>", "a RabbitMQ to work on instead of the data directory (DLO_URL)")
    .addHelpText(
      "after",
      "\nSIGTERM or Ctrl-C: running handlers end, then it exits with 0; a second one ends it at once.",
    )
    .action(act(work));
}
