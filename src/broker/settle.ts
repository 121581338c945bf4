import { schedule } from "./alarms.ts";
import { carryOut } from "./dead-letters.ts";
import { dispatch } from "./deliver.ts";
import { expireHeads } from "./expiry.ts";
import { enforceLimits, mayReopen } from "./limits.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";

/**
 * Queues brought to rest within one command. Only letters that go round without waiting (TTL 0, length 0, and an
 * x-death that hides the cycle) get near it; what still dies then is lost as a cycle.
 */
const MAX_ROUNDS = 100_000;

/**
 * Ends a command: carries out the deaths it decided, and brings every queue it touched to rest. Deaths touch other
 * queues and rest can bring deaths, so both go on until nothing is left.
 */
export function flush(m: Machine): void {
  let first = 0;
  for (;;) {
    if (first === MAX_ROUNDS) m.runaway = true;
    let next = 0;
    while (next < m.deaths.length) {
      const death = m.deaths[next++];
      if (death !== undefined) carryOut(m, death);
    }
    if (next > 0) m.deaths.length = 0;
    const queue = m.touched[first++];
    if (queue === undefined) {
      // Taken off one by one: a length set to 0 gives the array's memory away, at every command.
      while (m.touched.length > 0) m.touched.pop();
      m.budget = Infinity;
      m.runaway = false;
      return;
    }
    queue.touched = false;
    if (!queue.deleted) rest(m, queue);
  }
}

/** Classic queues drop before they deliver, quorum queues deliver before they drop (rule D3). */
function rest(m: Machine, queue: Queue): void {
  if (queue.ready > 0) {
    expireHeads(m, queue);
    if (!queue.quorum) enforceLimits(m, queue);
    dispatch(m, queue);
    if (queue.quorum) enforceLimits(m, queue);
  }
  if (queue.refusing) mayReopen(queue);
  schedule(m, queue);
}
