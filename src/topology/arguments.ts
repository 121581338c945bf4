/**
 * The arguments and policy keys RabbitMQ knows, what values they take, and the nearest known name to a wrong one.
 * Lists of several versions together: a name some version knows is never called unknown.
 */
import { JsonFloat } from "./read-json.ts";
import type { QueueType } from "./types.ts";

export const ARGUMENT_TYPES = { queueType: "x-queue-type" } as const;

/** Longer than ten years is refused for TTL and expires. */
const TEN_YEARS_MS = 315_360_000_000;

type Check = (value: unknown) => string | undefined;

const whole =
  (min: number, max: number = Number.MAX_SAFE_INTEGER): Check =>
  (value) => {
    if (typeof value === "number" && Number.isInteger(value)) {
      if (value < min) return `${value} is below ${min}`;
      return value > max ? `${value} is above ${max}` : undefined;
    }
    return `${kindOf(value)} where an integer is wanted`;
  };
const string: Check = (value) =>
  typeof value === "string" ? undefined : `${kindOf(value)} where a string is wanted`;
const oneOf =
  (...words: string[]): Check =>
  (value) =>
    typeof value === "string" && words.includes(value)
      ? undefined
      : `${kindOf(value)}; one of ${words.join(", ")} is wanted`;
const flag: Check = (value) =>
  typeof value === "boolean" ? undefined : `${kindOf(value)} where true or false is wanted`;
const anything: Check = () => undefined;

/** What a value is, for people; strings are quoted and cut, other content is not shown. */
export function kindOf(value: unknown): string {
  if (value instanceof JsonFloat) return `the float ${value.text}`;
  if (typeof value === "string")
    return `the string "${value.length > 40 ? `${value.slice(0, 40)}...` : value}"`;
  if (typeof value === "number") return `the number ${value}`;
  if (typeof value === "boolean") return `the boolean ${value}`;
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : "an object";
}

const SHARED: Readonly<Record<string, Check>> = {
  "message-ttl": whole(0, TEN_YEARS_MS),
  expires: whole(1, TEN_YEARS_MS),
  "max-length": whole(0),
  "max-length-bytes": whole(0),
  "max-in-memory-length": whole(0),
  "max-in-memory-bytes": whole(0),
  "dead-letter-exchange": string,
  "dead-letter-routing-key": string,
  "dead-letter-strategy": oneOf("at-most-once", "at-least-once"),
  overflow: oneOf("drop-head", "reject-publish", "reject-publish-dlx"),
  "delivery-limit": whole(-1),
  "queue-mode": oneOf("default", "lazy"),
  "queue-version": whole(1),
  "queue-master-locator": string,
  "queue-leader-locator": string,
  "max-age": string,
  "initial-cluster-size": whole(0),
  "stream-max-segment-size-bytes": whole(0),
  "stream-filter-size-bytes": whole(0),
  "consumer-timeout": whole(0),
};

const ARGUMENTS: ReadonlyMap<string, Check> = new Map<string, Check>([
  ...Object.entries(SHARED).map(([key, check]) => [`x-${key}`, check] as const),
  ["x-queue-type", oneOf("classic", "quorum", "stream")],
  ["x-max-priority", whole(0, 255)],
  ["x-single-active-consumer", flag],
  ["x-quorum-initial-group-size", whole(0)],
  ["x-quorum-target-group-size", whole(0)],
  ["x-message-deduplication", flag],
  ["x-cache-size", whole(0)],
  ["x-cache-ttl", whole(0)],
  ["x-cache-persistence", string],
]);

const POLICY_KEYS: ReadonlyMap<string, Check> = new Map<string, Check>([
  ...Object.entries(SHARED),
  ["alternate-exchange", string],
  ["max-segment-size", whole(0)],
  ["target-group-size", whole(0)],
  ...[
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
    "federation-upstream",
    "federation-upstream-set",
    "federation-upstream-pattern",
    "shards-per-node",
    "routing-key",
    "message-containers-store",
  ].map((key) => [key, anything] as const),
]);

/** Names that begin so belong to features of newer versions. */
const PREFIXES = ["delayed-retry-", "x-delayed-retry-"];

