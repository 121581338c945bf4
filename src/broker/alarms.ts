import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";

/** Sets the machine's alarm for the queue's earliest deadline. An alarm may come early, never late. */
export function schedule(m: Machine, queue: Queue): void {
  let at = queue.leaseEndsAt;
  if (queue.ready > 0) {
    const head = queue.headExpiresAt();
    if (head > 0 && head < at) at = head;
    const suspect = queue.suspects.peek();
    if (suspect !== undefined && suspect.expiresAt > 0 && suspect.expiresAt < at) at = suspect.expiresAt;
  }
  if (queue.delayed !== undefined) at = Math.min(at, queue.delayed.nextDueAt());
  if (queue.retryRetainedAt < at) at = queue.retryRetainedAt;
  if (at < queue.wakeAt) {
    queue.wakeAt = at;
    m.alarms.push({ at, queue });
  }
}
