import { retryRetained } from "./dead-letters.ts";
import { releaseDue } from "./enqueue.ts";
import type { Machine } from "./machine.ts";
import { deleteQueue } from "./queue-commands.ts";

/**
 * Messages one tick lets expire or fall due at most: a million of them do not become one transaction, and the first
 * of a burst are on their way while the last are still looked at. The alarm stays due, and the next tick goes on.
 */
export const TICK_BUDGET = 200;

/** The earliest alarm that still stands. */
export function nextAlarm(m: Machine): number {
  return m.afterRestore.length > 0 ? 0 : dueAlarm(m);
}

function dueAlarm(m: Machine): number {
  for (;;) {
    const alarm = m.alarms.peek();
    if (alarm === undefined) return Infinity;
    if (!alarm.queue.deleted && alarm.queue.wakeAt === alarm.at) return alarm.at;
    m.alarms.pop();
  }
}

/** Time has passed: looks after every queue whose alarm is due, the earliest first. */
export function tick(m: Machine): void {
  m.budget = TICK_BUDGET;
  while (dueAlarm(m) <= m.now) {
    const alarm = m.alarms.pop();
    if (alarm === undefined) return;
    const { queue } = alarm;
    queue.wakeAt = Infinity;
    if (queue.leaseEndsAt <= m.now) {
      deleteQueue(m, queue, undefined);
      continue;
    }
    releaseDue(m, queue);
    if (queue.retryRetainedAt <= m.now) retryRetained(m, queue);
    m.touch(queue);
  }
}
