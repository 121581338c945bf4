/**
 * Where an exchange sends a set of keys, in one virtual host: bindings to queues and to exchanges, alternate
 * exchanges, built-ins. Headers exchanges and exchange types of plugins are not second-guessed: what they are bound
 * to is possible, never certain, and never an error.
 */
import {
  ANY_KEY,
  contains,
  findKey,
  idOf,
  isPattern,
  type Keys,
  narrow,
  one,
  patternKeys,
  type Taken,
  UNKNOWN_KEYS,
  without,
  wordsOf,
} from "./keys.ts";
import { alternateByPolicy } from "./policies.ts";
import { Trie } from "./trie.ts";
import type { BindingModel, ExchangeModel, VhostModel } from "./types.ts";

/** One queue a set of keys reaches, with the part of the set that does. */
export interface Target {
  readonly queue: number;
  readonly keys: Keys;
}

export interface Route {
  /** The exchange is not in this virtual host. */
  readonly missing: boolean;
  readonly targets: readonly Target[];
  /** The queues of the targets, for a quick look. */
  readonly queues: ReadonlySet<number>;
  /** Queues that a headers or plugin exchange may or may not reach. */
  readonly possible: readonly number[];
  /** A key that reaches nothing, when there is one. */
  readonly lost?: string;
  /** Whether any key could not be followed to certainty. */
  readonly unknown: boolean;
  /** The exchanges on the way. */
  readonly through: readonly string[];
}

export interface Router {
  route(exchange: string, keys: Keys): Route;
  exchange(name: string): ExchangeModel | undefined;
  queueIndex(name: string): number | undefined;
  /** Bindings whose destination is this queue; only those a broker would keep. */
  bindingsTo(queue: number): readonly BindingModel[];
  bindingsFrom(exchange: string): readonly BindingModel[];
  bindingsToExchange(exchange: string): readonly BindingModel[];
  alternateOf(exchange: string): string | undefined;
  /** Bindings from or to something that is not declared. */
  readonly dropped: readonly { readonly binding: BindingModel; readonly missing: readonly string[] }[];
}

/** Bindings looked at for one pattern; a set that meets more is not followed to the end. */
const MAX_OVERLAP = 128;
/** Exchanges times key sets followed for one letter. */
const MAX_STEPS = 20_000;

const KNOWN_TYPES = new Set(["direct", "fanout", "topic", "headers"]);

/** True for the types whose routing the doctor knows word by word. */
export const isPredictable = (exchange: ExchangeModel): boolean =>
  KNOWN_TYPES.has(exchange.type) && exchange.type !== "headers";

interface Station {
  readonly model: ExchangeModel;
  readonly bindings: BindingModel[];
  trie: Trie | undefined;
}

/** Builds the graph of a virtual host. Routing answers are remembered, as many queues share exchange and key. */
export function makeRouter(vhost: VhostModel): Router {
  const stations = new Map<string, Station>(
    vhost.exchanges.map((model) => [model.name, { model, bindings: [], trie: undefined }]),
  );
  const queueIndex = new Map(vhost.queues.map((queue, i) => [queue.name, i] as const));
  const toQueue: BindingModel[][] = vhost.queues.map(() => []);
  const toExchange = new Map<string, BindingModel[]>();
  const dropped: { binding: BindingModel; missing: string[] }[] = [];
  for (const binding of vhost.bindings) {
    const source = stations.get(binding.source);
    const queue = binding.destinationType === "queue" ? queueIndex.get(binding.destination) : undefined;
    const known =
      queue !== undefined || (binding.destinationType === "exchange" && stations.has(binding.destination));
    if (!source || !known) {
      dropped.push({
        binding,
        missing: [...(source ? [] : [binding.source]), ...(known ? [] : [binding.destination])],
      });
      continue;
    }
    source.bindings.push(binding);
    if (queue !== undefined) toQueue[queue]!.push(binding);
    else {
      const list = toExchange.get(binding.destination);
      if (list) list.push(binding);
      else toExchange.set(binding.destination, [binding]);
    }
  }
  const byPolicy = alternateByPolicy(vhost);
  const alternateOf = (name: string): string | undefined => {
    const argument = stations.get(name)?.model.arguments["alternate-exchange"];
    return typeof argument === "string" ? argument : name === "" ? undefined : byPolicy(name);
  };
  const context: Context = { stations, queueIndex, alternateOf };
  const memo = new Map<string, Route>();
  return {
    route(exchange, keys) {
      const id = `${exchange}\u0000${idOf(keys)}`;
      let found = memo.get(id);
      if (!found) memo.set(id, (found = walk(context, exchange, keys)));
      return found;
    },
    exchange: (name) => stations.get(name)?.model,
    queueIndex: (name) => queueIndex.get(name),
    bindingsTo: (queue) => toQueue[queue]!,
    bindingsFrom: (name) => stations.get(name)?.bindings ?? [],
    bindingsToExchange: (name) => toExchange.get(name) ?? [],
    alternateOf,
    dropped,
  };
}

