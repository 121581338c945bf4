/**
 * Where letters end. A letter goes from the queue it died in to the queues its DLX routes it to; a queue with both a
 * TTL and a DLX only passes it on, any other keeps it. The broker drops a letter that comes back to a queue it died
 * in without having been rejected since (a cycle); a rejected one may come back for ever.
 *
 * The places letters expire from form a graph; its cycles are found in linear time (Tarjan), and what is reached
 * from a place is worked out once, however many queues send there.
 */
import { carried, type LetterFlow } from "./flow.ts";
import type { Ground } from "./ground.ts";
import { idOf, type Keys, showKeys, UNKNOWN_KEYS } from "./keys.ts";
import type { Route, Target } from "./routing.ts";
import type { DeathReason, Effective, EndKind, EndWhy, LetterEnd } from "./types.ts";

/** Different ends kept for one place; a letter copied to more is shown in part. */
const MAX_ENDS = 24;
/** Queues shown of a long way. */
const MAX_PATH = 6;
/** Places of one queue that are told apart by key; further keys are followed as keys nobody knows. */
const MAX_PLACES = 64;
/** Places told apart in a virtual host before every queue has only a few, so that no topology takes for ever. */
const MAX_ALL_PLACES = 6_000;
const FEW_PLACES = 2;
/** Keys shown for one queue. */
const MAX_LETTERS = 32;

interface End {
  readonly ends: EndKind;
  readonly at: string;
  readonly queue?: number;
  readonly why?: EndWhy;
}

/** A letter lying in a queue; places of a queue with a DLRK are one, as its key no longer matters. */
interface Place {
  readonly queue: number;
  next: Place[];
  own: End[];
  /** The keys the letter has, until its way on has been followed. */
  pending: Keys | undefined;
  index: number;
  low: number;
  onStack: boolean;
  component: number;
  ends: ReadonlyMap<string, End>;
}

const NO_ENDS: ReadonlyMap<string, End> = new Map();

export interface Ends {
  lettersOf(queue: number): LetterEnd[];
  /** The queues of every cycle of expirations; one queue alone is its own loop. */
  cycles(): readonly ReadonlySet<number>[];
}

const endId = (end: End): string => `${end.ends}\u0000${end.at}\u0000${end.why ?? ""}`;

export function makeEnds(ground: Ground): Ends {
  const places = new Map<string, Place>();
  const state: Walker = { ground, places, placesOf: new Map(), counter: 0, components: [], stack: [] };
  return {
    lettersOf: (queue) => lettersOf(state, queue),
    cycles: () => {
      for (let q = 0; q < ground.vhost.queues.length; q += 1) {
        if (!expires(ground, q)) continue;
        for (const { keys } of ground.flow.incoming(q)) resolve(state, place(state, q, keys));
      }
      return state.components;
    },
  };
}

interface Walker {
  readonly ground: Ground;
  readonly places: Map<string, Place>;
  readonly placesOf: Map<number, number>;
  counter: number;
  /** Queues of each cycle of expirations. */
  readonly components: Set<number>[];
  readonly stack: Place[];
}

const passesOn = (variant: Effective): boolean => variant.ttl !== undefined && variant.dlx !== undefined;

const expires = (ground: Ground, queue: number): boolean => ground.settled[queue]!.variants.some(passesOn);

function place(walker: Walker, queue: number, carriedKeys: Keys): Place {
  let keys = carriedKeys;
  const fixed = walker.ground.settled[queue]!.variants.every((v) => !passesOn(v) || v.dlrk !== undefined);
  let id = fixed ? `${queue}` : `${queue}\u0000${idOf(keys)}`;
  let found = walker.places.get(id);
  if (!found && !fixed) {
    // A long way that keeps all original keys would have a place for every key in every queue.
    const count = (walker.placesOf.get(queue) ?? 0) + 1;
    walker.placesOf.set(queue, count);
    if (count > (walker.places.size < MAX_ALL_PLACES ? MAX_PLACES : FEW_PLACES)) {
      keys = UNKNOWN_KEYS;
      id = `${queue}\u0000${idOf(keys)}`;
      found = walker.places.get(id);
    }
  }
  if (!found) {
    const { variants } = walker.ground.settled[queue]!;
    const stays = !variants.every(passesOn);
    found = {
      queue,
      next: [],
      own: stays ? [{ ends: "queue", at: walker.ground.vhost.queues[queue]!.name, queue }] : [],
      pending: variants.some(passesOn) ? keys : undefined,
      index: -1,
      low: 0,
      onStack: false,
      component: -1,
      ends: NO_ENDS,
    };
    walker.places.set(id, found);
  }
  return found;
}

/** Follows the DLX of a place; deferred so that a long chain does not recurse. */
function expand(walker: Walker, from: Place): void {
  const keys = from.pending;
  if (!keys) return;
  from.pending = undefined;
  const { ground } = walker;
  for (const variant of ground.settled[from.queue]!.variants) {
    if (!passesOn(variant)) continue;
    const route = ground.router.route(variant.dlx!.value, carried(variant, keys));
    for (const target of route.targets) from.next.push(place(walker, target.queue, target.keys));
    from.own.push(...misses(ground, from.queue, variant, route));
  }
}

