/** A running broker's virtual host in the shape the doctor's rules judge. */

import { ANNOUNCED_VERSION } from "../amqp/index.ts";
import type { BrokerHost, VirtualHost } from "../broker/index.ts";
import {
  builtinExchanges,
  type ExchangeModel,
  examineTopology,
  type PolicyModel,
  type QueueModel,
  queueModel,
  type Report,
  type VhostModel,
} from "../topology/index.ts";

/** The virtual host as it is now: queues, exchanges, bindings, policies. Reads only. */
export function modelOf(vhost: VirtualHost): VhostModel {
  const builtin = builtinExchanges();
  const known = new Set(builtin.map(({ name }) => name));
  const own = vhost.exchanges().flatMap(({ record }): ExchangeModel[] => {
    if (known.has(record.name)) return [];
    return [{ ...record, arguments: record.arguments.toObject(), builtin: false }];
  });
  const policies = vhost
    .policies()
    .map((policy): PolicyModel => ({ ...policy, operator: policy.operator === true }));
  return {
    name: vhost.name,
    queues: vhost.queues().map(({ record }) => modelOfQueue(record)),
    exchanges: [...builtin, ...own],
    bindings: vhost.bindings().map(({ source, destination, destinationType, routingKey }) => ({
      source,
      destination,
      destinationType,
      routingKey,
    })),
    policies: policies.filter(({ operator }) => !operator),
    operatorPolicies: policies.filter(({ operator }) => operator),
  };
}

function modelOfQueue(record: ReturnType<VirtualHost["queues"]>[number]["record"]): QueueModel {
  // This broker's own arguments are none of RabbitMQ's, and here they are not ignored.
  const args = Object.entries(record.arguments.toObject()).filter(([key]) => !key.startsWith("x-dlo-"));
  return { ...queueModel({ ...record, arguments: Object.fromEntries(args) }), type: record.type };
}

/** The doctor's report on one virtual host of a running broker. */
export function examineVhost(host: BrokerHost, vhost: VirtualHost): Report {
  return examineTopology(
    { vhosts: [modelOf(vhost)], undeclaredVhosts: [], notes: [] },
    { brokerVersion: ANNOUNCED_VERSION[host.compat] },
  );
}
