/**
 * Definitions (a file's, or what a management API lists) to a topology. Tolerant of what real files lack and hold
 * besides; takes only what concerns dead letters. Users, permissions and parameters other than operator policies
 * are never looked at, so that nothing secret can reach a report.
 */
import { ARGUMENT_TYPES } from "./arguments.ts";
import { JsonFloat, Unreadable } from "./read-json.ts";
import type {
  BindingModel,
  ExchangeModel,
  LiveQueue,
  PolicyModel,
  QueueModel,
  QueueType,
  Topology,
  VhostModel,
} from "./types.ts";

type Raw = Readonly<Record<string, unknown>>;

interface Drawer {
  queues: QueueModel[];
  exchanges: ExchangeModel[];
  bindings: BindingModel[];
  policies: PolicyModel[];
  operatorPolicies: PolicyModel[];
  queueNames: Set<string>;
  exchangeNames: Set<string>;
  defaultType: QueueType | undefined;
}

/** The exchanges every virtual host has and no export lists. */
const BUILTINS: readonly (readonly [string, string, boolean])[] = [
  ["", "direct", false],
  ["amq.direct", "direct", false],
  ["amq.fanout", "fanout", false],
  ["amq.headers", "headers", false],
  ["amq.match", "headers", false],
  ["amq.topic", "topic", false],
  ["amq.rabbitmq.trace", "topic", true],
  ["amq.rabbitmq.event", "topic", true],
  ["amq.rabbitmq.log", "topic", true],
];

const isObject = (value: unknown): value is Raw =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof JsonFloat);

const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

/** Reads a parsed definitions document; throws `Unreadable` when its shape is not one. */
export function readDefinitions(document: unknown): Topology {
  if (!isObject(document)) throw new Unreadable("expected a JSON object at the top level", 1, 1);
  const notes: string[] = [];
  const lists = {
    vhosts: list(document, "vhosts", notes),
    queues: list(document, "queues", notes),
    exchanges: list(document, "exchanges", notes),
    bindings: list(document, "bindings", notes),
    policies: list(document, "policies", notes),
    parameters: list(document, "parameters", notes),
    operatorPolicies: [
      ...list(document, "operator_policies", notes),
      ...list(document, "operator-policies", notes),
    ],
  };
  const declared = lists.vhosts.map((vhost) => text(vhost["name"])).filter((name) => name !== undefined);
  const nameless = declared.length === 1 ? declared[0]! : "";
  const drawers = new Map<string, Drawer>();
  const drawer = (raw: Raw): Drawer => drawerOf(drawers, text(raw["vhost"]) ?? nameless);
  for (const vhost of lists.vhosts) readVhost(vhost, drawers);
  for (const raw of lists.exchanges) readExchange(raw, drawer(raw), notes);
  for (const raw of lists.queues) readQueue(raw, drawer(raw), notes);
  for (const raw of lists.bindings) readBinding(raw, drawer(raw), notes);
  for (const raw of lists.policies) readPolicy(raw, raw, drawer(raw), notes, false);
  for (const raw of lists.operatorPolicies) readPolicy(raw, raw, drawer(raw), notes, true);
  for (const raw of lists.parameters) {
    if (raw["component"] === "operator_policy") readPolicy(raw, raw["value"], drawer(raw), notes, true);
    else if (raw["component"] === "policy") readPolicy(raw, raw["value"], drawer(raw), notes, false);
  }
  const version = text(document["rabbit_version"]) ?? text(document["rabbitmq_version"]);
  return {
    vhosts: [...drawers].map(([name, content]) => vhostOf(name, content)),
    ...(version === undefined ? {} : { version }),
    undeclaredVhosts: undeclared(declared, drawers),
    notes: shorten(notes),
  };
}

function undeclared(declared: readonly string[], drawers: ReadonlyMap<string, Drawer>): string[] {
  if (declared.length === 0) return [];
  const known = new Set(declared);
  return [...drawers.keys()].filter((name) => name !== "" && name !== "/" && !known.has(name));
}

