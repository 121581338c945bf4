/**
 * Which policy applies, and what arguments, policy and operator policy make together. One policy per queue, the one
 * of the highest priority; an operator policy is a second layer. They are merged key by key: dead-letter settings
 * of the arguments win; of times, lengths and the delivery limit the lower value does.
 */
import { refusedFor, wellFormed } from "./arguments.ts";
import type { Effective, PolicyModel, QueueModel, Setting, VhostModel } from "./types.ts";

/** The version line whose rules differ: before 4.0, from 4.0, or not known (then both are judged). */
export type Line = "3" | "4" | "unknown";

/** `3.12`, `v4.1.1`, `4`: the line; anything else is unknown. */
export function lineOf(version: string | undefined): Line {
  const major = /^\s*v?(\d+)(?:\.|$|-)/.exec(version ?? "")?.[1];
  if (major === undefined) return "unknown";
  return Number(major) >= 4 ? "4" : "3";
}

/** What a pattern turned out to be. */
export type Compiled =
  | { readonly kind: "ok"; readonly test: (name: string) => boolean }
  | { readonly kind: "invalid"; readonly why: string }
  /** Valid for the broker, perhaps, but not to be evaluated here. */
  | { readonly kind: "not-evaluated"; readonly why: string; readonly test?: (name: string) => boolean };

