/**
 * Which keys come to each queue, and from whom: applications' bindings first, then letters of other queues, which
 * carry their DLRK or keep the key they had. Followed to the end; every (DLX, key) pair is followed once, whoever
 * sends through it, so that the work stays linear in the size of the topology.
 */
import { idOf, type Keys, one } from "./keys.ts";
import type { Settled } from "./policies.ts";
import type { Route, Router } from "./routing.ts";
import type { Effective, VhostModel } from "./types.ts";

/** A key set of a queue's messages. */
export interface Incoming {
  readonly keys: Keys;
  /** `application`: through a binding; `name`: assumed, by the queue's name; `letters`: from another queue's letters;
   * `letter-binding`: through an exchange for dead letters, where an application is not expected to publish. */
  readonly via: "application" | "name" | "letters" | "letter-binding";
}

/** Letters going one way: all queues that send to this DLX with this key. */
export interface LetterRoute {
  readonly dlx: string;
  readonly keys: Keys;
  readonly route: Route;
  readonly senders: Set<number>;
}

export interface LetterFlow {
  incoming(queue: number): readonly Incoming[];
  leftOut(queue: number): number;
  /** Queues whose letters (surely or possibly) come here; at most a handful are named. */
  feeders(queue: number): readonly number[];
  /** Whether any queue's letters, other than its own, can come here. */
  isFed(queue: number): boolean;
  /** Queues this queue's letters go to at once; of very many, some. */
  targets(queue: number): readonly number[];
  routesInto(queue: number): readonly LetterRoute[];
  routesFrom(queue: number): readonly LetterRoute[];
}

interface Input {
  readonly vhost: VhostModel;
  readonly router: Router;
  readonly settled: readonly Settled[];
  readonly appKeys: readonly (readonly Keys[])[];
  readonly letterBindingKeys: readonly (readonly Keys[])[];
}

/** More keys than this are counted, not followed. */
const MAX_INHERITED = 64;
/** Keys followed in a virtual host before every queue is given only a few, so that no topology takes for ever. */
const MAX_ALL_INHERITED = 6_000;
const FEW_INHERITED = 2;
/** Senders named for a queue; enough to judge its role. */
const MAX_FEEDERS = 32;
/** Targets named for a queue. */
const MAX_TARGETS = 64;

/** The key a letter of this queue carries. */
export const carried = (settings: Effective, keys: Keys): Keys =>
  settings.dlrk === undefined ? keys : one(settings.dlrk.value);

interface State {
  readonly input: Input;
  readonly incoming: Map<string, Incoming>[];
  readonly leftOut: number[];
  readonly routes: Map<string, LetterRoute>;
  readonly into: Set<LetterRoute>[];
  readonly from: Set<LetterRoute>[];
  /** Keys that came with letters, in all queues together. */
  inherited: number;
  readonly pending: [number, Keys, Incoming["via"]][];
}

export function traceFlow(input: Input): LetterFlow {
  const count = input.vhost.queues.length;
  const state: State = {
    input,
    incoming: Array.from({ length: count }, () => new Map()),
    leftOut: new Array<number>(count).fill(0),
    routes: new Map(),
    into: Array.from({ length: count }, () => new Set()),
    from: Array.from({ length: count }, () => new Set()),
    inherited: 0,
    pending: [],
  };
  for (let q = 0; q < count; q += 1) {
    for (const keys of input.appKeys[q]!) add(state, q, keys, "application");
  }
  drain(state);
  // What nothing feeds is published to by name, as far as can be told; through its letter bindings otherwise.
  for (let q = 0; q < count; q += 1) {
    if (state.incoming[q]!.size > 0) continue;
    if (input.letterBindingKeys[q]!.length === 0) add(state, q, one(input.vhost.queues[q]!.name), "name");
  }
  drain(state);
  for (let q = 0; q < count; q += 1) {
    for (const keys of input.letterBindingKeys[q]!) add(state, q, keys, "letter-binding");
  }
  drain(state);
  return view(state);
}

function add(state: State, queue: number, keys: Keys, via: Incoming["via"]): void {
  const known = state.incoming[queue]!;
  const id = idOf(keys);
  if (known.has(id)) return;
  const most = state.inherited < MAX_ALL_INHERITED ? MAX_INHERITED : FEW_INHERITED;
  if (known.size >= most && (via === "letters" || via === "letter-binding")) {
    state.leftOut[queue] = state.leftOut[queue]! + 1;
    return;
  }
  if (via === "letters") state.inherited += 1;
  known.set(id, { keys, via });
  state.pending.push([queue, keys, via]);
}

function drain(state: State): void {
  for (let next = state.pending.pop(); next; next = state.pending.pop()) {
    const [queue, keys, via] = next;
    // What only an unlikely publisher would send must not count as a letter further on, where likelier keys are known.
    const unlikely =
      via === "letter-binding" && [...state.incoming[queue]!.values()].some((i) => i.via !== via);
    const onward = unlikely ? "letter-binding" : "letters";
    for (const variant of state.input.settled[queue]!.variants) send(state, queue, variant, keys, onward);
  }
}

function send(state: State, queue: number, settings: Effective, keys: Keys, via: Incoming["via"]): void {
  if (!settings.dlx) return;
  const letter = carried(settings, keys);
  const id = `${settings.dlx.value}\u0000${idOf(letter)}`;
  const known = state.routes.get(id);
  if (known) {
    known.senders.add(queue);
    state.from[queue]!.add(known);
    return;
  }
  const route = state.input.router.route(settings.dlx.value, letter);
  const made: LetterRoute = { dlx: settings.dlx.value, keys: letter, route, senders: new Set([queue]) };
  state.routes.set(id, made);
  state.from[queue]!.add(made);
  for (const target of route.targets) {
    state.into[target.queue]!.add(made);
    add(state, target.queue, target.keys, via);
  }
  for (const possible of route.possible) {
    state.into[possible]!.add(made);
    add(state, possible, { kind: "unknown" }, via);
  }
}

function view(state: State): LetterFlow {
  const feeders = (queue: number): number[] => {
    const found = new Set<number>();
    for (const route of state.into[queue]!) {
      for (const sender of route.senders) {
        if (found.size >= MAX_FEEDERS) return [...found];
        found.add(sender);
      }
    }
    return [...found];
  };
  return {
    incoming: (queue) => [...state.incoming[queue]!.values()],
    leftOut: (queue) => state.leftOut[queue]!,
    feeders,
    isFed: (queue) => feeders(queue).some((sender) => sender !== queue),
    targets: (queue) => {
      const found = new Set<number>();
      for (const { route } of state.from[queue]!) {
        for (const target of [...route.targets.map((t) => t.queue), ...route.possible]) {
          if (found.size >= MAX_TARGETS) return [...found];
          found.add(target);
        }
      }
      return [...found];
    },
    routesInto: (queue) => [...state.into[queue]!],
    routesFrom: (queue) => [...state.from[queue]!],
  };
}
