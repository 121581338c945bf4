import { type HeadersPattern, headersMatch, headersPattern } from "./headers-match.ts";
import type { Queue } from "./queue.ts";
import type { FieldValue, HeaderTable } from "./table.ts";
import { TopicTree } from "./topic.ts";
import type { BindingRecord, Content, ExchangeRecord } from "./types.ts";
import { canonicalTable } from "./values.ts";

/** Where a binding leads. */
export type Destination = Queue | Exchange;

/** One binding of a source exchange, with what its type needs for matching. */
export class Binding {
  readonly key: string;
  readonly source: Exchange;
  readonly destination: Destination;
  readonly record: BindingRecord;
  readonly pattern: HeadersPattern | undefined;

  constructor(source: Exchange, destination: Destination, record: BindingRecord) {
    this.source = source;
    this.destination = destination;
    this.record = record;
    this.key = bindingKey(destination, record.routingKey, record.arguments);
    this.pattern = source.record.type === "headers" ? headersPattern(record.arguments) : undefined;
  }
}

export function bindingKey(destination: Destination, routingKey: string, args: HeaderTable): string {
  const kind = destination instanceof Exchange ? "e" : "q";
  return JSON.stringify([kind, destination.record.name, routingKey, canonicalTable(args)]);
}

/** An exchange and the bindings that leave it, indexed as its type needs them. */
export class Exchange {
  readonly record: ExchangeRecord;
  /** By argument or policy; looked up when a message finds no binding. */
  alternate: string | undefined;
  /** Effective policy's name, for people. */
  policy: string | null = null;
  readonly bindings: Map<string, Binding> = new Map();
  /** Bindings of which this exchange is the destination. */
  readonly incoming: Set<Binding> = new Set();
  readonly #direct: Map<string, Set<Binding>> = new Map();
  readonly #topic: TopicTree<Binding> = new TopicTree();

  constructor(record: ExchangeRecord) {
    this.record = record;
    this.alternate = alternateArgument(record.arguments);
  }

  add(binding: Binding): void {
    this.bindings.set(binding.key, binding);
    const routingKey = binding.record.routingKey;
    if (this.record.type === "direct") {
      const same = this.#direct.get(routingKey);
      if (same === undefined) this.#direct.set(routingKey, new Set([binding]));
      else same.add(binding);
    } else if (this.record.type === "topic") {
      this.#topic.add(routingKey, binding);
    }
    binding.destination.incoming.add(binding);
  }

  remove(binding: Binding): void {
    this.bindings.delete(binding.key);
    const routingKey = binding.record.routingKey;
    if (this.record.type === "direct") {
      const same = this.#direct.get(routingKey);
      same?.delete(binding);
      if (same?.size === 0) this.#direct.delete(routingKey);
    } else if (this.record.type === "topic") {
      this.#topic.remove(routingKey, binding);
    }
    binding.destination.incoming.delete(binding);
  }

  /** Every binding that this message follows. */
  match(content: Content, keys: readonly string[]): Iterable<Binding> {
    switch (this.record.type) {
      case "direct": {
        if (keys.length === 1) return this.#direct.get(keys[0] as string) ?? [];
        return keys.flatMap((key) => [...(this.#direct.get(key) ?? [])]);
      }
      case "fanout":
        return this.bindings.values();
      case "topic": {
        const found = new Set<Binding>();
        for (const key of keys) this.#topic.match(key, found);
        return found;
      }
      case "headers": {
        const headers = content.properties.headers;
        const found: Binding[] = [];
        for (const binding of this.bindings.values()) {
          if (headersMatch(binding.pattern as HeadersPattern, headers)) found.push(binding);
        }
        return found;
      }
    }
  }
}

export function alternateArgument(args: HeaderTable): string | undefined {
  const value: FieldValue | undefined = args.get("alternate-exchange");
  return value?.t === "S" ? value.v : undefined;
}

/** Looks exchanges and queues up by name, for routing. */
export interface Lookup {
  readonly exchanges: ReadonlyMap<string, Exchange>;
  readonly queues: ReadonlyMap<string, Queue>;
}

/**
 * The queues a message goes to, each once, in binding order. Exchanges are followed over their bindings and, where
 * nothing matched, over their alternate exchange; each is visited once, so cycles among them end.
 */
export function route(
  start: Exchange,
  content: Content,
  keys: readonly string[],
  lookup: Lookup,
): readonly Queue[] {
  if (start.record.name === "") return defaultRoute(keys, lookup);
  const found = new Set<Queue>();
  const visited = new Set<Exchange>([start]);
  const open = [start];
  for (const exchange of open) {
    let matched = false;
    if (exchange.record.name === "") {
      const queues = defaultRoute(keys, lookup);
      for (const queue of queues) found.add(queue);
      matched = queues.length > 0;
    }
    for (const binding of exchange.match(content, keys)) {
      matched = true;
      const { destination } = binding;
      if (!(destination instanceof Exchange)) found.add(destination);
      else if (!visited.has(destination)) {
        visited.add(destination);
        open.push(destination);
      }
    }
    if (matched || exchange.alternate === undefined) continue;
    const alternate = lookup.exchanges.get(exchange.alternate);
    if (alternate !== undefined && !visited.has(alternate)) {
      visited.add(alternate);
      open.push(alternate);
    }
  }
  return [...found];
}

function defaultRoute(keys: readonly string[], lookup: Lookup): readonly Queue[] {
  if (keys.length === 1) {
    const queue = lookup.queues.get(keys[0] as string);
    return queue === undefined ? [] : [queue];
  }
  const found = new Set<Queue>();
  for (const key of keys) {
    const queue = lookup.queues.get(key);
    if (queue !== undefined) found.add(queue);
  }
  return [...found];
}
