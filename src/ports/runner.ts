import type { Message, SerializedError } from "../core/index.ts";

export type { SerializedError } from "../core/index.ts";

/**
 * How one run of a handler in another process ended.
 * - `ok`: it returned. `failed`: it threw; the process lives.
 * - `crashed`: its process died of this message. A start without an outcome: counted.
 * - `interrupted`: it was ended by a cause that lies elsewhere (SIGTERM, another message's fault). Not counted.
 */
export type RunResult =
  | { readonly outcome: "ok" }
  | { readonly outcome: "failed"; readonly error: SerializedError }
  | { readonly outcome: "crashed"; readonly cause: string; readonly detail?: string }
  | { readonly outcome: "interrupted"; readonly cause: string };

/** Runs handlers somewhere else: a pool of child processes. One `run` per concurrency slot at a time. */
export interface HandlerRunner {
  /**
   * Runs the handler with this message. Never rejects for what the handler does; rejects (`WORKER_FAILED`,
   * `BAD_HANDLER`, `CLOSED`) only when no handler could be started at all, so that no message is blamed.
   */
  run(message: Message): Promise<RunResult>;
  /**
   * Ends the children once their running messages are done, after at most `drainMs` (default: the runner's own).
   * Runs that are cut off then are `interrupted`. When it resolves, no handler runs any more.
   */
  close(options?: { readonly drainMs?: number }): Promise<void>;
}
