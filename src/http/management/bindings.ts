import type { Context, Hono } from "hono";
import type { BindingRecord, BrokerHost, VirtualHost } from "../../broker/index.ts";
import { allVhosts, bodyOf, notFound, table, vhostOf, withSession } from "./context.ts";
import { bindingView, propertiesKey } from "./views.ts";

/** The declared bindings and, as RabbitMQ lists them, one of the default exchange for every queue. */
export function allBindings(vhost: VirtualHost): BindingRecord[] {
  const { queues, bindings } = { queues: vhost.queues(), bindings: vhost.bindings() };
  const byName = queues.map(({ record }) => ({
    source: "",
    destination: record.name,
    destinationType: "queue" as const,
    routingKey: record.name,
    arguments: table(undefined, "arguments"),
  }));
  return [...byName, ...bindings.filter((binding) => binding.source !== "")];
}

/** `/api/bindings`. */
export function bindings(app: Hono, host: BrokerHost): void {
  app.get("/api/bindings", (c) =>
    c.json(allVhosts(host).flatMap((vhost) => allBindings(vhost).map((b) => bindingView(vhost, b)))),
  );
  app.get("/api/bindings/:vhost", (c) => {
    const vhost = vhostOf(host, c);
    return c.json(allBindings(vhost).map((b) => bindingView(vhost, b)));
  });
  pairs(app, host);
}

function pairs(app: Hono, host: BrokerHost): void {
  const PAIR = "/api/bindings/:vhost/e/:source/:kind{q|e}/:destination";
  const pairOf = (c: Context) => {
    const vhost = vhostOf(host, c);
    const source = c.req.param("source") === "amq.default" ? "" : c.req.param("source")!;
    const destination = c.req.param("destination")!;
    const destinationType = c.req.param("kind") === "q" ? ("queue" as const) : ("exchange" as const);
    const mine = allBindings(vhost).filter(
      (b) => b.source === source && b.destination === destination && b.destinationType === destinationType,
    );
    return { vhost, source, destination, destinationType, mine };
  };
  app.get(PAIR, (c) => {
    const { vhost, mine } = pairOf(c);
    return c.json(mine.map((b) => bindingView(vhost, b)));
  });
  app.post(PAIR, async (c) => {
    const { vhost, source, destination, destinationType } = pairOf(c);
    const body = await bodyOf(c);
    const routingKey = String(body["routing_key"] ?? "");
    const args = table(body["arguments"], "arguments");
    await change(vhost, "bind", { source, destination, destinationType, routingKey, arguments: args });
    c.header("location", `${c.req.path}/${propertiesKey({ routingKey, arguments: args })}`);
    return c.body(null, 201);
  });
  app.get(`${PAIR}/:key`, (c) => {
    const { vhost, mine } = pairOf(c);
    const found = mine.find((b) => named(c, b));
    if (!found) throw notFound();
    return c.json(bindingView(vhost, found));
  });
  app.delete(`${PAIR}/:key`, async (c) => {
    const { vhost, mine } = pairOf(c);
    const found = mine.find((b) => named(c, b));
    if (!found) throw notFound();
    await change(vhost, "unbind", found);
    return c.body(null, 204);
  });
}

function change(vhost: VirtualHost, how: "bind" | "unbind", binding: BindingRecord): Promise<unknown> {
  const { source, destination, destinationType, routingKey, arguments: args } = binding;
  return withSession(vhost, (session) =>
    destinationType === "queue"
      ? session.submit({
          type: `queue-${how}`,
          channel: session.channel,
          queue: destination,
          exchange: source,
          routingKey,
          arguments: args,
        })
      : session.submit({
          type: `exchange-${how}`,
          channel: session.channel,
          source,
          destination,
          routingKey,
          arguments: args,
        }),
  );
}

/**
 * Whether a request names this binding. Tools escape the properties key for the URL, so it arrives escaped twice; a
 * person who pastes it from a listing sends it as it is.
 */
function named(c: Context, binding: BindingRecord): boolean {
  const key = propertiesKey(binding);
  return c.req.param("key") === key || new URL(c.req.url).pathname.split("/").at(-1) === key;
}
