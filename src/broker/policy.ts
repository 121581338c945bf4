import type { Overflow, QueueArguments, Strategy } from "./arguments.ts";
import { AmqpError } from "./errors.ts";
import type { Compat, Policy, QueueType } from "./types.ts";

/** How a queue behaves now: its arguments and policies together. Infinity: no limit. */
export interface QueueOptions {
  readonly ttl: number | undefined;
  readonly expires: number | undefined;
  readonly maxLength: number;
  readonly maxBytes: number;
  readonly overflow: Overflow;
  readonly dlx: string | undefined;
  readonly dlrk: string | undefined;
  readonly atLeastOnce: boolean;
  /** Quorum only: returns it survives; one more and it is dead. */
  readonly deliveryLimit: number;
}

/** RabbitMQ's default since 4.0; before there was none. */
const DEFAULT_DELIVERY_LIMIT_4X = 20;

type Definition = Readonly<Record<string, string | number | boolean>>;

/** Keys where an operator policy can only make things tighter. */
const SMALLER_WINS = [
  "message-ttl",
  "max-length",
  "max-length-bytes",
  "expires",
  "delivery-limit",
  "max-in-memory-length",
  "max-in-memory-bytes",
];

/**
 * Checks a policy before it is taken.
 * @throws AmqpError 406 for a pattern that is no regular expression or a value of the wrong kind
 */
export function checkPolicy(policy: Policy): void {
  try {
    new RegExp(policy.pattern, "u");
  } catch {
    throw new AmqpError(
      406,
      `policy '${policy.name}': pattern '${policy.pattern}' is not a regular expression`,
    );
  }
  for (const [key, value] of Object.entries(policy.definition)) checkDefinition(policy.name, key, value);
}

function checkDefinition(name: string, key: string, value: string | number | boolean): void {
  const wrong = (expected: string): never => {
    throw new AmqpError(406, `policy '${name}': ${key} is ${JSON.stringify(value)}, expected ${expected}`);
  };
  if (SMALLER_WINS.includes(key)) {
    const least = key === "delivery-limit" ? -1 : key === "expires" ? 1 : 0;
    if (typeof value !== "number" || !Number.isInteger(value) || value < least) {
      wrong(`a whole number of at least ${least}`);
    }
  }
  if (["dead-letter-exchange", "dead-letter-routing-key", "alternate-exchange"].includes(key)) {
    if (typeof value !== "string") wrong("a text");
  }
  const overflows = ["drop-head", "reject-publish", "reject-publish-dlx"];
  if (key === "overflow" && !overflows.includes(String(value))) wrong(overflows.join(", "));
  const strategies = ["at-most-once", "at-least-once"];
  if (key === "dead-letter-strategy" && !strategies.includes(String(value))) wrong(strategies.join(", "));
}

/** What a policy is looked up for. */
export interface Subject {
  readonly kind: "exchange" | QueueType;
  readonly name: string;
}

export interface Match {
  readonly user: Policy | undefined;
  readonly operator: Policy | undefined;
  readonly definition: Definition;
}

/** The one policy and the one operator policy that apply: highest priority, then the name that sorts first. */
export function matchPolicies(policies: Iterable<Policy>, subject: Subject): Match {
  let user: Policy | undefined;
  let operator: Policy | undefined;
  for (const policy of policies) {
    if (!applies(policy, subject)) continue;
    if (policy.operator) operator = stronger(operator, policy);
    else user = stronger(user, policy);
  }
  return { user, operator, definition: merge(user?.definition, operator?.definition) };
}

function applies(policy: Policy, subject: Subject): boolean {
  const fits =
    policy.applyTo === "all" ||
    (subject.kind === "exchange"
      ? policy.applyTo === "exchanges"
      : policy.applyTo === "queues" || policy.applyTo === `${subject.kind}_queues`);
  return fits && new RegExp(policy.pattern, "u").test(subject.name);
}

function stronger(a: Policy | undefined, b: Policy): Policy {
  if (a === undefined || b.priority > a.priority) return b;
  return b.priority === a.priority && b.name < a.name ? b : a;
}

function merge(user: Definition = {}, operator: Definition = {}): Definition {
  const merged: Record<string, string | number | boolean> = { ...user };
  for (const [key, value] of Object.entries(operator)) {
    const other = merged[key];
    merged[key] =
      SMALLER_WINS.includes(key) && typeof other === "number" ? Math.min(other, Number(value)) : value;
  }
  return merged;
}

/** Arguments win for names and modes; for amounts the smaller wins. */
export function effectiveOptions(args: QueueArguments, definition: Definition, compat: Compat): QueueOptions {
  const amount = (own: number | undefined, key: string): number | undefined => {
    const other = definition[key];
    if (typeof other !== "number") return own;
    return own === undefined ? other : Math.min(own, other);
  };
  const text = (key: string): string | undefined => {
    const value = definition[key];
    return typeof value === "string" ? value : undefined;
  };
  const dlx = args.dlx ?? text("dead-letter-exchange");
  const overflow = args.overflow ?? (text("overflow") as Overflow | undefined) ?? "drop-head";
  const strategy = args.strategy ?? (text("dead-letter-strategy") as Strategy | undefined);
  const quorum = args.type === "quorum";
  return {
    ttl: amount(args.ttl, "message-ttl"),
    expires: amount(args.expires, "expires"),
    maxLength: amount(args.maxLength, "max-length") ?? Infinity,
    maxBytes: amount(args.maxBytes, "max-length-bytes") ?? Infinity,
    // A quorum queue takes reject-publish-dlx for drop-head (rule D6).
    overflow: quorum && overflow === "reject-publish-dlx" ? "drop-head" : overflow,
    dlx,
    // A routing key without an exchange does nothing.
    dlrk: dlx === undefined ? undefined : (args.dlrk ?? text("dead-letter-routing-key")),
    atLeastOnce: quorum && strategy === "at-least-once" && overflow === "reject-publish" && dlx !== undefined,
    deliveryLimit: quorum ? deliveryLimit(args, definition, compat) : Infinity,
  };
}

function deliveryLimit(args: QueueArguments, definition: Definition, compat: Compat): number {
  const limits = [args.deliveryLimit, definition["delivery-limit"]]
    .filter((n): n is number => typeof n === "number")
    .map((n) => (n < 0 ? Infinity : n));
  if (limits.length > 0) return Math.min(...limits);
  return compat === "4.x" ? DEFAULT_DELIVERY_LIMIT_4X : Infinity;
}