/** Many notes of one kind help nobody. */
function shorten(notes: readonly string[]): string[] {
  if (notes.length <= 20) return [...notes];
  return [...notes.slice(0, 20), `and ${notes.length - 20} more notes of this kind`];
}

function list(document: Raw, key: string, notes: string[]): Raw[] {
  const value = document[key];
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value))
    throw new Unreadable(`"${key}" must be a list; every RabbitMQ refuses this file`, 1, 1);
  const objects = value.filter(isObject);
  if (objects.length < value.length) {
    notes.push(`${value.length - objects.length} entries of "${key}" are not objects and were skipped`);
  }
  return objects;
}

function drawerOf(drawers: Map<string, Drawer>, vhost: string): Drawer {
  let found = drawers.get(vhost);
  if (!found) {
    found = {
      queues: [],
      exchanges: BUILTINS.map(([name, type, internal]) => ({
        name,
        type,
        internal,
        durable: true,
        autoDelete: false,
        arguments: {},
        builtin: true,
      })),
      bindings: [],
      policies: [],
      operatorPolicies: [],
      queueNames: new Set(),
      exchangeNames: new Set(BUILTINS.map(([name]) => name)),
      defaultType: undefined,
    };
    drawers.set(vhost, found);
  }
  return found;
}

const vhostOf = (name: string, content: Drawer): VhostModel => ({
  name,
  queues: content.queues,
  exchanges: content.exchanges,
  bindings: content.bindings,
  policies: content.policies,
  operatorPolicies: content.operatorPolicies,
});

function readVhost(raw: Raw, drawers: Map<string, Drawer>): void {
  const name = text(raw["name"]);
  if (name === undefined) return;
  const metadata = isObject(raw["metadata"]) ? raw["metadata"] : {};
  const type = typeOf(metadata["default_queue_type"]) ?? typeOf(raw["default_queue_type"]);
  drawerOf(drawers, name).defaultType = type;
}

/** "quorum", "rabbit_quorum_queue" and the like; undefined for anything else ("undefined" is a real export's word). */
function typeOf(value: unknown): QueueType | undefined {
  const found = /^(?:rabbit_)?(classic|quorum|stream)(?:_queue)?$/.exec(text(value) ?? "");
  return found ? (found[1] as QueueType) : undefined;
}

const objectOf = (value: unknown): Raw => (isObject(value) ? value : {});

function readExchange(raw: Raw, drawer: Drawer, notes: string[]): void {
  const name = text(raw["name"]);
  if (name === undefined) {
    notes.push("an exchange without a name was skipped; a broker refuses the file");
    return;
  }
  if (typeof raw["durable"] !== "boolean")
    notes.push(`exchange '${name}' has no "durable": the import fails`);
  if (drawer.exchangeNames.has(name)) return;
  drawer.exchangeNames.add(name);
  drawer.exchanges.push({
    name,
    type: text(raw["type"]) ?? "direct",
    durable: raw["durable"] !== false,
    autoDelete: raw["auto_delete"] === true,
    internal: raw["internal"] === true,
    arguments: objectOf(raw["arguments"]),
    builtin: false,
  });
}

function readQueue(raw: Raw, drawer: Drawer, notes: string[]): void {
  const name = text(raw["name"]);
  if (name === undefined) {
    notes.push("a queue without a name was skipped; a broker refuses the file");
    return;
  }
  for (const key of ["durable", "auto_delete"]) {
    if (typeof raw[key] !== "boolean")
      notes.push(`queue '${name}' has no "${key}": a broker refuses the file (400)`);
  }
  if (drawer.queueNames.has(name)) return;
  drawer.queueNames.add(name);
  const properties = {
    durable: raw["durable"] !== false,
    autoDelete: raw["auto_delete"] === true,
    exclusive: raw["exclusive"] === true,
  };
  const args = objectOf(raw["arguments"]);
  const live = liveOf(raw);
  drawer.queues.push({
    name,
    ...properties,
    type: queueType(args, raw, drawer.defaultType, properties),
    arguments: args,
    ...(live ? { live } : {}),
  });
}

