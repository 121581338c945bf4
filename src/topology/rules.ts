/** How rules report: one judge for a virtual host, that keeps each finding once, and small helpers for their words. */
import { nearest } from "./arguments.ts";
import type { Ends } from "./ends.ts";
import type { Ground } from "./ground.ts";
import type { Route } from "./routing.ts";
import type { DoctorCode, Effective, Finding, LetterEnd, QueueModel, Severity } from "./types.ts";

export interface Said {
  readonly object: string;
  readonly why: string;
  readonly fix: string;
  readonly source?: string;
  readonly objects?: readonly string[];
}

export interface Judge {
  readonly ground: Ground;
  readonly ends: Ends;
  /** Where each queue's letters end, worked out once. */
  readonly letters: readonly (readonly LetterEnd[])[];
  /** Other virtual hosts that declare an exchange of this name. */
  readonly exchangeElsewhere: (name: string) => string | undefined;
  /** Queues whose DLX loses letters; filled by the route rules, used by those after them. */
  readonly broken: Set<number>;
  /** Routes whose durability was judged, by whether a durable queue sends there. */
  readonly durableSeen: WeakSet<Route>;
  readonly transientSeen: WeakSet<Route>;
  say(code: DoctorCode, severity: Severity, said: Said): void;
  /** The nearest declared name to a wrong one; stops looking after many, as it is a comfort only. */
  guess(name: string, among: "queues" | "exchanges"): string | undefined;
}

const WORST: Readonly<Record<Severity, number>> = { error: 0, warning: 1, info: 2 };

/** Worst first, then by code, then as found. */
export function byWorst(a: Finding, b: Finding): number {
  return WORST[a.severity] - WORST[b.severity] || (a.code < b.code ? -1 : a.code > b.code ? 1 : 0);
}

/** Whether a finding is at or above a severity. */
export const atLeast = (severity: Severity, threshold: Severity): boolean =>
  WORST[severity] <= WORST[threshold];

/** Suggestions are looked up for this many wrong names. */
const MAX_GUESSES = 24;

export function makeJudge(
  ground: Ground,
  ends: Ends,
  exchangeElsewhere: (name: string) => string | undefined,
): { readonly judge: Judge; readonly findings: () => Finding[] } {
  const kept = new Map<string, Finding>();
  let guesses = MAX_GUESSES;
  const names = {
    queues: () => ground.vhost.queues.map((queue) => queue.name),
    exchanges: () => ground.vhost.exchanges.map((exchange) => exchange.name).filter((name) => name !== ""),
  };
  const judge: Judge = {
    ground,
    ends,
    letters: ground.vhost.queues.map((_, q) => ends.lettersOf(q)),
    exchangeElsewhere,
    broken: new Set(),
    durableSeen: new WeakSet(),
    transientSeen: new WeakSet(),
    say(code, severity, said) {
      const id = `${code}\u0000${said.object}\u0000${said.why}`;
      const before = kept.get(id);
      if (before && WORST[before.severity] <= WORST[severity]) return;
      kept.set(id, { code, severity, vhost: ground.vhost.name, source: "", ...said });
    },
    guess(name, among) {
      if (guesses === 0 || name === "") return undefined;
      guesses -= 1;
      return nearest(name, names[among]());
    },
  };
  return { judge, findings: () => [...kept.values()] };
}

/** Calls back with every queue and each set of settings that may apply to it. */
export function eachVariant(
  ground: Ground,
  visit: (queue: QueueModel, q: number, variant: Effective) => void,
): void {
  ground.vhost.queues.forEach((queue, q) => {
    if (queue.type === "stream") return;
    for (const variant of ground.settled[q]!.variants) visit(queue, q, variant);
  });
}

/** A name in a command, quoted for a shell. */
export const quoted = (value: string): string =>
  /^[A-Za-z0-9_.:@%+-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;

/** The command that binds a queue. */
export const bindCommand = (vhost: string, source: string, queue: string, key: string): string =>
  `rabbitmqadmin${vhost === "/" || vhost === "" ? "" : ` --vhost=${quoted(vhost)}`} declare binding ` +
  `source=${quoted(source)} destination=${quoted(queue)} destination_type=queue routing_key=${quoted(key)}`;

/** 604800000 -> "7 d"; for people, never for programs. */
export function duration(ms: number): string {
  const units: readonly (readonly [number, string])[] = [
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
  ];
  for (const [size, unit] of units) if (ms >= size && ms % size === 0) return `${ms / size} ${unit}`;
  return `${ms} ms`;
}

/** At most a few names, then how many more. */
export function some(names: readonly string[], most = 4): string {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}
