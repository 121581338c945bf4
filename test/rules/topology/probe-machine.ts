/** The embedded broker's machine as a broker to probe: time is a number that is moved. */
import { Broker, type BrokerOptions, HeaderTable, type Policy } from "../../../src/broker/index.ts";
import type { Definitions, ProbeBroker } from "./probe.ts";

type Args = Readonly<Record<string, unknown>>;

export function machineWith(
  definitions: Definitions,
  compat: NonNullable<BrokerOptions["compat"]>,
): ProbeBroker {
  const broker = new Broker({ compat });
  let now = 1_800_000_000_000;
  broker.apply({ type: "open-channel", connection: 1, channel: 1 }, now);
  for (const raw of definitions.exchanges) {
    const exchange = raw as { name: string; type: string; internal: boolean; arguments: Args };
    broker.apply(
      {
        type: "exchange-declare",
        channel: 1,
        exchange: exchange.name,
        exchangeType: exchange.type,
        durable: true,
        internal: exchange.internal,
        arguments: HeaderTable.fromObject(exchange.arguments),
      },
      now,
    );
  }
  for (const queue of definitions.queues) {
    broker.apply(
      {
        type: "queue-declare",
        channel: 1,
        queue: queue.name,
        durable: true,
        arguments: HeaderTable.fromObject(queue.arguments),
      },
      now,
    );
  }
  for (const binding of definitions.bindings) bind(broker, binding, now);
  for (const policy of policiesOf(definitions)) broker.apply({ type: "policy-set", policy }, now);
  const settle = (): void => {
    for (let rounds = 0; broker.nextWakeAt() <= now && rounds < 1000; rounds += 1)
      broker.apply({ type: "tick" }, now);
  };
  const been = new Map<string, Set<string>>();
  const look = (): void => {
    for (const queue of definitions.queues) {
      for (const { content } of broker.peek(queue.name, 100)) {
        const id = content.properties.messageId ?? "";
        const known = been.get(id) ?? new Set();
        been.set(id, known.add(queue.name));
      }
    }
  };
  return {
    version: compat === "4.x" ? "4.1.0" : "3.10.8",
    async publish(exchange, key, id) {
      const properties = { messageId: id, deliveryMode: 2 };
      broker.apply(
        { type: "publish", channel: 1, exchange, routingKey: key, properties, body: new Uint8Array(1) },
        now,
      );
      look();
      settle();
      look();
    },
    async get(queue) {
      const { reply } = broker.apply({ type: "get", channel: 1, queue }, now);
      if (reply.type !== "got") return null;
      return { id: reply.content.properties.messageId ?? "", tag: reply.deliveryTag };
    },
    async ack(tag) {
      broker.apply({ type: "ack", channel: 1, deliveryTag: tag }, now);
    },
    async reject(tag, requeue) {
      been.clear();
      broker.apply({ type: "reject", channel: 1, deliveryTag: tag, requeue }, now);
      look();
      settle();
      look();
    },
    visited: (id) => been.get(id) ?? new Set(),
    async wait(ms) {
      const until = now + ms;
      while (broker.nextWakeAt() <= until) {
        now = Math.max(now, broker.nextWakeAt());
        broker.apply({ type: "tick" }, now);
        look();
      }
      now = until;
      look();
    },
  };
}

function bind(broker: Broker, binding: Definitions["bindings"][number], now: number): void {
  const table = HeaderTable.fromObject((binding as unknown as { arguments: Args }).arguments ?? {});
  const shared = { channel: 1, routingKey: binding.routing_key, arguments: table };
  if (binding.destination_type === "exchange") {
    broker.apply(
      { type: "exchange-bind", source: binding.source, destination: binding.destination, ...shared },
      now,
    );
  } else {
    broker.apply(
      { type: "queue-bind", queue: binding.destination, exchange: binding.source, ...shared },
      now,
    );
  }
}

function policiesOf(definitions: Definitions): Policy[] {
  const one = (raw: Record<string, unknown>, operator: boolean): Policy => ({
    name: String(raw["name"]),
    pattern: String(raw["pattern"]),
    applyTo: (raw["apply-to"] as Policy["applyTo"] | undefined) ?? "all",
    priority: Number(raw["priority"] ?? 0),
    definition: raw["definition"] as Policy["definition"],
    ...(operator ? { operator } : {}),
  });
  return [
    ...(definitions.policies ?? []).map((raw) => one(raw as Record<string, unknown>, false)),
    ...(definitions.parameters ?? [])
      .map((raw) => raw as { component: string; name: string; value: Record<string, unknown> })
      .filter((raw) => raw.component === "operator_policy")
      .map((raw) => one({ ...raw.value, name: raw.name }, true)),
  ];
}
