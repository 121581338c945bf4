/** One run of a handler: the body checked against the schema, the time limit, and what it ended with. */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import {
  classify,
  DloError,
  describe,
  isPending,
  type Message,
  PermanentError,
  type Ran,
  revived,
} from "../core/index.ts";
import type { HandlerRunner, Maybe, RunResult } from "../ports/index.ts";
import { WorkerPool } from "../worker/index.ts";
import type { Deadlines } from "./deadlines.ts";
import { copyFor, type Handled } from "./dlq-consumer.ts";
import type { Handler, HandlerContext, Plan } from "./options.ts";

/** How many of a schema's complaints a letter names. */
const MAX_ISSUES = 5;

/** The context of one run. Its signal is made when it is first asked for: most handlers never do. */
export class RunContext implements HandlerContext {
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly queue?: string;
  #controller: AbortController | undefined;
  #aborted: unknown;

  constructor(attempt: number, maxAttempts: number, queue: string | undefined) {
    this.attempt = attempt;
    this.maxAttempts = maxAttempts;
    if (queue !== undefined) this.queue = queue;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Tells the handler that nobody waits for it any more. */
  abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
  }
}

class TimeoutError extends Error {
  override readonly name: string = "TimeoutError";
}

class SchemaError extends PermanentError {
  override readonly name: string = "SchemaError";
}

const failed = (error: unknown): Ran => ({ ended: "failed", error });
const returned = (): Ran => undefined;

/** Runs a handler in this process. Never throws or rejects: what the handler does is in the answer. */
export function runHere(
  handler: Handler,
  message: Message,
  context: RunContext,
  schema: StandardSchemaV1 | undefined,
  deadlines: Deadlines | null,
): Maybe<Ran> {
  try {
    const copy = copyFor(message);
    const ready = schema === undefined ? copy : checked(schema, copy);
    const answer = isPending(ready)
      ? ready.then((own) => handler(own as Handled, context))
      : handler(ready, context);
    if (!isPending(answer)) return undefined;
    const ran = answer.then(returned, failed);
    return deadlines === null ? ran : inTime(ran, deadlines, context);
  } catch (error) {
    return failed(error);
  }
}

/** The run, or a TimeoutError when it takes too long; what it does later is heard and not acted upon. */
function inTime(ran: PromiseLike<Ran>, deadlines: Deadlines, context: RunContext): Promise<Ran> {
  return new Promise((end) => {
    const limited = {
      endsAt: 0,
      expire: () => {
        const error = new TimeoutError(`the handler timed out after ${deadlines.limitMs} ms`);
        context.abort(error);
        end(failed(error));
      },
    };
    deadlines.add(limited);
    ran.then((value) => {
      deadlines.done(limited);
      end(value);
    });
  });
}

function checked(schema: StandardSchemaV1, message: Handled): Maybe<Handled> {
  const result = schema["~standard"].validate(message.body);
  return isPending(result)
    ? result.then((later) => withValue(later as StandardSchemaV1.Result<unknown>, message))
    : withValue(result, message);
}

function withValue(result: StandardSchemaV1.Result<unknown>, message: Handled): Handled {
  if (result.issues === undefined) return { ...message, body: result.value };
  const lines = result.issues.slice(0, MAX_ISSUES).map((issue) => {
    const path = (issue.path ?? [])
      .map((part) => String(typeof part === "object" ? part.key : part))
      .join(".");
    return path === "" ? issue.message : `${path}: ${issue.message}`;
  });
  const more = result.issues.length > MAX_ISSUES ? `; and ${result.issues.length - MAX_ISSUES} more` : "";
  throw new SchemaError(`the body does not fit the schema: ${lines.join("; ")}${more}`);
}

/** Runs a handler elsewhere. Rejects only when no handler could be started, so that nobody is to blame. */
export async function runThere(
  runner: HandlerRunner,
  message: Message,
  schema: StandardSchemaV1 | undefined,
): Promise<Ran> {
  let sent = message;
  if (schema !== undefined) {
    try {
      sent = { ...message, body: (await checked(schema, copyFor(message))).body };
    } catch (error) {
      return failed(error);
    }
  }
  return ranOf(await runner.run(sent));
}

function ranOf(result: RunResult): Ran {
  if (result.outcome === "ok") return undefined;
  if (result.outcome === "failed") {
    // A Crash thrown over there is the death of that process, not of this one.
    if (classify(result.error) === "crash") return { ended: "crashed", cause: describe(result.error) };
    return { ended: "failed", error: revived(result.error) };
  }
  if (result.outcome === "interrupted") return { ended: "interrupted", cause: result.cause };
  const { cause, detail } = result;
  return { ended: "crashed", cause: detail === undefined ? cause : `${cause}: ${detail}` };
}

/** The pool of child processes that runs the plan's handler module. Starts nothing. */
export function poolFor(plan: Plan): WorkerPool {
  const { handler, worker, concurrency, timeoutMs, logger, maxAttempts, queue } = plan;
  const limits = timeoutMs === 0 ? {} : { timeoutMs };
  const name = queue.name === undefined ? {} : { queue: queue.name };
  // What a handler in this process finds in its second argument, it finds there too.
  const context = { ...worker?.context, maxAttempts, ...name };
  return new WorkerPool({
    ...worker,
    context,
    file: handler as string | URL,
    concurrency,
    logger,
    ...limits,
  });
}

/** The function itself, or the one a module exports. @throws DloError `BAD_HANDLER` */
export function handlerOf(handler: Plan["handler"]): Maybe<Handler> {
  return typeof handler === "function" ? handler : loadHandler(handler);
}

/** The function a handler module exports, by default or as `handler`. @throws DloError `BAD_HANDLER` */
async function loadHandler(file: string | URL): Promise<Handler> {
  const url =
    file instanceof URL || file.startsWith("file:") ? String(file) : pathToFileURL(resolve(file)).href;
  let exported: { default?: unknown; handler?: unknown };
  try {
    exported = await import(url);
  } catch (cause) {
    throw new DloError("BAD_HANDLER", `handler module ${String(file)} cannot be loaded`, { cause });
  }
  const found = typeof exported.default === "function" ? exported.default : exported.handler;
  if (typeof found === "function") return found as Handler;
  throw new DloError(
    "BAD_HANDLER",
    `handler module ${String(file)} exports no function; expected one as its default export or as "handler"`,
  );
}
