/** Policies: which one applies, what it hides, what it can never do, and where it meets the queue's arguments. */
import { DEAD_LETTER_KEYS } from "./arguments.ts";
import {
  appliesToExchanges,
  appliesToQueues,
  compilePattern,
  effective,
  knownScope,
  MERGED,
} from "./policies.ts";
import { eachVariant, type Judge, some } from "./rules.ts";
import type { Effective, PolicyModel, QueueModel } from "./types.ts";

const label = (policy: PolicyModel): string =>
  `${policy.operator ? "operator policy" : "policy"} ${policy.name}`;

const hasDeadLetterKeys = (policy: PolicyModel): boolean =>
  DEAD_LETTER_KEYS.some((key) => key in policy.definition);

/** Judges every policy by itself, then queue by queue. */
export function judgePolicies(judge: Judge, version: string | undefined): void {
  const { vhost } = judge.ground;
  const tally = tallyOf(judge);
  for (const policy of [...vhost.policies, ...vhost.operatorPolicies]) {
    if (!patternIsFine(judge, policy)) continue;
    scope(judge, policy, version);
    const count = tally.get(policy) ?? { matched: 0, applied: 0, beatenBy: new Set<string>() };
    if (count.matched === 0) matchesNothing(judge, policy);
    else if (count.applied === 0) neverApplies(judge, policy, count);
  }
  vhost.queues.forEach((queue, q) => {
    if (queue.type === "stream") return;
    tie(judge, queue, q);
    hides(judge, queue, q);
  });
  eachVariant(judge.ground, (queue, _q, variant) => {
    sources(judge, queue, variant);
    conflicts(judge, queue, variant);
  });
}

function patternIsFine(judge: Judge, policy: PolicyModel): boolean {
  const compiled = compilePattern(policy.pattern);
  if (compiled.kind === "ok") return true;
  const invalid = compiled.kind === "invalid";
  judge.say("policy-pattern-invalid", invalid ? "error" : "info", {
    object: policy.name,
    why: invalid
      ? `the pattern '${policy.pattern}' does not compile (${compiled.why}): the broker refuses the policy`
      : `the pattern '${policy.pattern}' is not evaluated as JavaScript has it: ${compiled.why}`,
    fix: invalid ? "correct the pattern" : "check by hand which queues it matches, or ask the live broker",
    source: label(policy),
  });
  return !invalid && compiled.test !== undefined;
}

function scope(judge: Judge, policy: PolicyModel, version: string | undefined): void {
  const say = (why: string, fix: string): void =>
    judge.say("policy-wrong-apply-to", "error", { object: policy.name, why, fix, source: label(policy) });
  const keys = DEAD_LETTER_KEYS.filter((key) => key in policy.definition);
  if (!knownScope(policy)) {
    say(`"apply-to" is '${policy.applyTo}', which no broker knows`, `set "apply-to" to queues`);
  } else if (keys.length > 0 && policy.applyTo === "exchanges") {
    say(`${some(keys)} in a policy applied to exchanges: no queue gets it`, `set "apply-to" to queues`);
  } else if (keys.length > 0 && policy.operator) {
    say(
      `an operator policy may not hold ${some(keys)}: the broker refuses it`,
      "put it into an ordinary policy",
    );
  } else if (before312(version) && /^(?:classic_queues|quorum_queues|streams)$/.test(policy.applyTo)) {
    say(
      `"apply-to" ${policy.applyTo} is refused before 3.12 (this is ${version})`,
      `set "apply-to" to queues`,
    );
  }
}

function before312(version: string | undefined): boolean {
  const [, major, minor] = /^\s*v?(\d+)\.(\d+)/.exec(version ?? "") ?? [];
  if (major === undefined) return false;
  return Number(major) < 3 || (Number(major) === 3 && Number(minor) < 12);
}

interface Tally {
  matched: number;
  applied: number;
  beatenBy: Set<string>;
}

