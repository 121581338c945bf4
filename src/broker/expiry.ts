import { parseExpiration } from "./arguments.ts";
import type { Machine } from "./machine.ts";
import type { Queue } from "./queue.ts";
import type { Content } from "./types.ts";

/** The deadline a message gets as it enters a queue (rules C2, C3): the smaller of both TTLs; 0: none. */
export function deadline(queue: Queue, content: Content, now: number): number {
  const text = content.properties.expiration;
  const own = text === undefined ? undefined : parseExpiration(text);
  const { ttl } = queue.options;
  if (ttl === undefined) return own === undefined ? 0 : now + own;
  return now + (own === undefined ? ttl : Math.min(ttl, own));
}

/** Lets the messages at the head die whose time is over. Behind a live head they wait (rule C6). */
export function expireHeads(m: Machine, queue: Queue): void {
  for (;;) {
    const at = queue.headExpiresAt();
    if (at === 0 || at > m.now || m.budget-- <= 0) break;
    const entry = queue.takeHead();
    if (entry === undefined) break;
    m.die(queue, entry, m.contents.get(entry.seq), "expired");
  }
  // Suspects have a line of their own, so their head is looked at for itself.
  for (;;) {
    const suspect = queue.suspects.peek();
    if (suspect === undefined || suspect.expiresAt === 0 || suspect.expiresAt > m.now) break;
    if (m.budget-- <= 0) break;
    queue.takeSuspect();
    m.die(queue, suspect, m.contents.get(suspect.seq), "expired");
  }
}

/** Starts, renews or ends the x-expires lease of a queue: it runs while nobody consumes. */
export function renewLease(m: Machine, queue: Queue): void {
  const { expires } = queue.options;
  queue.leaseEndsAt = expires === undefined || queue.consumers.all.size > 0 ? Infinity : m.now + expires;
  m.touch(queue);
}