/** What PCRE has and JavaScript has not, or reads otherwise. */
const PCRE_ONLY: readonly (readonly [RegExp, string])[] = [
  [/\(\?>/, "an atomic group (?>"],
  [/\(\?\|/, "a branch reset (?|"],
  [/\(\?[R0-9&]/, "a recursion"],
  [/\(\?\(/, "a condition (?("],
  [/\(\?P[<=>]|\(\?'/, "a named group of PCRE"],
  [/\(\?#/, "a comment (?#"],
  [/\(\?[imsxJU]*-?[imsxJU]+[):]/, "an inline option such as (?i)"],
  [/\(\*[A-Z]/, "a verb (*"],
  [/(?:[*+?}])\+/, "a possessive quantifier"],
  [/\\[AzZGKXRhHNQEpP]/, "an escape JavaScript does not have"],
  [/\[\[:\^?[a-z]+:\]/, "a POSIX class"],
];

const cache = new Map<string, Compiled>();

/** Compiles a policy's pattern as far as JavaScript can stand in for PCRE. */
export function compilePattern(pattern: string): Compiled {
  let found = cache.get(pattern);
  if (!found) {
    if (cache.size > 10_000) cache.clear();
    found = compile(pattern);
    cache.set(pattern, found);
  }
  return found;
}

function compile(pattern: string): Compiled {
  const bare = pattern.replace(/\\[^A-Za-z0-9]/g, "e");
  const special = PCRE_ONLY.find(([construct]) => construct.test(bare.replace(/\[\^?[^\]:]*\]/g, "[]")));
  if (special) {
    const test = translated(pattern);
    const how = test ? "it was translated" : "it was not evaluated";
    return { kind: "not-evaluated", why: `${special[1]}: ${how}`, ...(test ? { test } : {}) };
  }
  try {
    const regex = new RegExp(pattern);
    if (couldExplode(bare)) return { kind: "not-evaluated", why: "nested repetition: not evaluated" };
    const prefix = /^\^((?:[A-Za-z0-9_-]|\\[.-])+)(?![*+?{|])/.exec(pattern)?.[1]?.replace(/\\/g, "");
    if (prefix === undefined || pattern.includes("|"))
      return { kind: "ok", test: (name) => regex.test(name) };
    return { kind: "ok", test: (name) => name.startsWith(prefix) && regex.test(name) };
  } catch (error) {
    return {
      kind: "invalid",
      why: String((error as Error).message).replace(/^Invalid regular expression: /, ""),
    };
  }
}

/** A leading (?i) and the anchors \A \z \Z have an exact counterpart; nothing else is translated. */
function translated(pattern: string): ((name: string) => boolean) | undefined {
  const insensitive = pattern.startsWith("(?i)");
  const plain = (insensitive ? pattern.slice(4) : pattern).replace(/^\\A/, "^").replace(/\\[zZ]$/, "$");
  const bare = plain.replace(/\\[^A-Za-z0-9]/g, "e");
  if (PCRE_ONLY.some(([construct]) => construct.test(bare)) || couldExplode(bare)) return undefined;
  try {
    const regex = new RegExp(plain, insensitive ? "i" : "");
    return (name) => regex.test(name);
  } catch {
    return undefined;
  }
}

/** A repeated group that itself repeats can take exponential time; the broker has a match limit, JavaScript none. */
function couldExplode(pattern: string): boolean {
  return /\([^()]*[*+}][^()]*\)(?:[*+]|\{\d+,)/.test(pattern.replace(/\\./g, "e"));
}

const QUEUE_SCOPES: Readonly<Record<string, QueueModel["type"] | "any">> = {
  all: "any",
  queues: "any",
  classic_queues: "classic",
  quorum_queues: "quorum",
  streams: "stream",
};

/** Whether a policy is for queues of this type at all. */
export function appliesToQueues(policy: PolicyModel, queue: QueueModel): boolean {
  const scope = QUEUE_SCOPES[policy.applyTo];
  return scope === "any" || scope === queue.type;
}

export const appliesToExchanges = (policy: PolicyModel): boolean =>
  policy.applyTo === "all" || policy.applyTo === "exchanges";

export const knownScope = (policy: PolicyModel): boolean =>
  policy.applyTo === "exchanges" || policy.applyTo in QUEUE_SCOPES;

/** The policies that match a name, highest priority first; `unsure` holds those that could not be evaluated. */
export interface Matches {
  readonly sure: readonly PolicyModel[];
  readonly unsure: readonly PolicyModel[];
}

/** Sorts once, so that each queue's matches come out in order. */
export function matcher(
  policies: readonly PolicyModel[],
): (name: string, applies: (policy: PolicyModel) => boolean) => Matches {
  const sorted = [...policies].sort((a, b) => b.priority - a.priority);
  const tests = sorted.map((policy) => compilePattern(policy.pattern));
  const none: Matches = { sure: [], unsure: [] };
  return (name, applies) => {
    if (sorted.length === 0) return none;
    const sure: PolicyModel[] = [];
    const unsure: PolicyModel[] = [];
    for (let i = 0; i < sorted.length; i += 1) {
      const compiled = tests[i]!;
      if (compiled.kind === "invalid" || !applies(sorted[i]!)) continue;
      if (compiled.test === undefined) unsure.push(sorted[i]!);
      else if (compiled.test(name)) sure.push(sorted[i]!);
    }
    return { sure, unsure };
  };
}

/** The policies that share the highest priority: one, none, or a tie. */
export const winners = (matches: Matches): PolicyModel[] =>
  matches.sure.filter((policy) => policy.priority === matches.sure[0]!.priority);

/** More tied policies than this are not told apart. */
const MAX_VARIANTS = 8;

/** What applies to a queue: one set of settings, or one for each policy of a tie. */
export interface Settled {
  readonly variants: readonly Effective[];
  readonly matches: Matches;
  readonly operatorMatches: Matches;
  readonly tied: readonly PolicyModel[];
  /** A policy that could not be evaluated may decide where this queue's letters go. */
  readonly unsure: boolean;
}

/** Settles arguments, policies and operator policies of one queue. */
export function settle(queue: QueueModel, matches: Matches, operatorMatches: Matches, line: Line): Settled {
  const best = winners(matches);
  const tied = best.slice(0, MAX_VARIANTS);
  const operators = winners(operatorMatches).slice(0, MAX_VARIANTS);
  const variants: Effective[] = [];
  if (queue.live?.effectivePolicy) variants.push(asBrokerSays(queue, matches, operatorMatches, line));
  else {
    for (const policy of tied.length > 0 ? tied : [undefined]) {
      for (const operator of operators.length > 0 ? operators : [undefined]) {
        variants.push(effective(queue, policy, operator, line));
      }
    }
  }
  const rank = best[0]?.priority ?? Number.NEGATIVE_INFINITY;
  const unsure =
    queue.live === undefined && matches.unsure.some((policy) => policy.priority >= rank && decides(policy));
  return { variants: distinct(variants), matches, operatorMatches, tied: best, unsure };
}

/** A live broker says which policies it applies, and so settles ties; their definitions may not be ours to see. */
function asBrokerSays(queue: QueueModel, matches: Matches, operatorMatches: Matches, line: Line): Effective {
  const live = queue.live!;
  const definition = live.effectivePolicy!;
  const named = matches.sure.find((policy) => policy.name === live.policy);
  const operator = operatorMatches.sure.find((policy) => policy.name === live.operatorPolicy);
  const known = { ...named?.definition, ...operator?.definition };
  // The sum the broker formed decides; the policies only say where each key comes from.
  if (Object.keys(definition).every((key) => key in known)) return effective(queue, named, operator, line);
  const name = live.policy ?? live.operatorPolicy ?? "(effective)";
  const whole: PolicyModel = {
    name,
    pattern: "",
    applyTo: "queues",
    priority: 0,
    definition,
    operator: false,
  };
  return effective(queue, Object.keys(definition).length > 0 ? whole : undefined, undefined, line);
}

const decides = (policy: PolicyModel): boolean =>
  Object.keys(policy.definition).some((key) => /^(dead-letter-|message-ttl|max-length|overflow)/.test(key));

function distinct(variants: readonly Effective[]): readonly Effective[] {
  if (variants.length < 2) return variants;
  const seen = new Map(variants.map((variant) => [JSON.stringify(variant), variant] as const));
  return [...seen.values()];
}

/**
 * What a policy and an argument (the same key with `x-` in front) can both set: setting, key, and whether the lowest
 * of all values counts instead of the first.
 */
export const MERGED: readonly (readonly [keyof Effective, string, boolean])[] = [
  ["dlx", "dead-letter-exchange", false],
  ["dlrk", "dead-letter-routing-key", false],
  ["strategy", "dead-letter-strategy", false],
  ["overflow", "overflow", false],
  ["ttl", "message-ttl", true],
  ["expires", "expires", true],
  ["maxLength", "max-length", true],
  ["maxLengthBytes", "max-length-bytes", true],
  ["deliveryLimit", "delivery-limit", true],
];

/** The key-by-key merge. */
export function effective(
  queue: QueueModel,
  policy: PolicyModel | undefined,
  operator: PolicyModel | undefined,
  line: Line,
): Effective {
  const set: Record<string, Setting<string | number>> = {};
  if (queue.type === "stream") return set as Effective;
  const refused = refusedFor(queue.type);
  for (const [name, key, lowest] of MERGED) {
    const argument = `x-${key}`;
    if (name === "deliveryLimit" && queue.type !== "quorum") continue;
    const type = lowest ? "number" : "string";
    const found: Setting<string | number>[] = [];
    const fits = (value: unknown): value is string | number =>
      value !== undefined && typeof value === type && wellFormed(argument, value);
    const own = queue.arguments[argument];
    if (fits(own) && !refused.includes(argument)) {
      found.push({ value: own, kind: "argument", source: `argument ${argument}` });
    }
    // An operator policy may not hold dead-letter settings; the broker refuses one that does.
    const capped = operator && !key.startsWith("dead-letter-") ? operator.definition[key] : undefined;
    if (fits(capped))
      found.push({ value: capped, kind: "operator", source: `operator policy ${operator!.name}` });
    const said = policy?.definition[key];
    if (fits(said)) found.push({ value: said, kind: "policy", source: `policy ${policy!.name}` });
    const winner = found.length > 1 && lowest ? lowestOf(found, line) : found[0];
    if (winner) set[name] = winner;
  }
  return set as Effective;
}

function lowestOf(found: readonly Setting<string | number>[], line: Line): Setting<string | number> {
  // From 4.0 a negative delivery limit means "none" and gives way to a real one; before, it is simply the lowest.
  if (line !== "3" && found.some(({ value }) => Number(value) < 0)) {
    return found.reduce((a, b) => (Number(b.value) > Number(a.value) ? b : a));
  }
  return found.reduce((a, b) => (Number(b.value) < Number(a.value) ? b : a));
}

/** Exchange name to the policy-set alternate exchange, for exchanges that have none by argument. */
export function alternateByPolicy(vhost: VhostModel): (exchange: string) => string | undefined {
  const carrying = vhost.policies.some((policy) => "alternate-exchange" in policy.definition);
  if (!carrying) return () => undefined;
  const match = matcher(vhost.policies);
  return (exchange) => {
    const value = match(exchange, appliesToExchanges).sure[0]?.definition["alternate-exchange"];
    return typeof value === "string" ? value : undefined;
  };
}