function tallyOf(judge: Judge): Map<PolicyModel, Tally> {
  const tally = new Map<PolicyModel, Tally>();
  for (const settled of judge.ground.settled) {
    for (const { sure } of [settled.matches, settled.operatorMatches]) {
      const top = sure[0];
      for (const policy of sure) {
        let count = tally.get(policy);
        if (!count) tally.set(policy, (count = { matched: 0, applied: 0, beatenBy: new Set() }));
        count.matched += 1;
        if (policy.priority === top!.priority) count.applied += 1;
        else if (differs(policy, top!)) count.beatenBy.add(top!.name);
      }
    }
  }
  return tally;
}

/** The winner does not say the same as the loser. */
const differs = (loser: PolicyModel, winner: PolicyModel): boolean =>
  Object.keys(loser.definition).some(
    (key) => JSON.stringify(loser.definition[key]) !== JSON.stringify(winner.definition[key]),
  );

function matchesNothing(judge: Judge, policy: PolicyModel): void {
  const { ground } = judge;
  const compiled = compilePattern(policy.pattern);
  if (compiled.kind !== "ok" && !("test" in compiled && compiled.test)) return;
  const test = (compiled as { test: (name: string) => boolean }).test;
  // A scope that is wrong is said already; what its pattern would match is then beside the point.
  if (!knownScope(policy)) return;
  if (
    appliesToExchanges(policy) &&
    ground.vhost.exchanges.some((exchange) => exchange.name !== "" && test(exchange.name))
  )
    return;
  const queues = ground.vhost.queues.some((queue) => test(queue.name) && appliesToQueues(policy, queue));
  if (queues) return;
  policyOfAbsentQueues(judge, policy);
  if (ground.partial) return;
  judge.say("policy-matches-nothing", ground.live ? "warning" : "info", {
    object: policy.name,
    why: `the pattern '${policy.pattern}' (apply-to ${policy.applyTo}) matches nothing ${ground.live ? "on this broker" : "in this file"}`,
    fix: "check the pattern",
    source: label(policy),
  });
}

/** The policy's queues are declared elsewhere; what can be judged without them is. */
function policyOfAbsentQueues(judge: Judge, policy: PolicyModel): void {
  if (policy.applyTo === "exchanges" || policy.operator) return;
  const { ground } = judge;
  const dlx = policy.definition["dead-letter-exchange"];
  if (typeof dlx === "string" && !ground.router.exchange(dlx)) {
    const near = judge.guess(dlx, "exchanges");
    const elsewhere = judge.exchangeElsewhere(dlx);
    const hint = near ? ` (did you mean ${near}?)` : "";
    const other =
      elsewhere === undefined ? "" : `; it exists in vhost '${elsewhere}', but a DLX never crosses vhosts`;
    judge.say("dlx-not-declared", ground.partial ? "info" : "warning", {
      object: policy.name,
      why: `${dlx} is not declared${hint}${other}: letters of the queues this policy is for vanish`,
      fix: `declare exchange ${dlx} in this vhost, or correct the name`,
      source: label(policy),
    });
  }
  if (dlx === undefined && "dead-letter-routing-key" in policy.definition) {
    judge.say("dlrk-without-dlx", "warning", {
      object: policy.name,
      why: "a dead-letter-routing-key without dead-letter-exchange: accepted, and does nothing",
      fix: "add dead-letter-exchange to the policy",
      source: label(policy),
    });
  }
}

function neverApplies(judge: Judge, policy: PolicyModel, count: Tally): void {
  if (count.beatenBy.size === 0) return;
  const letters = hasDeadLetterKeys(policy);
  const mirrors = "ha-mode" in policy.definition;
  if (!letters && !mirrors) return;
  judge.say("policy-never-applies", letters ? "warning" : "info", {
    object: policy.name,
    why: `it loses on every one of the ${count.matched} queue(s) it matches, to ${some([...count.beatenBy])}: policies are not merged`,
    fix: "a higher priority, a narrower pattern for the other, or one policy with all keys",
    source: label(policy),
  });
}

