import type { Entry } from "./entry.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";

/** A refusing quorum queue takes messages again when it has drained to this share of its limits (rule D5). */
const REOPEN_AT = 0.8;

/**
 * Whether a queue that refuses when full refuses this message (rule D5). A classic queue counts exactly; a quorum
 * queue notices only after it went over, so it overshoots by one.
 */
export function refuses(queue: Queue, size: number): boolean {
  const { overflow, maxLength, maxBytes } = queue.options;
  if (overflow === "drop-head") return false;
  if (queue.quorum) return queue.refusing;
  return queue.ready + 1 > maxLength || queue.readyBytes + size > maxBytes;
}

function isOver(queue: Queue): boolean {
  const { maxLength, maxBytes } = queue.options;
  return queue.ready + queue.retained.length > maxLength || queue.readyBytes + queue.retainedBytes > maxBytes;
}

/** Drops from the head what is too much (rules D1 to D4, D8). Only ready messages count. */
export function enforceLimits(m: Machine, queue: Queue): void {
  if (!isOver(queue)) return;
  if (queue.options.overflow !== "drop-head") {
    if (queue.quorum) queue.refusing = true;
    return;
  }
  const dropped: Entry[] = [];
  while (queue.ready > 0 && isOver(queue)) {
    const entry = queue.takeHead() ?? queue.takeSuspect();
    if (entry === undefined) break;
    dropped.push(entry);
  }
  // Quorum queues before 4.2.1 hand several dropped ones on in reverse (rule D4).
  if (queue.quorum && m.compat === "3.x") dropped.reverse();
  for (const entry of dropped) m.die(queue, entry, m.contents.get(entry.seq), "maxlen");
}

/** Looks whether a refusing quorum queue has drained enough. */
export function mayReopen(queue: Queue): void {
  const { maxLength, maxBytes, overflow } = queue.options;
  const length = queue.ready + queue.retained.length;
  const bytes = queue.readyBytes + queue.retainedBytes;
  if (overflow === "drop-head" || (length <= maxLength * REOPEN_AT && bytes <= maxBytes * REOPEN_AT)) {
    queue.refusing = false;
  }
}
