/** Letters that come back: cycles that drop, loops only a consumer can end, returns that reach the wrong queues. */
import { carried } from "./flow.ts";
import type { Keys } from "./keys.ts";
import { looksLikeDlq } from "./names.ts";
import { eachVariant, type Judge, some } from "./rules.ts";
import type { QueueModel } from "./types.ts";

export function judgeLoops(judge: Judge): void {
  const onCycle = ttlCycles(judge);
  judge.ground.vhost.queues.forEach((queue, q) => {
    if (judge.ground.roles[q] === "letters" || onCycle.has(q)) return;
    limitCycle(judge, queue, q);
    retryLoop(judge, queue, q);
  });
  returnsFanOut(judge);
  waitWithoutTtl(judge);
}

/** Every queue of the cycle lets messages expire into the next. */
function ttlCycles(judge: Judge): ReadonlySet<number> {
  const { ground } = judge;
  const onCycle = new Set<number>();
  for (const cycle of judge.ends.cycles()) {
    if (cycle.size < 2) continue; // its own loop: dead-letter-to-self says it
    const members = [...cycle].sort((a, b) => a - b);
    for (const q of members) onCycle.add(q);
    const main =
      members.find((q) => ground.appKeys[q]!.length > 0) ??
      members.find((q) => ground.roles[q] === "work") ??
      members[0]!;
    const names = members.map((q) => ground.vhost.queues[q]!.name);
    const object = ground.vhost.queues[main]!.name;
    judge.say("ttl-cycle-dropped", "error", {
      object,
      objects: [object, ...names.filter((name) => name !== object)],
      why:
        `${some(names)} dead-letter in a circle and every one has a TTL: a message nobody rejects goes round once ` +
        `and is dropped on its return to ${object}; a mere consumer outage empties the queue`,
      fix: `remove the TTL of ${object}, or give it a dead-letter exchange of its own`,
      source: ground.settled[main]!.variants.find((variant) => variant.ttl)?.ttl?.source ?? "topology",
    });
  }
  return onCycle;
}

/** Overflow or the delivery limit sends messages round by TTL: they come back without a reject and are dropped. */
function limitCycle(judge: Judge, queue: QueueModel, q: number): void {
  const { ground } = judge;
  const lost = judge.letters[q]!.filter((letter) => letter.why === "cycle" && letter.path[0] !== queue.name);
  const reasons = [...new Set(lost.map((letter) => letter.reason))].filter((reason) => {
    const limit = ground.settled[q]!.variants.some((variant) => (variant.deliveryLimit?.value ?? -1) >= 0);
    return reason === "maxlen" || (reason === "delivery_limit" && (limit || ground.line === "4"));
  });
  if (reasons.length === 0) return;
  judge.say("ttl-cycle-dropped", "warning", {
    object: queue.name,
    why:
      `a message that dies in ${queue.name} by ${reasons.join(" or ")} is sent round through ` +
      `${some(lost[0]!.path)} and dropped on its return: nobody rejected it, so the broker takes it for a cycle`,
    fix: "let only a parking queue without TTL take these letters, or lift the limit and count in the consumer",
    source:
      ground.settled[q]!.variants[0]!.deliveryLimit?.source ??
      ground.settled[q]!.variants[0]!.maxLength?.source ??
      "topology",
  });
}

function retryLoop(judge: Judge, queue: QueueModel, q: number): void {
  if (judge.ground.roles[q] !== "work") return;
  const back = judge.letters[q]!.find(
    (letter) => letter.ends === "back" && letter.reason === "rejected" && letter.path[0] !== queue.name,
  );
  if (!back) return;
  judge.say("retry-loop-without-broker-limit", "info", {
    object: queue.name,
    why: `a rejected message waits in ${some(back.path.filter((name) => name !== queue.name))} and comes back to ${queue.name}: only the consumer can end the loop, delivery limits start anew with each round`,
    fix: "count in the consumer (x-death count or an own header) and park the message after n rounds",
    source: "topology",
  });
}