function tie(judge: Judge, queue: QueueModel, q: number): void {
  const { ground } = judge;
  const settled = ground.settled[q]!;
  const operators = settled.operatorMatches.sure.filter(
    (policy) => policy.priority === settled.operatorMatches.sure[0]!.priority,
  );
  for (const tied of [settled.tied, operators]) {
    if (tied.length < 2) continue;
    const outcomes = new Set(
      tied.map((policy) => {
        const { dlx, dlrk, strategy } = effective(queue, policy, undefined, ground.line);
        return JSON.stringify([dlx?.value ?? null, dlrk?.value ?? null, strategy?.value ?? null]);
      }),
    );
    const names = tied.map((policy) => policy.name);
    judge.say("policy-priority-tie", outcomes.size > 1 ? "error" : "info", {
      object: queue.name,
      why:
        `${some(names)} match with the same priority ${tied[0]!.priority}: policies are not merged and which one applies is undefined` +
        (outcomes.size > 1 ? ", so the dead-letter settings may or may not be there" : ""),
      fix: "distinct priorities, or one policy with all keys",
      source: tied.map(label).join(", "),
    });
  }
}

function hides(judge: Judge, queue: QueueModel, q: number): void {
  const { ground } = judge;
  const settled = ground.settled[q]!;
  if (ground.hasDlx[q] || ground.roles[q] === "letters" || settled.tied.length === 0) return;
  if ("x-dead-letter-exchange" in queue.arguments) return;
  const top = settled.tied[0]!;
  const hidden = settled.matches.sure.find(
    (policy) =>
      policy.priority < top.priority && typeof policy.definition["dead-letter-exchange"] === "string",
  );
  if (!hidden) return;
  judge.say("policy-hides-dlx", "error", {
    object: queue.name,
    why: `policy ${top.name} (priority ${top.priority}) applies and has no dead-letter-exchange; ${hidden.name} (priority ${hidden.priority}) has '${String(hidden.definition["dead-letter-exchange"])}', but policies are not merged`,
    fix: `put dead-letter-exchange into policy ${top.name} too`,
    source: label(top),
  });
}

/** DLRK without DLX, and the two set in different places. */
function sources(judge: Judge, queue: QueueModel, variant: Effective): void {
  const { dlx, dlrk } = variant;
  if (dlrk && !dlx) {
    if ("x-dead-letter-exchange" in queue.arguments) return; // of a wrong type, which is said
    const argument = dlrk.kind === "argument";
    judge.say("dlrk-without-dlx", argument ? "error" : "warning", {
      object: queue.name,
      why: argument
        ? "x-dead-letter-routing-key without x-dead-letter-exchange: the broker refuses the queue"
        : `${dlrk.source} sets a dead-letter-routing-key, and nothing sets a dead-letter exchange: it does nothing`,
      fix: argument ? "add x-dead-letter-exchange" : `add dead-letter-exchange to ${dlrk.source}`,
      source: dlrk.source,
    });
  }
  if (dlx && dlrk && dlx.kind !== dlrk.kind) {
    judge.say("dlx-dlrk-from-two-places", "warning", {
      object: queue.name,
      why: `the dead-letter exchange '${dlx.value}' comes from ${dlx.source}, the routing key '${dlrk.value}' from ${dlrk.source}: they are merged key by key`,
      fix: "set both in one place",
      source: `${dlx.source}, ${dlrk.source}`,
    });
  }
}

function conflicts(judge: Judge, queue: QueueModel, variant: Effective): void {
  const { ground } = judge;
  const settled = ground.settled[ground.router.queueIndex(queue.name)!]!;
  const policies = [...settled.tied, ...settled.operatorMatches.sure.slice(0, 1)];
  if (policies.length === 0) return;
  for (const [name, key, lower] of MERGED) {
    const winner = variant[name];
    const argument = queue.arguments[`x-${key}`];
    if (winner === undefined || argument === undefined || typeof argument !== typeof winner.value) continue;
    const other = policies.find((policy) => {
      const value = policy.definition[key];
      return value !== undefined && typeof value === typeof argument && value !== argument;
    });
    if (!other) continue;
    judge.say("policy-argument-conflict", "info", {
      object: queue.name,
      why: `x-${key} is ${JSON.stringify(argument)}, ${label(other)} says ${JSON.stringify(other.definition[key])}: ${lower ? "the lower value" : "the argument"} wins (${JSON.stringify(winner.value)})`,
      fix: "remove one of them",
      source: `argument x-${key}, ${label(other)}`,
    });
  }
}
