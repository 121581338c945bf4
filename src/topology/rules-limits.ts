/** Messages that die without a dead-letter exchange, delivery limits, and at-least-once that is not in force. */
import { countedKeys, keepsUnroutable } from "./ends.ts";
import { carried } from "./flow.ts";
import { duration, eachVariant, type Judge, some } from "./rules.ts";
import type { Effective, QueueModel } from "./types.ts";

const ADD_DLX = "set x-dead-letter-exchange (and x-dead-letter-routing-key) to a dead-letter queue";

export function judgeLimits(judge: Judge): void {
  const { ground } = judge;
  eachVariant(ground, (queue, q, variant) => {
    if (ground.settled[q]!.unsure) return; // a policy that could not be evaluated may set what seems missing
    if (ground.roles[q] !== "letters") withoutDlx(judge, queue, variant);
    if (queue.type === "quorum") quorumLimits(judge, queue, q, variant);
    notActive(judge, queue, q, variant);
  });
  judgeRejects(judge);
  classicWithoutLimit(judge);
}

/** The DLX argument is there but of a wrong type: that is said elsewhere, and the broker refuses the queue. */
const namesDlx = (queue: QueueModel): boolean => "x-dead-letter-exchange" in queue.arguments;

function withoutDlx(judge: Judge, queue: QueueModel, variant: Effective): void {
  if (variant.dlx || namesDlx(queue)) return;
  if (variant.ttl) {
    judge.say("expiry-without-dlx", "warning", {
      object: queue.name,
      why: `messages not taken within ${duration(variant.ttl.value)} vanish: ${queue.name} has a TTL and no dead-letter exchange`,
      fix: `${ADD_DLX}, or say in the allow-list that this is wanted`,
      source: variant.ttl.source,
    });
  }
  const limit = variant.maxLength ?? variant.maxLengthBytes;
  if (!limit) return;
  const overflow = variant.overflow?.value ?? "drop-head";
  // reject-publish tells the publisher; reject-publish-dlx does so too, but a quorum queue reads it as drop-head.
  if (overflow === "reject-publish" || (overflow === "reject-publish-dlx" && queue.type === "classic"))
    return;
  const unit = limit === variant.maxLength ? "messages" : "bytes";
  judge.say("overflow-without-dlx", "warning", {
    object: queue.name,
    why: `over ${limit.value} ${unit} the oldest are silently dropped (overflow ${overflow}${variant.overflow ? "" : ", the default"}), with no dead-letter exchange`,
    fix: `${ADD_DLX}, or x-overflow reject-publish with publisher confirms, or say in the allow-list that this is wanted`,
    source: limit.source,
  });
}

/** A letter of this queue can arrive somewhere other than where it died. */
function usable(judge: Judge, q: number, variant: Effective): boolean {
  if (!variant.dlx) return false;
  const { flow, router } = judge.ground;
  return countedKeys(flow, q).some((keys) => {
    const route = router.route(variant.dlx!.value, carried(variant, keys));
    return route.unknown || route.queues.size > (route.queues.has(q) ? 1 : 0);
  });
}

function quorumLimits(judge: Judge, queue: QueueModel, q: number, variant: Effective): void {
  const { ground } = judge;
  const { line } = ground;
  const limit = variant.deliveryLimit;
  if (limit && limit.value < 0) {
    if (line === "4") return;
    judge.say("delivery-limit-minus-one-before-4", "error", {
      object: queue.name,
      why: `a delivery limit of ${limit.value} means "none" only from 4.x on; 3.10.8 drops the message at its first return`,
      fix: "3.x: remove x-delivery-limit; 4.x: keep it, and say --broker-version 4",
      source: limit.source,
    });
    return;
  }
  if (ground.roles[q] !== "work") return;
  const can = usable(judge, q, variant) || namesButWrong(queue, variant);
  const held = keepsUnroutable(ground, q, variant);
  if (limit) {
    if (can || held) return;
    judge.say("delivery-limit-without-dlx", "error", {
      object: queue.name,
      why: `after ${limit.value + 1} returns the message is dropped: ${variant.dlx ? `nothing takes letters behind '${variant.dlx.value}'` : "there is no dead-letter exchange"}`,
      fix: ADD_DLX,
      source: limit.source,
    });
    return;
  }
  limitNotSet(judge, queue, can || held);
}

const namesButWrong = (queue: QueueModel, variant: Effective): boolean => !variant.dlx && namesDlx(queue);

function limitNotSet(judge: Judge, queue: QueueModel, can: boolean): void {
  const { line } = judge.ground;
  const fate = can
    ? "then the message is dead-lettered"
    : "then the message is dropped, as no dead-letter exchange takes it";
  const on4 = `4.x returns it 20 times, ${fate}`;
  const on3 = "3.x returns it without end";
  const severity = line === "4" ? (can ? "info" : "error") : "warning";
  judge.say("quorum-delivery-limit-not-set", severity, {
    object: queue.name,
    why: `no delivery limit is set: ${line === "4" ? on4 : line === "3" ? on3 : `${on3}, ${on4}`}`,
    fix: can ? "set x-delivery-limit" : `set x-delivery-limit; ${ADD_DLX}`,
    source: line === "4" ? "default of RabbitMQ 4.x" : "queue",
  });
}

function notActive(judge: Judge, queue: QueueModel, q: number, variant: Effective): void {
  if (variant.strategy?.value !== "at-least-once" || keepsUnroutable(judge.ground, q, variant)) return;
  const lacks: string[] = [];
  if (queue.type !== "quorum") lacks.push("the queue is not a quorum queue");
  if (!variant.dlx && !namesDlx(queue)) lacks.push("there is no dead-letter exchange");
  if (variant.overflow?.value !== "reject-publish") {
    lacks.push(`overflow is ${variant.overflow?.value ?? "drop-head (the default)"}, not reject-publish`);
  }
  if (lacks.length === 0) return;
  judge.say("at-least-once-not-active", "error", {
    object: queue.name,
    why: `at-least-once is asked for, but ${lacks.join(" and ")}: the broker falls back to at-most-once and only logs it`,
    fix:
      queue.type === "quorum"
        ? `set x-overflow to reject-publish${variant.dlx ? "" : " and a dead-letter exchange"}`
        : "declare it as a quorum queue with x-overflow reject-publish",
    source: variant.strategy.source,
  });
}

function judgeRejects(judge: Judge): void {
  const { ground } = judge;
  ground.vhost.queues.forEach((queue, q) => {
    if (queue.type === "stream" || ground.roles[q] !== "work" || ground.hasDlx[q]) return;
    if (ground.settled[q]!.unsure || namesDlx(queue)) return;
    judge.say("reject-without-dlx", "info", {
      object: queue.name,
      why: `${queue.name} has no dead-letter exchange: what a consumer rejects is discarded`,
      fix: ADD_DLX,
      source: "queue",
    });
  });
}

/** Folded: one for a virtual host, with the list. */
function classicWithoutLimit(judge: Judge): void {
  const { ground } = judge;
  const names = ground.vhost.queues
    .filter((queue, q) => queue.type === "classic" && ground.roles[q] === "work")
    .map((queue) => queue.name);
  const first = names[0];
  if (first === undefined) return;
  const count =
    names.length === 1
      ? `${first} is a classic queue`
      : `${names.length} queues are classic (${some(names)})`;
  judge.say("classic-no-delivery-limit", "info", {
    object: first,
    objects: names,
    why: `${count}: no deliveries are counted, a message that kills its consumer comes back for ever`,
    fix: "a quorum queue with x-delivery-limit, or a consumer that counts",
    source: "queue type",
  });
}
