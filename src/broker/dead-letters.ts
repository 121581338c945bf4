import { type Dead, deadLetter, isCycle } from "./death.ts";
import { enqueue } from "./enqueue.ts";
import type { Entry } from "./entry.ts";
import { route } from "./exchange.ts";
import { refuses } from "./limits.ts";
import { MAX_CHAIN, type Machine, type Pending } from "./machine.ts";
import type { Queue } from "./queue.ts";
import type { Content, DeathReason, LostWhy } from "./types.ts";

/** At-least-once: how long a dead letter that found no place waits for the next try (rule I2). */
export const RETAINED_RETRY_MS = 180_000;

/**
 * Carries out one death: the message leaves its queue and its dead letter goes where the DLX leads. Both are effects
 * of the same command, so a journal that writes a command in one transaction never has half a death.
 */
export function carryOut(m: Machine, death: Pending): void {
  const { queue, entry, content, reason } = death;
  m.chain = m.runaway ? MAX_CHAIN + 1 : death.chain + 1;
  if (countsAsFailure(m, queue, reason)) entry.failures++;
  if (queue.options.dlx === undefined) lose(m, death, "no-dlx", content);
  else if (!passOn(m, death, queue.options.dlx)) {
    retain(m, queue, entry, reason);
    m.chain = 0;
    return;
  }
  m.chain = 0;
  if (death.stored) m.gone(queue, entry);
}

/** From 4.0 on a reject is a failure that travels with the message (rule F7). */
function countsAsFailure(m: Machine, queue: Queue, reason: DeathReason): boolean {
  return m.compat === "4.x" && queue.quorum && reason === "rejected";
}

/** @returns false when the dead letter must stay in its queue (at-least-once) */
function passOn(m: Machine, death: Pending, dlx: string): boolean {
  const { queue, entry, content, reason } = death;
  const { dlrk, atLeastOnce } = queue.options;
  const dead = deadLetter({
    queue: queue.record.name,
    reason,
    content,
    died: entry.died,
    now: m.now,
    compat: m.compat,
    dlx,
    dlrk,
  });
  const exchange = m.exchanges.get(dlx);
  if (exchange === undefined) return !atLeastOnce && lose(m, death, "dlx-missing", dead.content);
  const found = route(exchange, dead.content, routingKeys(dead.content), m);
  const targets = withoutCycles(m, death, found, dead);
  const cycles = found.length - targets.length;
  if (atLeastOnce && (targets.length === 0 || targets.some((t) => refuses(t, entry.size)))) return false;
  for (let i = 0; i < cycles; i++) lose(m, death, "cycle", dead.content);
  if (found.length === 0) lose(m, death, "unroutable", dead.content);
  const failures = m.compat === "4.x" ? entry.failures : 0;
  const arrival = { died: true, failures };
  const from = { queueId: queue.record.id, seq: entry.seq };
  for (const target of targets) {
    const taken = enqueue(
      m,
      target,
      dead.content,
      death.stored && entry.persistent ? { ...arrival, from } : arrival,
    );
    // A queue that refuses with reject-publish-dlx has made a further death of it, which is not a loss.
    if (!taken && target.options.overflow !== "reject-publish-dlx") lose(m, death, "refused", dead.content);
  }
  return true;
}

function withoutCycles(m: Machine, death: Pending, targets: readonly Queue[], dead: Dead): readonly Queue[] {
  if (m.chain > MAX_CHAIN) return [];
  if (death.reason === "rejected") return targets;
  return targets.filter((target) => !isCycle(target.record.name, dead.deaths));
}

/** All keys a message is routed by: its own, CC and BCC. */
export function routingKeys(content: Content): readonly string[] {
  if (content.keys === undefined) return [content.routingKey];
  return [content.routingKey, ...content.keys.cc, ...content.keys.bcc];
}

function lose(m: Machine, death: Pending, why: LostWhy, content: Content): true {
  const { queue, entry, reason } = death;
  const name = queue.record.name;
  m.countLost(name, reason, why);
  const { dlx, dlrk } = queue.options;
  m.effects.push({
    type: "lost",
    queue: name,
    reason,
    why,
    exchange: dlx ?? "",
    routingKey: dlrk ?? content.routingKey,
    seq: entry.seq,
    content,
  });
  return true;
}

function retain(m: Machine, queue: Queue, entry: Entry, reason: DeathReason): void {
  entry.retained = reason;
  entry.hold = 0;
  queue.retained.push(entry);
  queue.retainedBytes += entry.size;
  if (queue.retryRetainedAt === Infinity) queue.retryRetainedAt = m.now + RETAINED_RETRY_MS;
  m.save(queue, entry);
  m.touch(queue);
}

/** Tries the retained dead letters of a queue again. */
export function retryRetained(m: Machine, queue: Queue): void {
  const waiting = queue.retained;
  queue.retained = [];
  queue.retainedBytes = 0;
  queue.retryRetainedAt = Infinity;
  for (const entry of waiting) {
    const reason = entry.retained as DeathReason;
    entry.retained = null;
    // The reject was counted when it happened.
    if (countsAsFailure(m, queue, reason)) entry.failures--;
    m.die(queue, entry, m.contents.get(entry.seq), reason);
  }
  m.touch(queue);
}