interface Context {
  readonly stations: ReadonlyMap<string, Station>;
  readonly queueIndex: ReadonlyMap<string, number>;
  readonly alternateOf: (exchange: string) => string | undefined;
}

/** What a walk has gathered so far. */
interface Walk {
  readonly targets: Map<string, Target>;
  readonly possible: Set<number>;
  readonly pending: { exchange: string; keys: Keys; sure: boolean }[];
  readonly seen: Set<string>;
  readonly through: Set<string>;
  unknown: boolean;
}

/** The commonest way, without the walk: by the name of a queue. */
function byName(context: Context, keys: Extract<Keys, { kind: "one" }>): Route {
  const queue = context.queueIndex.get(keys.key);
  const base = { missing: false, possible: [], unknown: false, through: [""] };
  if (queue === undefined) return { ...base, targets: [], queues: new Set(), lost: keys.key };
  return { ...base, targets: [{ queue, keys }], queues: new Set([queue]) };
}

function walk(context: Context, exchange: string, keys: Keys): Route {
  if (exchange === "" && keys.kind === "one") return byName(context, keys);
  const state: Walk = {
    targets: new Map(),
    possible: new Set(),
    pending: [],
    seen: new Set(),
    through: new Set(),
    unknown: false,
  };
  const missing = !context.stations.has(exchange);
  enter(state, exchange, keys, true);
  for (let next = state.pending.pop(); next; next = state.pending.pop()) {
    if (state.seen.size > MAX_STEPS) state.unknown = true;
    else visit(context, state, next.exchange, next.keys, next.sure);
  }
  const targets = [...state.targets.values()];
  const sure = new Set(targets.map((target) => target.queue));
  const lost = missing ? sample(keys) : lostKey(state, keys, targets);
  return {
    missing,
    targets,
    queues: sure,
    possible: [...state.possible].filter((queue) => !sure.has(queue)),
    ...(typeof lost === "string" ? { lost } : {}),
    unknown: state.unknown || lost === undefined,
    through: [...state.through],
  };
}

function enter(state: Walk, exchange: string, keys: Keys, sure: boolean): void {
  const id = `${sure ? "" : "?"}${exchange}\u0000${idOf(keys)}`;
  if (state.seen.has(id)) return;
  state.seen.add(id);
  state.pending.push({ exchange, keys, sure });
}

/** Any one key of a set, to show. */
function sample(keys: Keys): string {
  if (keys.kind === "one") return keys.key;
  if (keys.kind === "unknown") return "?";
  return (
    findKey(
      keys.all,
      keys.none.map((p) => ({ all: [p], none: [] })),
    ) ?? "?"
  );
}

/** A key of the set that no target takes; null: there is none; undefined: cannot be known. */
function lostKey(state: Walk, keys: Keys, targets: readonly Target[]): string | null | undefined {
  if (keys.kind === "one") return targets.length > 0 || state.unknown ? null : keys.key;
  if (keys.kind === "unknown") return null;
  const whole = idOf(keys);
  if (state.unknown || targets.some((target) => idOf(target.keys) === whole)) return null;
  const taken: Taken[] = keys.none.map((pattern) => ({ all: [pattern], none: [] }));
  for (const target of targets) {
    if (target.keys.kind === "one") {
      if (isPattern(target.keys.key)) return undefined; // a literal "*" as a key of a direct binding
      taken.push({ all: [target.keys.key], none: [] });
    } else if (target.keys.kind === "some") taken.push(target.keys);
  }
  return findKey(keys.all, taken);
}

function visit(context: Context, state: Walk, name: string, keys: Keys, sure: boolean): void {
  const station = context.stations.get(name);
  if (!station) return;
  state.through.add(name);
  if (name === "") {
    visitDefault(context, state, keys, sure);
    return;
  }
  if (!isPredictable(station.model)) {
    if (station.bindings.length > 0) state.unknown = true;
    for (const binding of station.bindings) pass(context, state, binding, UNKNOWN_KEYS, false);
    return;
  }
  if (keys.kind === "unknown") {
    visitUnknown(context, state, station);
    return;
  }
  const met = meet(state, station, keys).flatMap((binding) => {
    const part = partOf(station.model, binding, keys);
    if (!part) return [];
    pass(context, state, binding, part, sure);
    return [binding];
  });
  const alternate = context.alternateOf(name);
  if (alternate === undefined) return;
  if (keys.kind === "one") {
    if (met.length === 0) enter(state, alternate, keys, sure);
  } else alternateFor(state, alternate, station.model, keys, met, sure);
}