/** Every policy key that concerns what becomes of a dead letter. */
export const DEAD_LETTER_KEYS: readonly string[] = [
  "dead-letter-exchange",
  "dead-letter-routing-key",
  "dead-letter-strategy",
];

export interface Flaw {
  readonly what: "wrong-type" | "unknown";
  readonly key: string;
  readonly why: string;
  readonly nearest?: string;
}

/** What is wrong with a queue's arguments, one by one. */
export function argumentFlaws(args: Readonly<Record<string, unknown>>): Flaw[] {
  return Object.keys(args).flatMap((key): Flaw[] => {
    const check = ARGUMENTS.get(key);
    if (check) {
      const why = check(args[key]);
      return why === undefined ? [] : [{ what: "wrong-type", key, why }];
    }
    if (PREFIXES.some((prefix) => key.startsWith(prefix))) return [];
    const near =
      POLICY_KEYS.has(key) && ARGUMENTS.has(`x-${key}`) ? `x-${key}` : nearest(key, ARGUMENTS.keys());
    // Keys that are no x- arguments are taken for comments, unless they come close to a real one.
    if (!key.startsWith("x-") && near === undefined) return [];
    return [{ what: "unknown", key, why: "", ...(near === undefined ? {} : { nearest: near }) }];
  });
}

/** What is wrong with a policy's definition. The broker refuses such a policy, and the import with it. */
export function policyFlaws(definition: Readonly<Record<string, unknown>>): Flaw[] {
  return Object.keys(definition).flatMap((key): Flaw[] => {
    const check = POLICY_KEYS.get(key);
    if (check) {
      const why = check(definition[key]);
      return why === undefined ? [] : [{ what: "wrong-type", key, why }];
    }
    if (PREFIXES.some((prefix) => key.startsWith(prefix))) return [];
    const bare = key.replace(/^x-/, "");
    const near = POLICY_KEYS.has(bare) ? bare : nearest(key, POLICY_KEYS.keys());
    return [{ what: "unknown", key, why: "", ...(near === undefined ? {} : { nearest: near }) }];
  });
}

/** An exchange's misspelt alternate-exchange; other exchange arguments belong to plugins. */
export function exchangeFlaws(args: Readonly<Record<string, unknown>>): Flaw[] {
  return Object.keys(args).flatMap((key): Flaw[] => {
    if (key === "alternate-exchange") {
      const why = string(args[key]);
      return why === undefined ? [] : [{ what: "wrong-type", key, why }];
    }
    const near = key === "x-alternate-exchange" ? "alternate-exchange" : nearest(key, ["alternate-exchange"]);
    return near === undefined ? [] : [{ what: "unknown", key, why: "", nearest: near }];
  });
}

/** Whether a known argument has a value the broker takes as what it says. */
export const wellFormed = (key: string, value: unknown): boolean => ARGUMENTS.get(key)?.(value) === undefined;

const REFUSED: Readonly<Record<QueueType, readonly string[]>> = {
  classic: ["x-delivery-limit", "x-dead-letter-strategy"],
  quorum: ["x-max-priority", "x-queue-mode"],
  stream: [
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-overflow",
    "x-max-priority",
    "x-queue-mode",
  ],
};

/** Arguments a queue type refuses. */
export const refusedFor = (type: QueueType): readonly string[] => REFUSED[type];

/** The known name nearest to a wrong one, when it is near enough to be meant. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.min(4, Math.floor(name.length / 3) + 1);
  const lower = name.toLowerCase();
  for (const candidate of known) {
    if (Math.abs(candidate.length - name.length) >= bestDistance || candidate === name) continue;
    const distance = editDistance(lower, candidate.toLowerCase(), bestDistance);
    if (distance < bestDistance) {
      bestDistance = distance;
      best = candidate;
    }
  }
  return best;
}

/** Insertions, deletions, replacements and swaps of neighbours; gives up at `limit`. */
function editDistance(a: string, b: string, limit: number): number {
  let before: number[] = [];
  let previous: number[] = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    let least = i;
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let cost = Math.min(previous[j]! + 1, row[j - 1]! + 1, previous[j - 1]! + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, before[j - 2]! + 1);
      row.push(cost);
      least = Math.min(least, cost);
    }
    if (least >= limit) return limit;
    before = previous;
    previous = row;
  }
  return previous[b.length]!;
}
