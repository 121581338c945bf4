import { AmqpError } from "./errors.ts";
import type { Machine } from "./machine.ts";
import { checkPolicy } from "./policy.ts";
import { applyQueuePolicy } from "./queue-commands.ts";
import { applyExchangePolicy } from "./topology-commands.ts";
import type { Policy } from "./types.ts";

/** Policies and operator policies are two name spaces. */
export function keyOf(name: string, operator: boolean): string {
  return operator ? `operator/${name}` : `user/${name}`;
}

/** Sets or replaces a policy and works every queue and exchange out anew. */
export function setPolicy(m: Machine, policy: Policy): void {
  checkPolicy(policy);
  m.policies.set(keyOf(policy.name, policy.operator === true), policy);
  m.effects.push({ type: "policy-put", policy });
  applyAll(m);
}

export function clearPolicy(m: Machine, name: string, operator: boolean): void {
  if (!m.policies.delete(keyOf(name, operator))) {
    throw new AmqpError(404, `no ${operator ? "operator policy" : "policy"} '${name}' in vhost '${m.vhost}'`);
  }
  m.effects.push({ type: "policy-gone", name, operator });
  applyAll(m);
}

function applyAll(m: Machine): void {
  for (const exchange of m.exchanges.values())
    if (exchange.record.name !== "") applyExchangePolicy(m, exchange);
  for (const queue of m.queues.values()) applyQueuePolicy(m, queue);
}
