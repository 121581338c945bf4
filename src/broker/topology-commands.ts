import { compareArgument } from "./arguments.ts";
import type { Channel } from "./consumers.ts";
import { AmqpError } from "./errors.ts";
import { alternateArgument, Binding, bindingKey, type Destination, Exchange } from "./exchange.ts";
import type { Machine } from "./machine.ts";
import { matchPolicies } from "./policy.ts";
import { HeaderTable } from "./table.ts";
import type { CommandOf, ExchangeType } from "./types.ts";
import { checkName, typeName } from "./values.ts";

const TYPES: readonly string[] = ["direct", "fanout", "topic", "headers"];

function refuseDefault(name: string): void {
  if (name === "") throw new AmqpError(403, "operation not permitted on the default exchange");
}

/** exchange.declare: makes it, or checks that the one there is the same. */
export function declareExchange(m: Machine, c: CommandOf<"exchange-declare">): void {
  const { exchange: name } = c;
  checkName("exchange name", name);
  refuseDefault(name);
  if (c.passive) {
    m.exchange(name);
    return;
  }
  if (!TYPES.includes(c.exchangeType)) throw new AmqpError(503, `unknown exchange type '${c.exchangeType}'`);
  const current = m.exchanges.get(name);
  if (current !== undefined) {
    checkSame(m, current, c);
    return;
  }
  if (name.startsWith("amq.")) {
    throw new AmqpError(403, `exchange name '${name}' contains reserved prefix 'amq.*'`);
  }
  const alternate = c.arguments?.get("alternate-exchange");
  if (alternate !== undefined && alternate.t !== "S") {
    throw new AmqpError(
      406,
      `invalid type '${typeName(alternate)}' for arg 'alternate-exchange' in ${m.name("exchange", name)}`,
    );
  }
  const exchange = new Exchange({
    name,
    type: c.exchangeType as ExchangeType,
    durable: c.durable === true,
    autoDelete: c.autoDelete === true,
    internal: c.internal === true,
    arguments: c.arguments ?? HeaderTable.empty,
  });
  applyExchangePolicy(m, exchange);
  m.exchanges.set(name, exchange);
  if (exchange.record.durable) m.effects.push({ type: "exchange-put", exchange: exchange.record });
}

function checkSame(m: Machine, current: Exchange, c: CommandOf<"exchange-declare">): void {
  const object = m.name("exchange", c.exchange);
  const { record } = current;
  const differs = (what: string, asked: string | boolean, is: string | boolean): never => {
    throw new AmqpError(
      406,
      `inequivalent arg '${what}' for ${object}: received '${asked}' but current is '${is}'`,
    );
  };
  const flag = (what: string, asked: boolean | undefined, is: boolean): void => {
    if ((asked === true) !== is) differs(what, asked === true, is);
  };
  if (c.exchangeType !== record.type) differs("type", c.exchangeType, record.type);
  flag("durable", c.durable, record.durable);
  flag("auto_delete", c.autoDelete, record.autoDelete);
  flag("internal", c.internal, record.internal);
  const key = "alternate-exchange";
  compareArgument(key, record.arguments.get(key), c.arguments?.get(key), object);
}

/** exchange.delete: one that is not there is fine. */
export function deleteExchangeCommand(m: Machine, c: CommandOf<"exchange-delete">): void {
  refuseDefault(c.exchange);
  if (c.exchange.startsWith("amq.")) {
    throw new AmqpError(403, `deletion of system ${m.name("exchange", c.exchange)} not allowed`);
  }
  const exchange = m.exchanges.get(c.exchange);
  if (exchange === undefined) return;
  if (c.ifUnused && exchange.bindings.size > 0) {
    throw new AmqpError(406, `${m.name("exchange", c.exchange)} in use`);
  }
  deleteExchange(m, exchange);
}

function deleteExchange(m: Machine, exchange: Exchange): void {
  if (m.exchanges.get(exchange.record.name) !== exchange) return;
  m.exchanges.delete(exchange.record.name);
  for (const binding of [...exchange.bindings.values()]) removeBinding(m, binding, false);
  for (const binding of [...exchange.incoming]) removeBinding(m, binding, true);
  if (exchange.record.durable) m.effects.push({ type: "exchange-gone", name: exchange.record.name });
}

/** queue.bind and exchange.bind. The same binding again changes nothing. */
export function bind(
  m: Machine,
  channel: Channel,
  c: CommandOf<"queue-bind"> | CommandOf<"exchange-bind">,
): void {
  const { source, destination, routingKey } = endpoints(m, channel, c);
  checkName("routing key", routingKey);
  const args = c.arguments ?? HeaderTable.empty;
  if (source.bindings.has(bindingKey(destination, routingKey, args))) return;
  const binding = new Binding(source, destination, {
    source: source.record.name,
    destination: destination.record.name,
    destinationType: destination instanceof Exchange ? "exchange" : "queue",
    routingKey,
    arguments: args,
  });
  source.add(binding);
  if (isStored(binding)) m.effects.push({ type: "binding-put", binding: binding.record });
}

/** queue.unbind and exchange.unbind. A binding that is not there is fine. */
export function unbind(
  m: Machine,
  channel: Channel,
  c: CommandOf<"queue-unbind"> | CommandOf<"exchange-unbind">,
): void {
  const { source, destination, routingKey } = endpoints(m, channel, c);
  const key = bindingKey(destination, routingKey, c.arguments ?? HeaderTable.empty);
  const binding = source.bindings.get(key);
  if (binding !== undefined) removeBinding(m, binding, true);
}

function endpoints(
  m: Machine,
  channel: Channel,
  c: CommandOf<"queue-bind" | "queue-unbind"> | CommandOf<"exchange-bind" | "exchange-unbind">,
): { source: Exchange; destination: Destination; routingKey: string } {
  if ("queue" in c) {
    refuseDefault(c.exchange);
    const destination = m.queue(c.queue, channel);
    // No queue and no key named: both mean the queue declared last.
    const routingKey = c.queue === "" && c.routingKey === "" ? destination.record.name : c.routingKey;
    return { source: m.exchange(c.exchange), destination, routingKey };
  }
  refuseDefault(c.source);
  refuseDefault(c.destination);
  const destination = m.exchange(c.destination);
  return { source: m.exchange(c.source), destination, routingKey: c.routingKey };
}

/** Both ends must survive a restart for the binding to. */
export function isStored(binding: Binding): boolean {
  const { destination } = binding;
  const kept = destination instanceof Exchange ? destination.record.durable : destination.stored;
  return binding.source.record.durable && kept;
}

/** Takes a binding away, and its source with it when that was its last and it is auto-delete. */
export function removeBinding(m: Machine, binding: Binding, mayEndSource: boolean): void {
  const { source } = binding;
  source.remove(binding);
  if (isStored(binding)) m.effects.push({ type: "binding-gone", binding: binding.record });
  if (mayEndSource && source.record.autoDelete && source.bindings.size === 0) deleteExchange(m, source);
}

/** Works the exchange's policy out anew. */
export function applyExchangePolicy(m: Machine, exchange: Exchange): void {
  const { user, definition } = matchPolicies(m.policies.values(), {
    kind: "exchange",
    name: exchange.record.name,
  });
  const byPolicy = definition["alternate-exchange"];
  exchange.policy = user?.name ?? null;
  exchange.alternate =
    alternateArgument(exchange.record.arguments) ?? (typeof byPolicy === "string" ? byPolicy : undefined);
}
