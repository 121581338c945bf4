import type { BrokerHost, Policy, VirtualHost } from "../../broker/index.ts";
import { ApiError, type Session, table, withSession } from "./context.ts";
import { bindingView, exchangeView, policyView, queueView } from "./views.ts";

type Json = Record<string, unknown>;

const pick = (view: Json, keys: readonly string[]) => Object.fromEntries(keys.map((key) => [key, view[key]]));
const isBuiltIn = (name: string) => name === "" || name.startsWith("amq.");

/** One virtual host's topology as a definitions file holds it: no exclusive queues, no built-in exchanges. */
function exported(
  vhost: VirtualHost,
): Record<"queues" | "exchanges" | "bindings" | "policies" | "operator_policies", Json[]> {
  const kept = vhost.queues().filter((queue) => !queue.record.exclusive);
  const names = new Set(kept.map((queue) => queue.record.name));
  return {
    queues: kept.map((queue) =>
      pick(queueView(vhost, queue), ["name", "vhost", "durable", "auto_delete", "arguments"]),
    ),
    exchanges: vhost
      .exchanges()
      .filter((exchange) => !isBuiltIn(exchange.record.name))
      .map((exchange) =>
        pick(exchangeView(vhost, exchange), [
          "name",
          "vhost",
          "type",
          "durable",
          "auto_delete",
          "internal",
          "arguments",
        ]),
      ),
    bindings: vhost
      .bindings()
      .filter((b) => b.source !== "" && (b.destinationType === "exchange" || names.has(b.destination)))
      .map((b) =>
        pick(bindingView(vhost, b), [
          "source",
          "vhost",
          "destination",
          "destination_type",
          "routing_key",
          "arguments",
        ]),
      ),
    policies: vhost
      .policies()
      .filter((p) => !p.operator)
      .map((p) => policyView(vhost, p)),
    operator_policies: vhost
      .policies()
      .filter((p) => p.operator)
      .map((p) => policyView(vhost, p)),
  };
}

/** `GET /api/definitions`, of the whole broker or of one virtual host. Holds no users and no secrets. */
export function exportDefinitions(host: BrokerHost, version: string, only?: VirtualHost): Json {
  const vhosts = only ? [only] : host.vhosts().map((name) => host.vhost(name)!);
  const all = vhosts.map(exported);
  const join = (key: keyof ReturnType<typeof exported>) =>
    all
      .flatMap((one) => one[key])
      .map((item) => {
        if (!only) return item;
        const { vhost: _, ...rest } = item;
        return rest;
      });
  return {
    rabbit_version: version,
    rabbitmq_version: version,
    product_name: "Dead Letter Office",
    product_version: version,
    ...(only ? {} : { vhosts: vhosts.map(({ name }) => ({ name })) }),
    parameters: join("operator_policies").map((policy) => ({
      component: "operator_policy",
      ...(policy["vhost"] === undefined ? {} : { vhost: policy["vhost"] }),
      name: policy["name"],
      value: {
        pattern: policy["pattern"],
        "apply-to": policy["apply-to"],
        priority: policy["priority"],
        definition: policy["definition"],
      },
    })),
    policies: join("policies"),
    queues: join("queues"),
    exchanges: join("exchanges"),
    bindings: join("bindings"),
  };
}

const APPLY_TO = ["all", "queues", "exchanges", "classic_queues", "quorum_queues"];

/** A policy as the API takes it; refused with the reason when it is not one. */
export function policyFrom(name: string, body: Json, operator: boolean): Policy {
  const { pattern, definition, priority = 0, "apply-to": applyTo = "all" } = body;
  const refuse = (reason: string) => new ApiError(400, "bad_request", reason);
  if (typeof pattern !== "string") throw refuse("key_missing: pattern");
  if (definition === null || typeof definition !== "object" || Array.isArray(definition))
    throw refuse("key_missing: definition");
  if (!Number.isSafeInteger(priority))
    throw refuse(`priority must be a whole number, got ${JSON.stringify(priority)}`);
  if (!APPLY_TO.includes(applyTo as string))
    throw refuse(`apply-to must be one of ${APPLY_TO.join(", ")}, got ${JSON.stringify(applyTo)}`);
  return {
    name,
    pattern,
    priority: priority as number,
    applyTo: applyTo as Policy["applyTo"],
    definition: definition as Policy["definition"],
    ...(operator ? { operator: true } : {}),
  };
}

const list = (body: Json, key: string): Json[] => (Array.isArray(body[key]) ? (body[key] as Json[]) : []);
const flag = (item: Json, key: string) => item[key] === true;

/** Everything of one virtual host in dependency order: policies, exchanges, queues, bindings. */
function importInto(session: Session, vhost: VirtualHost, mine: (item: Json) => boolean, body: Json): void {
  const { channel } = session;
  for (const item of list(body, "policies").filter(mine))
    session.submit({ type: "policy-set", policy: policyFrom(String(item["name"]), item, false) });
  for (const item of list(body, "parameters").filter((p) => mine(p) && p["component"] === "operator_policy"))
    session.submit({
      type: "policy-set",
      policy: policyFrom(String(item["name"]), item["value"] as Json, true),
    });
  for (const x of list(body, "exchanges").filter(mine))
    session.submit({
      type: "exchange-declare",
      channel,
      exchange: String(x["name"]),
      exchangeType: String(x["type"]),
      durable: flag(x, "durable"),
      autoDelete: flag(x, "auto_delete"),
      internal: flag(x, "internal"),
      arguments: table(x["arguments"], "arguments"),
    });
  for (const q of list(body, "queues").filter(mine))
    session.submit({
      type: "queue-declare",
      channel,
      queue: String(q["name"]),
      durable: flag(q, "durable"),
      autoDelete: flag(q, "auto_delete"),
      arguments: table(q["arguments"], "arguments"),
    });
  const queues = new Set(vhost.queues().map((queue) => queue.record.name));
  const exchanges = new Set(vhost.exchanges().map((exchange) => exchange.record.name));
  for (const b of list(body, "bindings").filter(mine)) {
    const [source, destination, routingKey] = [
      String(b["source"]),
      String(b["destination"]),
      String(b["routing_key"] ?? ""),
    ];
    const toQueue = b["destination_type"] !== "exchange";
    // As RabbitMQ: a binding from or to something that is not there is dropped without an error.
    if (source === "" || !exchanges.has(source) || !(toQueue ? queues : exchanges).has(destination)) continue;
    const args = table(b["arguments"], "arguments");
    if (toQueue)
      session.submit({
        type: "queue-bind",
        channel,
        queue: destination,
        exchange: source,
        routingKey,
        arguments: args,
      });
    else session.submit({ type: "exchange-bind", channel, source, destination, routingKey, arguments: args });
  }
}

/**
 * `POST /api/definitions`. Adds and never removes. Each virtual host is one commit; a refused object ends the
 * import there, with what came before it kept, as on RabbitMQ.
 */
export async function importDefinitions(host: BrokerHost, body: Json, only?: VirtualHost): Promise<void> {
  if (only) return withSession(only, (session) => importInto(session, only, () => true, body));
  for (const item of list(body, "vhosts")) {
    const name = String(item["name"]);
    if (!host.vhost(name) && !host.createVhost)
      throw new ApiError(400, "bad_request", `this broker has no vhost '${name}' and cannot make one`);
    host.createVhost?.(name);
  }
  for (const name of host.vhosts()) {
    const vhost = host.vhost(name)!;
    await withSession(vhost, (session) =>
      importInto(session, vhost, (item) => (item["vhost"] ?? "/") === name, body),
    );
  }
}