/** Argument, then what a newer export or a live broker says it is, then the virtual host's default. */
function queueType(
  args: Raw,
  raw: Raw,
  fallback: QueueType | undefined,
  is: { durable: boolean; autoDelete: boolean; exclusive: boolean },
): QueueType {
  const said = typeOf(args["x-queue-type"]) ?? typeOf(raw["type"]);
  if (said) return said;
  // The broker applies the default only where that type allows the queue's properties.
  const plain = is.durable && !is.autoDelete && !is.exclusive;
  return fallback && (fallback === "classic" || plain) ? fallback : "classic";
}

function liveOf(raw: Raw): LiveQueue | undefined {
  const number = (key: string): number | undefined =>
    typeof raw[key] === "number" ? (raw[key] as number) : undefined;
  const policy = text(raw["policy"]);
  const operatorPolicy = text(raw["operator_policy"]);
  const consumers = number("consumers");
  const ready = number("messages_ready");
  const stuck = number("messages_dlx");
  const effective = raw["effective_policy_definition"];
  if (consumers === undefined && ready === undefined && policy === undefined && !isObject(effective))
    return undefined;
  return {
    ...(policy ? { policy } : {}),
    ...(operatorPolicy ? { operatorPolicy } : {}),
    ...(isObject(effective) ? { effectivePolicy: effective } : {}),
    ...(consumers === undefined ? {} : { consumers }),
    ...(ready === undefined ? {} : { ready }),
    ...(stuck === undefined ? {} : { stuckLetters: stuck }),
  };
}

function readBinding(raw: Raw, drawer: Drawer, notes: string[]): void {
  const source = text(raw["source"]);
  const destination = text(raw["destination"]);
  if (source === undefined || destination === undefined) {
    notes.push("a binding without source or destination was skipped");
    return;
  }
  if (typeof raw["routing_key"] !== "string") {
    notes.push(`the binding ${source} -> ${destination} has no "routing_key": the import fails`);
  }
  if (source === "") return; // implicit: every queue is bound to the default exchange by its name
  drawer.bindings.push({
    source,
    destination,
    destinationType: /^e/i.test(text(raw["destination_type"]) ?? "") ? "exchange" : "queue",
    routingKey: text(raw["routing_key"]) ?? "",
  });
}

function readPolicy(outer: Raw, value: unknown, drawer: Drawer, notes: string[], operator: boolean): void {
  const name = text(outer["name"]);
  const inner = objectOf(value);
  if (name === undefined || text(inner["pattern"]) === undefined) {
    notes.push(`a policy without name or pattern was skipped; a broker refuses the file`);
    return;
  }
  const priority = inner["priority"] instanceof JsonFloat ? inner["priority"].value : inner["priority"];
  (operator ? drawer.operatorPolicies : drawer.policies).push({
    name,
    pattern: text(inner["pattern"])!,
    applyTo: text(inner["apply-to"]) ?? text(inner["apply_to"]) ?? "all",
    priority: typeof priority === "number" ? priority : 0,
    definition: objectOf(inner["definition"]),
    operator,
  });
}

/** The queue a client is about to declare, in the shape the rules judge. For declare-time checks. */
export function queueModel(queue: {
  readonly name: string;
  readonly durable?: boolean;
  readonly autoDelete?: boolean;
  readonly exclusive?: boolean;
  readonly arguments?: Readonly<Record<string, unknown>>;
}): QueueModel {
  const args = queue.arguments ?? {};
  return {
    name: queue.name,
    durable: queue.durable ?? true,
    autoDelete: queue.autoDelete ?? false,
    exclusive: queue.exclusive ?? false,
    type: typeOf(args[ARGUMENT_TYPES.queueType]) ?? "classic",
    arguments: args,
  };
}

/** The built-in exchanges, for a model that a host puts together itself. */
export function builtinExchanges(): ExchangeModel[] {
  return drawerOf(new Map(), "").exchanges;
}
