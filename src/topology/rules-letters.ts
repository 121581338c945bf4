/** The dead-letter queues: do they keep what they are given, and does anything reach them? */
import { overflows } from "./ends.ts";
import type { Ground } from "./ground.ts";
import { looksLikeDlq, looksLikeFailures, stemOf } from "./names.ts";
import { duration, eachVariant, type Judge } from "./rules.ts";
import type { Effective, QueueModel } from "./types.ts";

export function judgeLetterQueues(judge: Judge): void {
  const { ground } = judge;
  eachVariant(ground, (queue, q, variant) => {
    const keeps = ground.roles[q] === "letters";
    if (keeps && !variant.dlx) {
      dropsLetters(judge, queue, variant);
      if (queue.type === "quorum") deliveryLimit(judge, queue, variant);
    }
    if (keeps || looksLikeDlq(queue.name)) deletesItself(judge, queue, variant);
  });
  const neighbours = workByStem(ground);
  ground.vhost.queues.forEach((queue, q) => {
    if (queue.type !== "stream") neverFed(judge, queue, q, neighbours);
  });
}

function dropsLetters(judge: Judge, queue: QueueModel, variant: Effective): void {
  const limits: string[] = [];
  const sources: string[] = [];
  if (variant.ttl) {
    limits.push(`after ${duration(variant.ttl.value)}`);
    sources.push(variant.ttl.source);
  }
  if (overflows(variant)) {
    if (variant.maxLength) {
      limits.push(`from letter ${(variant.maxLength.value + 1).toLocaleString("en-US")} on`);
      sources.push(variant.maxLength.source);
    }
    if (variant.maxLengthBytes) {
      limits.push(`over ${variant.maxLengthBytes.value} bytes of letters`);
      sources.push(variant.maxLengthBytes.source);
    }
  }
  if (limits.length === 0) return;
  judge.say("dlq-drops-letters", "error", {
    object: queue.name,
    why: `${limits.join(", or ")}, letters disappear from ${queue.name} for good`,
    fix: `remove the limit (${sources.join(", ")}), or set x-overflow to reject-publish with an alarm, or archive letters before they expire`,
    source: sources.join(", "),
  });
}

function deletesItself(judge: Judge, queue: QueueModel, variant: Effective): void {
  const say = (why: string, fix: string, source: string): void =>
    judge.say("dlq-deletes-itself", "error", { object: queue.name, why, fix, source });
  if (variant.expires) {
    const { value, source, kind } = variant.expires;
    say(
      `${queue.name} is deleted, with its letters, when it is unused for ${duration(value)} (x-expires)`,
      kind === "argument" ? "remove x-expires" : `exclude ${queue.name} from the pattern of ${source}`,
      source,
    );
  }
  if (queue.autoDelete) {
    say(
      `${queue.name} is auto-delete: it goes, with its letters, when its last consumer does`,
      "declare it with auto_delete false",
      "queue",
    );
  }
  if (queue.exclusive) {
    say(
      `${queue.name} is exclusive: it goes with the connection that declared it`,
      "declare it not exclusive",
      "queue",
    );
  }
}

function deliveryLimit(judge: Judge, queue: QueueModel, variant: Effective): void {
  const { line } = judge.ground;
  const limit = variant.deliveryLimit;
  if (limit && limit.value >= 0) {
    judge.say("dlq-delivery-limit", "error", {
      object: queue.name,
      why: `a letter returned to ${queue.name} ${limit.value + 1} times (somebody looking at it) is dropped: ${limit.source} is ${limit.value}`,
      fix:
        line === "4"
          ? "set x-delivery-limit to -1"
          : "4.x: set x-delivery-limit to -1; 3.x: remove the limit",
      source: limit.source,
    });
  } else if (!limit && line !== "3") {
    judge.say("dlq-delivery-limit", "warning", {
      object: queue.name,
      why: `${line === "4" ? "" : "on 4.x "}the default limit of 20 applies: a letter returned to ${queue.name} 21 times (somebody looking at it) is dropped`,
      fix: "4.x: set x-delivery-limit to -1 (not on 3.x, where that drops at the first return)",
      source: "default of RabbitMQ 4.x",
    });
  }
}

/** Work queues by the words of their name, to find whose letters a dead-letter queue was meant for. */
interface Neighbours {
  readonly byStem: ReadonlyMap<string, readonly number[]>;
  readonly work: readonly number[];
  readonly anyBroken: (judge: Judge) => boolean;
  readonly anyUnsure: boolean;
}

