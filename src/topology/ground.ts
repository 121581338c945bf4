/**
 * What all rules stand on, worked out once for a virtual host: settled settings, the routing graph, which queues
 * applications feed, which keys a queue's messages carry, what role each queue plays.
 */

import { type LetterFlow, traceFlow } from "./flow.ts";
import { idOf, type Keys, narrow, one } from "./keys.ts";
import { looksLikeDlq, looksLikeDlx, looksLikeFailures, looksLikeWait } from "./names.ts";
import { appliesToQueues, type Line, matcher, type Settled, settle } from "./policies.ts";
import { bindingKeys, makeRouter, type Router } from "./routing.ts";
import type { BindingModel, Effective, QueueModel, Role, VhostModel } from "./types.ts";

export interface Ground {
  readonly vhost: VhostModel;
  readonly line: Line;
  readonly partial: boolean;
  readonly live: boolean;
  readonly router: Router;
  readonly settled: readonly Settled[];
  /** Some variant of the queue's settings names a DLX. */
  readonly hasDlx: readonly boolean[];
  readonly hasTtl: readonly boolean[];
  /** Keys applications publish with, by the queue's own bindings. */
  readonly appKeys: readonly (readonly Keys[])[];
  /** Keys of bindings to exchanges that exist only for dead letters. */
  readonly letterBindingKeys: readonly (readonly Keys[])[];
  readonly flow: LetterFlow;
  readonly roles: readonly Role[];
  /** Bound to an exchange that exists for dead letters. */
  readonly onDeadLetterExchange: readonly boolean[];
  /** Which queues use an exchange as their DLX. */
  readonly dlxUsers: ReadonlyMap<string, ReadonlySet<number>>;
}

export interface GroundOptions {
  readonly line: Line;
  readonly partial: boolean;
  readonly live: boolean;
}

/** More keys than this are not followed from one queue. */
export const MAX_KEYS = 64;
/** Exchanges in a row between an application and a queue. */
const MAX_UPSTREAM = 16;

export function prepare(vhost: VhostModel, options: GroundOptions): Ground {
  const router = makeRouter(vhost);
  const match = matcher(vhost.policies);
  const matchOperator = matcher(vhost.operatorPolicies);
  const settled = vhost.queues.map((queue) =>
    settle(
      queue,
      match(queue.name, (policy) => appliesToQueues(policy, queue)),
      matchOperator(queue.name, (policy) => appliesToQueues(policy, queue)),
      options.line,
    ),
  );
  const some = (wanted: (variant: Effective) => boolean): boolean[] =>
    settled.map((s) => s.variants.some(wanted));
  const hasDlx = some((variant) => variant.dlx !== undefined);
  const hasTtl = some((variant) => variant.ttl !== undefined);
  const base = { vhost, router, settled, hasDlx, hasTtl, dlxUsers: usersOf(settled) };
  const feeds = feedsOf(base);
  const flow = traceFlow({ ...base, ...feeds });
  const roles = rolesOf({ ...base, ...feeds, flow });
  return { ...options, ...base, ...feeds, flow, roles };
}

function usersOf(settled: readonly Settled[]): Map<string, Set<number>> {
  const users = new Map<string, Set<number>>();
  settled.forEach((s, queue) => {
    for (const { dlx } of s.variants) {
      if (!dlx) continue;
      const found = users.get(dlx.value);
      if (found) found.add(queue);
      else users.set(dlx.value, new Set([queue]));
    }
  });
  return users;
}

type Base = Pick<Ground, "vhost" | "router" | "settled" | "hasDlx" | "hasTtl" | "dlxUsers">;
type Feeds = Pick<Ground, "appKeys" | "letterBindingKeys" | "onDeadLetterExchange">;

/** Splits every queue's bindings into those an application publishes through and those only letters come through. */
function feedsOf(base: Base): Feeds {
  const dedicated = dedicatedExchanges(base);
  const dlrks = new Set<string>();
  for (const s of base.settled) {
    for (const { dlx, dlrk } of s.variants) if (dlx && dlrk) dlrks.add(`${dlx.value}\u0000${dlrk.value}`);
  }
  const upstream = upstreamKeys(base, dedicated);
  const appKeys: Keys[][] = [];
  const letterBindingKeys: Keys[][] = [];
  const onDeadLetterExchange: boolean[] = [];
  base.vhost.queues.forEach((_, queue) => {
    const app = new Map<string, Keys>();
    const letters = new Map<string, Keys>();
    let onDedicated = false;
    for (const binding of base.router.bindingsTo(queue)) {
      const model = base.router.exchange(binding.source)!;
      const onlyLetters =
        dedicated.has(binding.source) || dlrks.has(`${binding.source}\u0000${binding.routingKey}`);
      if (dedicated.has(binding.source)) onDedicated = true;
      const own = typical(bindingKeys(model, binding), binding);
      if (!onlyLetters && !model.internal) app.set(idOf(own), own);
      else {
        letters.set(idOf(own), own);
        for (const keys of upstream(binding)) app.set(idOf(keys), keys);
      }
    }
    appKeys.push([...app.values()]);
    letterBindingKeys.push([...letters.values()]);
    onDeadLetterExchange.push(onDedicated);
  });
  return { appKeys, letterBindingKeys, onDeadLetterExchange };
}

