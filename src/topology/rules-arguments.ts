/** Arguments, policy keys, bindings and virtual hosts a broker refuses, ignores or drops. */
import { argumentFlaws, exchangeFlaws, type Flaw, policyFlaws, refusedFor } from "./arguments.ts";
import type { Judge } from "./rules.ts";
import type { QueueModel } from "./types.ts";

export function judgeArguments(judge: Judge): void {
  const { vhost } = judge.ground;
  for (const queue of vhost.queues) {
    for (const flaw of argumentFlaws(queue.arguments)) sayFlaw(judge, queue.name, flaw, "queue");
    refused(judge, queue);
  }
  for (const policy of [...vhost.policies, ...vhost.operatorPolicies]) {
    for (const flaw of policyFlaws(policy.definition)) sayFlaw(judge, policy.name, flaw, "policy");
  }
  for (const exchange of vhost.exchanges) {
    for (const flaw of exchangeFlaws(exchange.arguments)) sayFlaw(judge, exchange.name, flaw, "exchange");
  }
}

type Where = "queue" | "policy" | "exchange";

const sourceOf = (where: Where, object: string, key: string): string =>
  where === "policy" ? `policy ${object}` : `argument ${key}`;

function sayFlaw(judge: Judge, object: string, flaw: Flaw, where: Where): void {
  const { key, nearest } = flaw;
  if (flaw.what === "wrong-type") {
    const limit = key === "x-delivery-limit" && where === "queue";
    judge.say("argument-wrong-type", "error", {
      object,
      why: limit
        ? `${key} is ${flaw.why}: accepted by 3.10 and not enforced, refused by newer ones`
        : `${key} is ${flaw.why}: the broker refuses the ${where} (and a definitions import stops half-way)`,
      fix: /integer|below|above/.test(flaw.why)
        ? `write ${key} as a whole number in its range`
        : `correct ${key}`,
      source: sourceOf(where, object, key),
    });
    return;
  }
  const meant = nearest ? ` (did you mean ${nearest}?)` : "";
  judge.say("argument-unknown", "warning", {
    object,
    why:
      where === "policy"
        ? `${key} is no policy key${meant}: the broker refuses the policy (and a definitions import stops half-way)`
        : `${key} is no argument RabbitMQ knows${meant}: it is stored and ignored`,
    fix: nearest ? `write ${nearest}, or remove ${key}` : `remove ${key}`,
    source: sourceOf(where, object, key),
  });
}

function refused(judge: Judge, queue: QueueModel): void {
  for (const key of refusedFor(queue.type)) {
    if (!(key in queue.arguments)) continue;
    judge.say("argument-not-for-this-queue-type", "error", {
      object: queue.name,
      why: `${key} on a ${queue.type} queue: the broker refuses it`,
      fix:
        /delivery-limit|strategy/.test(key) && queue.type === "classic"
          ? `x-queue-type quorum, or remove ${key}`
          : `remove ${key}, or use another queue type`,
      source: `argument ${key}`,
    });
  }
  if (queue.type === "classic") return;
  const properties = [
    ...(queue.durable ? [] : ["not durable"]),
    ...(queue.autoDelete ? ["auto-delete"] : []),
    ...(queue.exclusive ? ["exclusive"] : []),
  ];
  if (properties.length === 0) return;
  judge.say("argument-not-for-this-queue-type", "error", {
    object: queue.name,
    why: `a ${queue.type} queue cannot be ${properties.join(" and ")}: the broker refuses it`,
    fix: `declare it durable, not exclusive, without auto-delete; or as a classic queue`,
    source: "queue",
  });
}

/** Bindings an import drops without a word. One finding for each missing thing. */
export function judgeBindings(judge: Judge): void {
  const { ground } = judge;
  const missing = new Map<string, { kind: "queue" | "exchange"; bindings: string[] }>();
  for (const { binding, missing: names } of ground.router.dropped) {
    for (const name of names) {
      const kind = name === binding.destination && binding.destinationType === "queue" ? "queue" : "exchange";
      const known = missing.get(name) ?? { kind, bindings: [] };
      if (known.bindings.length < 3) known.bindings.push(`${binding.source} -> ${binding.destination}`);
      missing.set(name, known);
    }
  }
  for (const [name, { kind, bindings }] of missing) {
    const near = judge.guess(name, kind === "queue" ? "queues" : "exchanges");
    judge.say("binding-to-missing-object", ground.partial ? "warning" : "error", {
      object: name,
      why: `${kind} ${name} is not declared${near ? ` (did you mean ${near}?)` : ""}: the import answers 204 and drops the binding ${bindings.join(", ")}`,
      fix: near ? `bind ${near}, or declare ${kind} ${name}` : `declare ${kind} ${name}`,
      source: "binding",
    });
  }
}