/** Waiting queues in a row that are looked through for the return. */
const MAX_STAGES = 4;

/** A returning letter also reaches queues that never failed: they get a message twice. */
function returnsFanOut(judge: Judge): void {
  const { ground } = judge;
  const judged = new Set<string>();
  eachVariant(ground, (queue, q, variant) => {
    if (!variant.dlx || ground.roles[q] === "letters") return;
    for (const from of ground.flow.routesFrom(q)) {
      if (from.dlx !== variant.dlx.value) continue;
      for (const target of from.route.targets.slice(0, 16)) {
        if (target.queue === q) continue;
        followReturn(judge, queue, q, target, MAX_STAGES, judged);
      }
    }
  });
}

function followReturn(
  judge: Judge,
  origin: QueueModel,
  q: number,
  at: { readonly queue: number; readonly keys: Keys },
  stages: number,
  judged: Set<string>,
): void {
  const { ground } = judge;
  const wait = ground.vhost.queues[at.queue]!;
  if (!ground.hasDlx[at.queue] || !(ground.hasTtl[at.queue] || ground.roles[at.queue] === "wait")) return;
  for (const variant of ground.settled[at.queue]!.variants) {
    if (!variant.dlx) continue;
    const route = ground.router.route(variant.dlx.value, carried(variant, at.keys));
    if (!route.queues.has(q)) {
      if (stages > 1) {
        for (const next of route.targets.slice(0, 4)) {
          if (next.queue !== at.queue) followReturn(judge, origin, q, next, stages - 1, judged);
        }
      }
      continue;
    }
    const id = `${at.queue}\u0000${q}`;
    if (judged.has(id)) continue;
    judged.add(id);
    const others = [...route.queues]
      .filter((t) => t !== q && t !== at.queue && ground.roles[t] === "work")
      .map((t) => ground.vhost.queues[t]!.name)
      .filter((name) => !looksLikeDlq(name));
    if (others.length === 0) continue;
    judge.say("retry-return-fans-out", "warning", {
      object: wait.name,
      why: `${wait.name} returns what ${origin.name} rejected to ${variant.dlx.value}, where its key also reaches ${some(others)}: queues that never failed get it again`,
      fix: `on ${wait.name} set x-dead-letter-exchange to "" and x-dead-letter-routing-key to ${origin.name}, or use a key only ${origin.name} binds`,
      source: variant.dlx.source,
    });
  }
}

/** A delay queue that relies on each message's own expiration. */
function waitWithoutTtl(judge: Judge): void {
  const { ground } = judge;
  ground.vhost.queues.forEach((queue, q) => {
    if (queue.type === "stream" || !ground.hasDlx[q] || ground.hasTtl[q]) return;
    if (ground.appKeys[q]!.length > 0 || looksLikeDlq(queue.name)) return;
    const targets = ground.flow.targets(q);
    const worksOn =
      targets.length > 0 &&
      targets.every(
        (t) =>
          t !== q &&
          ground.roles[t] === "work" &&
          !(ground.hasTtl[t] && ground.hasDlx[t]) &&
          (ground.appKeys[t]!.length > 0 || deliveredOn(judge, t)),
      );
    if (ground.roles[q] !== "wait" && !worksOn) return;
    judge.say("wait-queue-without-ttl", "info", {
      object: queue.name,
      why: `${queue.name} passes messages on to ${some(targets.map((t) => ground.vhost.queues[t]!.name))} but has no TTL: with per-message expiration a long one in front blocks shorter ones, one without expiration blocks for ever`,
      fix: "one waiting queue per delay, each with x-message-ttl",
      source: "queue",
    });
  });
}

/** A queue whose own letters go on to a dead-letter queue: it is worked on, not kept. */
const deliveredOn = (judge: Judge, q: number): boolean =>
  judge.ground.flow.targets(q).some((t) => t !== q && judge.ground.roles[t] === "letters");