/** The ends of a route that are no queue. */
function misses(ground: Ground, queue: number, variant: Effective, route: Route): End[] {
  const found: End[] = [];
  const dlx = variant.dlx!.value;
  if (route.unknown) found.push({ ends: "unknown", at: dlx, why: "routing-unknown" });
  if (route.lost === undefined) return found;
  const { name } = ground.vhost.queues[queue]!;
  if (keepsUnroutable(ground, queue, variant))
    return [...found, { ends: "queue", at: name, queue, why: "held" }];
  if (ground.partial && (route.missing || dlx === "")) {
    return [...found, { ends: "unknown", at: dlx, why: "not-in-file" }];
  }
  return [...found, { ends: "nowhere", at: dlx, why: route.missing ? "dlx-not-declared" : "unroutable" }];
}

/** At-least-once dead-lettering is in force: what cannot be routed stays in the source queue. */
export function keepsUnroutable(ground: Ground, queue: number, variant: Effective): boolean {
  return (
    ground.vhost.queues[queue]!.type === "quorum" &&
    variant.strategy?.value === "at-least-once" &&
    variant.overflow?.value === "reject-publish" &&
    variant.dlx !== undefined
  );
}

/** Tarjan's algorithm without recursion; a component's ends are the union of what leaves it. */
function resolve(walker: Walker, root: Place): void {
  if (root.index >= 0) return;
  const work: { place: Place; edge: number }[] = [];
  const open = (made: Place): void => {
    expand(walker, made);
    made.index = made.low = walker.counter;
    walker.counter += 1;
    made.onStack = true;
    walker.stack.push(made);
    work.push({ place: made, edge: 0 });
  };
  open(root);
  for (let top = work.at(-1); top; top = work.at(-1)) {
    const { place: here } = top;
    const next = here.next[top.edge];
    if (next) {
      top.edge += 1;
      if (next.index < 0) open(next);
      else if (next.onStack) here.low = Math.min(here.low, next.index);
      continue;
    }
    work.pop();
    const parent = work.at(-1)?.place;
    if (parent) parent.low = Math.min(parent.low, here.low);
    if (here.low === here.index) close(walker, here);
  }
}

function close(walker: Walker, root: Place): void {
  const members: Place[] = [];
  for (let member = walker.stack.pop(); member; member = walker.stack.pop()) {
    member.onStack = false;
    members.push(member);
    if (member === root) break;
  }
  const cyclic = members.length > 1 || root.next.includes(root);
  const ends = new Map<string, End>();
  const inside = new Set(members);
  for (const member of members) {
    for (const end of member.own) keep(ends, end);
    for (const next of member.next) {
      if (!inside.has(next)) for (const end of next.ends.values()) keep(ends, end);
    }
  }
  if (cyclic) {
    const name = walker.ground.vhost.queues[root.queue]!.name;
    keep(ends, { ends: "nowhere", at: name, why: "cycle" });
    const queues = new Set(members.map((member) => member.queue));
    for (const member of members) member.component = walker.components.length;
    walker.components.push(queues);
  }
  for (const member of members) member.ends = ends;
}

function keep(ends: Map<string, End>, end: End): void {
  if (ends.size < MAX_ENDS) ends.set(endId(end), end);
}

/** The reasons a message can die of in a queue with these settings. */
export function reasonsOf(ground: Ground, queue: number, variant: Effective): DeathReason[] {
  const { type } = ground.vhost.queues[queue]!;
  if (type === "stream") return [];
  const reasons: DeathReason[] = ["rejected"];
  if (variant.ttl) reasons.push("expired");
  if (overflows(variant)) reasons.push("maxlen");
  const limit = variant.deliveryLimit?.value;
  const byDefault = limit === undefined && ground.line !== "3";
  const explicit = limit !== undefined && (limit >= 0 || ground.line !== "4");
  if (type === "quorum" && (byDefault || explicit)) reasons.push("delivery_limit");
  return reasons;
}

/** A length limit that kills messages. A quorum queue reads reject-publish-dlx as drop-head. */
export function overflows(variant: Effective): boolean {
  if (!variant.maxLength && !variant.maxLengthBytes) return false;
  if (variant.overflow?.value === "reject-publish") return false;
  return true;
}

function lettersOf(walker: Walker, queue: number): LetterEnd[] {
  const { ground } = walker;
  const { name } = ground.vhost.queues[queue]!;
  const found = new Map<string, LetterEnd>();
  const put = (end: LetterEnd): void => {
    if (found.size < MAX_LETTERS) {
      found.set(`${end.reason}\u0000${end.key}\u0000${end.ends}\u0000${end.at}`, end);
    }
  };
  const { variants, unsure } = ground.settled[queue]!;
  const judged = variants.map((variant) => ({ variant, reasons: reasonsOf(ground, queue, variant) }));
  for (const { variant, reasons } of judged) {
    if (unsure && variant.dlx?.kind !== "argument") {
      for (const reason of reasons) {
        put({ reason, key: "#", ends: "unknown", at: name, path: [], why: "policy-unknown" });
      }
    } else if (!variant.dlx) {
      for (const reason of reasons)
        put({ reason, key: "#", ends: "nowhere", at: name, path: [], why: "no-dlx" });
    } else follow(walker, queue, variant, reasons, put);
  }
  return judged.length > 1 ? worst([...found.values()]) : [...found.values()];
}