/** The bindings that can take a key of the set. */
function meet(
  state: Walk,
  station: Station,
  keys: Exclude<Keys, { kind: "unknown" }>,
): readonly BindingModel[] {
  if (station.model.type === "fanout") return station.bindings;
  const trie = (station.trie ??= plant(station));
  if (keys.kind === "one") {
    return trie.find(wordsOf(keys.key), "key", Number.POSITIVE_INFINITY).map((i) => station.bindings[i]!);
  }
  const hits = trie.find(wordsOf(keys.all[0] ?? "#"), "overlap", MAX_OVERLAP + 1);
  if (hits.length <= MAX_OVERLAP) return hits.map((i) => station.bindings[i]!);
  // Too many to follow one by one. Those that take the whole set are enough to know that nothing is lost.
  const covering = trie.find(wordsOf(keys.all[0] ?? "#"), "cover", MAX_OVERLAP);
  if (covering.length === 0) state.unknown = true;
  return [...new Set([...covering, ...hits.slice(0, MAX_OVERLAP)])].map((i) => station.bindings[i]!);
}

/** The keys no binding of this exchange takes go on to its alternate exchange. */
function alternateFor(
  state: Walk,
  alternate: string,
  model: ExchangeModel,
  keys: Extract<Keys, { kind: "some" }>,
  met: readonly BindingModel[],
  sure: boolean,
): void {
  if (met.some((binding) => takesAll(model, binding, keys))) return;
  const patterns = met.map((binding) => binding.routingKey);
  const rest = without(keys, patterns);
  if (rest.kind !== "some") return;
  const key = findKey(
    rest.all,
    rest.none.map((pattern) => ({ all: [pattern], none: [] })),
  );
  if (key === undefined) state.unknown = true;
  if (key !== null) enter(state, alternate, rest, sure);
}

/** Keys nobody knows still pass a fanout or a `#`; anything else is only possible. */
function visitUnknown(context: Context, state: Walk, station: Station): void {
  let certain = false;
  for (const binding of station.bindings) {
    const all =
      station.model.type === "fanout" || (station.model.type === "topic" && binding.routingKey === "#");
    if (all) certain = true;
    pass(context, state, binding, UNKNOWN_KEYS, all);
  }
  const alternate = context.alternateOf(station.model.name);
  if (certain) return;
  if (station.bindings.length > 0) state.unknown = true;
  if (alternate !== undefined) enter(state, alternate, UNKNOWN_KEYS, station.bindings.length === 0);
}

function visitDefault(context: Context, state: Walk, keys: Keys, sure: boolean): void {
  if (keys.kind === "one") {
    const queue = context.queueIndex.get(keys.key);
    if (queue !== undefined) reach(state, queue, keys, sure);
    return;
  }
  if (keys.kind === "unknown") {
    state.unknown = true;
    return;
  }
  let met = 0;
  for (const [name, queue] of context.queueIndex) {
    if (contains(keys, name) && (met += 1) <= MAX_OVERLAP) reach(state, queue, one(name), sure);
  }
  if (met > MAX_OVERLAP) state.unknown = true;
}

/** Hands a set on over one binding. */
function pass(context: Context, state: Walk, binding: BindingModel, keys: Keys, sure: boolean): void {
  if (binding.destinationType === "exchange") {
    enter(state, binding.destination, keys, sure);
    return;
  }
  const queue = context.queueIndex.get(binding.destination);
  if (queue !== undefined) reach(state, queue, keys, sure);
}

function reach(state: Walk, queue: number, keys: Keys, sure: boolean): void {
  if (!sure) {
    state.possible.add(queue);
    return;
  }
  state.targets.set(`${queue}\u0000${idOf(keys)}`, { queue, keys });
}

/** The part of a set that a binding of a direct, fanout or topic exchange takes; undefined: none of it. */
function partOf(model: ExchangeModel, binding: BindingModel, keys: Keys): Keys | undefined {
  if (keys.kind !== "some") return keys;
  if (model.type === "fanout") return keys;
  if (model.type === "direct")
    return contains(keys, binding.routingKey) ? one(binding.routingKey) : undefined;
  if (!isPattern(binding.routingKey)) {
    return contains(keys, binding.routingKey) ? one(binding.routingKey) : undefined;
  }
  const part = narrow(keys, binding.routingKey);
  if (part.kind !== "some" || part === keys || (part.all.length < 2 && part.none.length === 0)) return part;
  const some = findKey(
    part.all,
    part.none.map((pattern) => ({ all: [pattern], none: [] })),
  );
  return some === null ? undefined : part;
}

const takesAll = (model: ExchangeModel, binding: BindingModel, keys: Keys): boolean =>
  model.type === "fanout" ||
  (model.type === "topic" && isPattern(binding.routingKey) && narrow(keys, binding.routingKey) === keys);

function plant(station: Station): Trie {
  const trie = new Trie();
  station.bindings.forEach((binding, i) => {
    trie.add(wordsOf(binding.routingKey), i, station.model.type === "direct");
  });
  return trie;
}

/** The keys a binding lets through when anything may be published; undefined: nobody knows (headers, plugins). */
export function bindingKeys(model: ExchangeModel, binding: BindingModel): Keys {
  if (!isPredictable(model)) return UNKNOWN_KEYS;
  if (model.type === "fanout") return ANY_KEY;
  return model.type === "direct" ? one(binding.routingKey) : patternKeys(binding.routingKey);
}
