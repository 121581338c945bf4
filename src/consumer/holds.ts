import type { Message } from "../core/index.ts";
import { isGone, type Job } from "./job.ts";
import type { Plan } from "./options.ts";

/** Whose holds are prolonged, and who hears what goes wrong with it. */
export interface Holder {
  readonly queue: Plan["queue"];
  readonly jobs: ReadonlySet<Job>;
  /** The suspect that waits for the others to end is no job yet. */
  waiting(): Message | null;
  failed(during: string, error: unknown, id: string): void;
}

/** Prolongs the holds of a queue whose holds run out, three times as often, while we work; undefined for others. */
export function keepHolds(holder: Holder): NodeJS.Timeout | undefined {
  const { queue, jobs } = holder;
  if (queue.extend === undefined || queue.holdMs === undefined) return undefined;
  const timer = setInterval(() => {
    for (const job of jobs) if (job.left === null) void prolong(holder, job.message, job);
    const waiting = holder.waiting();
    if (waiting !== null && ![...jobs].some((job) => job.message === waiting))
      void prolong(holder, waiting, null);
  }, queue.holdMs / 3);
  timer.unref();
  return timer;
}

/** A message that was taken over meanwhile: its handler is told, and nothing is settled for it. */
async function prolong(holder: Holder, message: Message, job: Job | null): Promise<void> {
  try {
    await holder.queue.extend?.(message.id, message.receipt);
  } catch (error) {
    if (!isGone(error)) holder.failed("extend", error, message.id);
    else if (job !== null && holder.jobs.has(job) && job.left === null)
      job.context?.abort(job.leave("stale"));
  }
}
