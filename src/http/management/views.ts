import type { BindingRecord, ExchangeInfo, Policy, QueueInfo, VirtualHost } from "../../broker/index.ts";
import { plain } from "./context.ts";

type Json = Record<string, unknown>;

/** The name this broker gives its only node. */
export const NODE_NAME = "dlo@localhost";

/** Keys whose lower value wins when a policy and an operator policy both set them. */
const LOWER_WINS = new Set(["message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit"]);

/** What applies to an object in the end: the policy's definition with the operator policy laid over it. */
export function effectivePolicy(vhost: VirtualHost, policy?: string, operatorPolicy?: string): Json {
  const find = (name: string | undefined, operator: boolean) =>
    name === undefined
      ? undefined
      : vhost.policies().find((p) => p.name === name && (p.operator ?? false) === operator);
  const merged: Json = { ...find(policy, false)?.definition };
  for (const [key, value] of Object.entries(find(operatorPolicy, true)?.definition ?? {})) {
    const own = merged[key];
    merged[key] =
      LOWER_WINS.has(key) && typeof own === "number" && typeof value === "number"
        ? Math.min(own, value)
        : value;
  }
  return merged;
}

export function queueView(vhost: VirtualHost, queue: QueueInfo): Json {
  const { record } = queue;
  return {
    name: record.name,
    vhost: vhost.name,
    type: record.type,
    durable: record.durable,
    auto_delete: record.autoDelete,
    exclusive: record.exclusive,
    arguments: plain(record.arguments.toObject()),
    node: NODE_NAME,
    state: "running",
    messages: queue.ready + queue.unacked,
    messages_ready: queue.ready,
    messages_unacknowledged: queue.unacked,
    messages_delayed: queue.delayed,
    consumers: queue.consumers,
    policy: queue.policy ?? null,
    operator_policy: queue.operatorPolicy ?? null,
    effective_policy_definition: effectivePolicy(vhost, queue.policy, queue.operatorPolicy),
  };
}

export function exchangeView(vhost: VirtualHost, exchange: ExchangeInfo): Json {
  const { record } = exchange;
  return {
    name: record.name,
    vhost: vhost.name,
    type: record.type,
    durable: record.durable,
    auto_delete: record.autoDelete,
    internal: record.internal,
    arguments: plain(record.arguments.toObject()),
    policy: exchange.policy ?? null,
    user_who_performed_action: "",
  };
}

/** The last part of a binding's URL: its key, with a mark of its arguments when it has any; `~` for neither. */
export function propertiesKey(binding: Pick<BindingRecord, "routingKey" | "arguments">): string {
  const key = encodeURIComponent(binding.routingKey).replaceAll("~", "%7E");
  if (binding.arguments.size === 0) return key === "" ? "~" : key;
  let hash = 5381;
  for (const byte of binding.arguments.bytes) hash = (Math.imul(hash, 33) ^ byte) >>> 0;
  return `${key}~${hash.toString(36)}`;
}

export function bindingView(vhost: VirtualHost, binding: BindingRecord): Json {
  return {
    source: binding.source,
    vhost: vhost.name,
    destination: binding.destination,
    destination_type: binding.destinationType,
    routing_key: binding.routingKey,
    arguments: plain(binding.arguments.toObject()),
    properties_key: propertiesKey(binding),
  };
}

export function policyView(vhost: VirtualHost, policy: Policy): Json {
  return {
    vhost: vhost.name,
    name: policy.name,
    pattern: policy.pattern,
    "apply-to": policy.applyTo,
    priority: policy.priority,
    definition: policy.definition,
  };
}
