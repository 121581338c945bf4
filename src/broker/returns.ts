import type { Entry } from "./entry.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";

/** What a return means for the message. */
export interface Return {
  /** By how much it raises the broker's delivery count (quorum queues, rule F1). */
  readonly counts: number;
  /** Those were failures that travel with the message (4.x, rule F7). */
  readonly failed: boolean;
  /**
   * `front`: after a crash. `requeue`: where the queue's type puts what a client gave back (rule F3). `old`: its own
   * place in any type.
   */
  readonly place: "front" | "requeue" | "old";
}

/** A message comes back to its queue; at the delivery limit it dies instead (rules F1 to F4). */
export function giveBack(m: Machine, queue: Queue, entry: Entry, how: Return): void {
  entry.hold = 0;
  entry.redelivered = true;
  if (queue.deleted) {
    m.contents.delete(entry.seq);
    return;
  }
  if (queue.quorum && how.counts > 0) {
    entry.deliveryCount += how.counts;
    if (how.failed) entry.failures += how.counts;
    if (entry.deliveryCount > queue.options.deliveryLimit) {
      m.die(queue, entry, m.contents.get(entry.seq), "delivery_limit");
      m.touch(queue);
      return;
    }
  }
  if (!queue.quorum || how.place === "old") {
    queue.putBack(entry);
  } else if (how.place === "front" || queue.options.deliveryLimit !== Infinity) {
    entry.position = queue.nextFront++;
    queue.putBack(entry);
  } else {
    entry.position = m.nextSeq++;
    queue.pushBack(entry);
  }
  m.save(queue, entry);
  m.touch(queue);
}