const RANK: Readonly<Record<EndKind, number>> = { nowhere: 0, back: 1, unknown: 2, queue: 3 };

/** On a tie of policies each is judged and, per reason, the worst outcome is what is told. */
function worst(letters: readonly LetterEnd[]): LetterEnd[] {
  const least = new Map<DeathReason, number>();
  for (const { reason, ends } of letters) {
    least.set(reason, Math.min(least.get(reason) ?? 9, RANK[ends]));
  }
  return letters.filter(({ reason, ends }) => RANK[ends] === least.get(reason));
}

function follow(
  walker: Walker,
  queue: number,
  variant: Effective,
  reasons: readonly DeathReason[],
  put: (end: LetterEnd) => void,
): void {
  const { ground } = walker;
  const letters = new Map<string, Keys>();
  for (const { keys } of ground.flow.incoming(queue)) {
    const letter = carried(variant, keys);
    letters.set(idOf(letter), letter);
  }
  for (const keys of letters.values()) {
    const route = ground.router.route(variant.dlx!.value, keys);
    const whole = showKeys(keys);
    for (const end of misses(ground, queue, variant, route)) {
      const key =
        end.ends === "unknown" || end.why === "held" || route.targets.length === 0 ? whole : route.lost!;
      for (const reason of reasons)
        put({ reason, key, ends: end.ends, at: end.at, path: [], ...reasonWhy(end) });
    }
    for (const target of shown(route, queue)) {
      // Where a part of the keys is lost, say which part arrives.
      const key = route.lost === undefined ? whole : showKeys(target.keys);
      for (const reason of reasons) arrive(walker, queue, reason, key, target, put);
    }
  }
}

/** The targets that are followed for one queue: of very many, some, and always the queue itself. */
function shown(route: Route, queue: number): readonly Target[] {
  if (route.targets.length <= MAX_LETTERS) return route.targets;
  const self = route.queues.has(queue) ? route.targets.filter((target) => target.queue === queue) : [];
  return [...self, ...route.targets.slice(0, MAX_LETTERS)];
}

const reasonWhy = (end: End): { why?: EndWhy } => (end.why === undefined ? {} : { why: end.why });

/** A letter of `queue` has been routed to `target`: it stays, returns, is dropped as a cycle, or goes on. */
function arrive(
  walker: Walker,
  queue: number,
  reason: DeathReason,
  key: string,
  target: { readonly queue: number; readonly keys: Keys },
  put: (end: LetterEnd) => void,
): void {
  const { name } = walker.ground.vhost.queues[queue]!;
  const returned = (path: readonly string[]): LetterEnd =>
    reason === "rejected"
      ? { reason, key, ends: "back", at: name, path }
      : { reason, key, ends: "nowhere", at: name, path, why: "cycle" };
  if (target.queue === queue) {
    put(returned([name]));
    return;
  }
  const here = place(walker, target.queue, target.keys);
  resolve(walker, here);
  const path = pathFrom(walker, here, queue);
  const onCycle = here.component >= 0 && walker.components[here.component]!.has(queue);
  for (const end of here.ends.values()) {
    if (end.queue === queue && end.why === undefined) put(returned(path));
    else if (end.why === "cycle" && onCycle) put(returned(path));
    else if (end.why === "cycle" && reason === "rejected" && walker.ground.line === "3") {
      // Before 3.13.3 x-death was out of order, and with the reject further back such a letter circles for ever.
      put({ reason, key, ends: "unknown", at: end.at, path, why: "cycle" });
    } else put({ reason, key, ends: end.ends, at: end.at, path, ...reasonWhy(end) });
  }
}

/** The first queues of the way, along its first branch. */
function pathFrom(walker: Walker, start: Place, origin: number): string[] {
  const names: string[] = [];
  const seen = new Set<Place>();
  for (let here: Place | undefined = start; here && !seen.has(here); here = here.next[0]) {
    seen.add(here);
    if (names.length === MAX_PATH) return [...names, "..."];
    names.push(walker.ground.vhost.queues[here.queue]!.name);
    if (here.queue === origin) break;
  }
  return names;
}

/** The keys that count for findings: real ones where there are any, else what its letter bindings let through. */
export function countedKeys(flow: LetterFlow, queue: number): Keys[] {
  const all = flow.incoming(queue);
  const real = all.filter((incoming) => incoming.via !== "letter-binding");
  return (real.length > 0 ? real : all).map((incoming) => incoming.keys);
}