function workByStem(ground: Ground): Neighbours {
  const byStem = new Map<string, number[]>();
  const work: number[] = [];
  ground.vhost.queues.forEach((queue, q) => {
    if (ground.roles[q] !== "work" || queue.type === "stream") return;
    work.push(q);
    const words = stemOf(queue.name).split(".");
    // Known under each leading part of its name, so that `studio.dlq` finds `studio.render`.
    for (let n = 1; n <= words.length; n += 1) {
      const stem = words.slice(0, n).join(".");
      const known = byStem.get(stem);
      if (known) known.push(q);
      else byStem.set(stem, [q]);
    }
  });
  return {
    byStem,
    work,
    anyBroken: (judge) => judge.broken.size > 0,
    anyUnsure: ground.settled.some((settled) => settled.unsure),
  };
}

function neverFed(judge: Judge, queue: QueueModel, q: number, neighbours: Neighbours): void {
  const { ground } = judge;
  if (ground.flow.isFed(q) || !looksMeant(ground, queue, q, neighbours)) return;
  const why = unfedBecause(judge, queue, q, neighbours);
  const doubtful = ground.partial || neighbours.anyUnsure || ground.flow.leftOut(q) > 0;
  const severity = why.warn && !doubtful ? "warning" : "info";
  judge.say("dlq-never-fed", severity, {
    object: queue.name,
    why: `no queue's letters can reach ${queue.name}: ${why.because}`,
    fix: why.fix,
    source: "topology",
  });
}

/** Looks like a dead-letter queue: by its name, or because it is bound to an exchange for dead letters. */
function looksMeant(ground: Ground, queue: QueueModel, q: number, neighbours: Neighbours): boolean {
  if (looksLikeDlq(queue.name)) return true;
  const appFed = ground.appKeys[q]!.length > 0;
  if (appFed) return false;
  if (ground.onDeadLetterExchange[q]) return !(ground.hasDlx[q] && ground.hasTtl[q]);
  if (!looksLikeFailures(queue.name)) return false;
  const stem = stemOf(queue.name);
  return (neighbours.byStem.get(stem) ?? []).some(
    (w) => w !== q && stemOf(ground.vhost.queues[w]!.name) === stem,
  );
}

function unfedBecause(
  judge: Judge,
  queue: QueueModel,
  q: number,
  neighbours: Neighbours,
): { warn: boolean; because: string; fix: string } {
  const { ground } = judge;
  const owners = ownersOf(judge, queue, q, neighbours);
  const bare = owners.filter((w) => !ground.hasDlx[w]);
  const first = bare[0];
  if (first !== undefined && bare.length === owners.length) {
    const { name } = ground.vhost.queues[first]!;
    return {
      warn: true,
      because: `${name} has no x-dead-letter-exchange`,
      fix: setDlx(ground, queue, q, name),
    };
  }
  const brokenOwner = owners.find((w) => judge.broken.has(w));
  const anyBroken = brokenOwner ?? [...judge.broken][0];
  if (anyBroken !== undefined) {
    const { name } = ground.vhost.queues[anyBroken]!;
    return {
      warn: true,
      because: `the letters of ${name} are lost on the way (see its dead-letter exchange)`,
      fix: `repair where the letters of ${name} go`,
    };
  }
  return {
    warn: false,
    because: "an application may publish to it; nothing else does",
    fix: "nothing, if an application fills it; else set the dead-letter exchange of its work queue",
  };
}

/** The work queues this dead-letter queue seems to be for: by name, or by the key it is bound with. */
function ownersOf(judge: Judge, queue: QueueModel, q: number, neighbours: Neighbours): readonly number[] {
  const { ground } = judge;
  const stem = stemOf(queue.name);
  const known = (stem === "" ? neighbours.work : (neighbours.byStem.get(stem) ?? [])).filter((w) => w !== q);
  const exact = known.filter((w) => stemOf(ground.vhost.queues[w]!.name) === stem);
  if (exact.length > 0) return exact;
  if (known.length > 0) return known;
  for (const binding of ground.router.bindingsTo(q)) {
    const byKey = ground.router.queueIndex(binding.routingKey);
    if (byKey !== undefined && byKey !== q && ground.roles[byKey] === "work") return [byKey];
  }
  return [];
}

function setDlx(ground: Ground, queue: QueueModel, q: number, owner: string): string {
  const binding = ground.router.bindingsTo(q)[0];
  if (!binding) {
    return `on ${owner} set x-dead-letter-exchange to "" and x-dead-letter-routing-key to ${queue.name}; or nothing, if the application fills it`;
  }
  return `on ${owner} set x-dead-letter-exchange to ${binding.source} and x-dead-letter-routing-key to '${binding.routingKey}'; or nothing, if the application fills it`;
}