/** Who publishes to a fanout commonly leaves the key as the binding has it; that one instance stands for them. */
const typical = (keys: Keys, binding: BindingModel): Keys =>
  keys.kind === "some" && keys.all.length === 0 ? one(binding.routingKey) : keys;

/** Keys that come to a binding's source from exchanges applications publish to. */
function upstreamKeys(base: Base, dedicated: ReadonlySet<string>): (binding: BindingModel) => Keys[] {
  return (binding) => {
    const found = new Map<string, Keys>();
    const seen = new Set([binding.source]);
    let front: { exchange: string; keys: Keys }[] = [
      { exchange: binding.source, keys: bindingKeys(base.router.exchange(binding.source)!, binding) },
    ];
    for (let depth = 0; depth < MAX_UPSTREAM && front.length > 0; depth += 1) {
      const next: typeof front = [];
      for (const { exchange, keys } of front) {
        for (const up of base.router.bindingsToExchange(exchange)) {
          if (seen.has(up.source) || found.size >= MAX_KEYS) continue;
          seen.add(up.source);
          const model = base.router.exchange(up.source)!;
          const part = meetOf(keys, bindingKeys(model, up), up);
          if (part === undefined) continue;
          if (!model.internal && !dedicated.has(up.source)) found.set(idOf(part), part);
          next.push({ exchange: up.source, keys: part });
        }
      }
      front = next;
    }
    return [...found.values()];
  };
}

/** The keys that pass both an exchange binding and what lies behind it; undefined: surely none. */
function meetOf(behind: Keys, before: Keys, binding: BindingModel): Keys | undefined {
  if (behind.kind === "unknown" || before.kind === "unknown") return { kind: "unknown" };
  if (before.kind === "some" && before.all.length === 0) return typical(behind, binding);
  if (behind.kind === "some") return narrow(behind, binding.routingKey);
  const passes = narrow({ kind: "some", all: [], none: [] }, binding.routingKey);
  if (passes.kind === "one") return passes.key === behind.key ? behind : undefined;
  return behind;
}

/**
 * Exchanges that exist for dead letters only: named so or used as a DLX, and not one that work flows through too.
 * An exchange that a waiting queue returns to, or whose queues have it as their own DLX, carries work.
 */
function dedicatedExchanges(base: Base): Set<string> {
  const dedicated = new Set<string>();
  for (const exchange of base.vhost.exchanges) {
    const { name } = exchange;
    if (exchange.builtin || name.startsWith("amq.")) continue;
    const users = base.dlxUsers.get(name);
    const named = looksLikeDlx(name);
    if (!users && !named) continue;
    const bound = base.router
      .bindingsFrom(name)
      .filter((binding) => binding.destinationType === "queue")
      .map((binding) => base.router.queueIndex(binding.destination)!);
    if (users && !named) {
      const returns = [...users].every((q) => base.hasTtl[q] && base.router.bindingsTo(q).length === 0);
      if (returns && !bound.every((q) => looksLikeDlq(base.vhost.queues[q]!.name))) continue;
    }
    if (bound.every((q) => forLetters(base, q, name))) dedicated.add(name);
  }
  return dedicated;
}

/** A queue bound to an exchange does not speak against that exchange being for letters only. */
function forLetters(base: Base, queue: number, exchange: string): boolean {
  const { name } = base.vhost.queues[queue]!;
  if (!base.hasDlx[queue] || looksLikeDlq(name)) return true;
  if (base.settled[queue]!.variants.some((variant) => variant.dlx?.value === exchange)) return false;
  return base.hasTtl[queue]! || looksLikeWait(name);
}

/** What each queue is for. */
function rolesOf(base: Base & Feeds & { readonly flow: LetterFlow }): Role[] {
  const queues = base.vhost.queues;
  const appFed = base.appKeys.map((keys) => keys.length > 0);
  const waits = queues.map((queue, q) => isWait(base, appFed, queue, q));
  return queues.map((queue, q): Role => {
    if (waits[q]) return "wait";
    if (base.hasDlx[q]) return "work";
    if (looksLikeDlq(queue.name)) return "letters";
    if (appFed[q]) return "work";
    const fed = base.flow.feeders(q).some((sender) => sender !== q && !waits[sender]);
    if (fed || base.onDeadLetterExchange[q]) return "letters";
    const someFed = base.flow.feeders(q).some((sender) => sender !== q);
    return looksLikeFailures(queue.name) && someFed ? "letters" : "work";
  });
}

/** A queue nobody consumes: not fed by applications' exchanges, passes its messages on to a queue that works. */
function isWait(
  base: Base & Feeds & { readonly flow: LetterFlow },
  appFed: readonly boolean[],
  queue: QueueModel,
  q: number,
): boolean {
  if (!base.hasDlx[q] || appFed[q]) return false;
  const named = looksLikeWait(queue.name);
  if (!base.hasTtl[q] && !named) return false;
  return base.flow.targets(q).some((target) => {
    if (target === q) return false;
    if (looksLikeDlq(base.vhost.queues[target]!.name) && !base.hasDlx[target]) return false;
    return appFed[target] || base.hasDlx[target] || named;
  });
}
