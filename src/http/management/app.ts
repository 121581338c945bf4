import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import type { BrokerHost, Policy, VirtualHost } from "../../broker/index.ts";
import { accountRoutes, authorization, importAccounts, type ManagementAccounts } from "./accounts.ts";
import { allBindings, bindings } from "./bindings.ts";
import { ApiError, allVhosts, bodyOf, notFound, table, vhostOf, withSession } from "./context.ts";
import { exportDefinitions, importDefinitions, policyFrom } from "./definitions.ts";
import { get, publish } from "./messages.ts";
import { vhostRoutes } from "./vhosts.ts";
import { bindingView, exchangeView, NODE_NAME, policyView, queueView } from "./views.ts";

type Json = Record<string, unknown>;

/** What the management API is put over. */
export interface ManagementOptions {
  readonly host: BrokerHost;
  readonly accounts: ManagementAccounts;
  /** The version announced to AMQP clients; clients and tools steer by it. */
  readonly version: string;
  /** Open connections and channels as lists show them; absent: none are listed. */
  readonly connections?: () => readonly Json[];
  readonly channels?: () => readonly Json[];
  readonly listeners?: () => readonly { protocol: string; host: string; port: number }[];
  /** Largest request body, bytes (default 32 MiB: definitions and base64 payloads). */
  readonly maxBodyBytes?: number;
}

const MAX_BODY_BYTES = 32 * 1024 * 1024;

/**
 * The part of RabbitMQ's management HTTP API that clients' tools use: overview, vhosts, queues, exchanges, bindings,
 * policies, definitions, aliveness. Changes are answered after their commit; a crash before the answer leaves the
 * change done or not done, never half.
 *
 * @example
 * const app = managementApp({ host, accounts, version: "4.2.0" });
 * serve({ fetch: app.fetch, port: 15673, hostname: "127.0.0.1" });
 */
export function managementApp(options: ManagementOptions): Hono {
  const app = new Hono();
  const tooLarge = () => {
    throw new ApiError(
      400,
      "bad_request",
      `request body over ${options.maxBodyBytes ?? MAX_BODY_BYTES} bytes`,
    );
  };
  app.use(bodyLimit({ maxSize: options.maxBodyBytes ?? MAX_BODY_BYTES, onError: tooLarge }));
  authorization(app, options.accounts);
  app.onError((error, c) => {
    if (error instanceof ApiError) return c.json({ error: error.error, reason: error.message }, error.status);
    if ("getResponse" in error && typeof error.getResponse === "function") return error.getResponse();
    return c.json({ error: "internal_error", reason: "the request failed; see the broker's log" }, 500);
  });
  app.notFound((c) => c.json({ error: "Object Not Found", reason: "Not Found" }, 404));
  overview(app, options);
  node(app, options);
  vhostRoutes(app, options.host, options.accounts);
  accountRoutes(app, options.accounts, () => options.host.vhosts());
  queues(app, options.host);
  exchanges(app, options.host);
  bindings(app, options.host);
  policies(app, options.host, "policies", false);
  policies(app, options.host, "operator-policies", true);
  definitions(app, options);
  return app;
}

function overview(app: Hono, options: ManagementOptions): void {
  const { host } = options;
  app.get("/api/overview", (c) => {
    const all = allVhosts(host);
    const queues = all.flatMap((vhost) => vhost.queues());
    const sum = (of: (queue: (typeof queues)[number]) => number) =>
      queues.reduce((total, queue) => total + of(queue), 0);
    return c.json({
      management_version: options.version,
      rabbitmq_version: options.version,
      product_name: "Dead Letter Office",
      product_version: options.version,
      erlang_version: "none",
      cluster_name: NODE_NAME,
      node: NODE_NAME,
      rates_mode: "none",
      exchange_types: ["direct", "fanout", "headers", "topic"].map((name) => ({ name, enabled: true })),
      object_totals: {
        queues: queues.length,
        exchanges: all.reduce((total, vhost) => total + vhost.exchanges().length, 0),
        consumers: sum((queue) => queue.consumers),
        connections: options.connections?.().length ?? 0,
        channels: options.channels?.().length ?? 0,
      },
      queue_totals: {
        messages: sum((queue) => queue.ready + queue.unacked),
        messages_ready: sum((queue) => queue.ready),
        messages_unacknowledged: sum((queue) => queue.unacked),
      },
      message_stats: {},
      listeners: (options.listeners?.() ?? []).map((l) => ({
        node: NODE_NAME,
        protocol: l.protocol,
        ip_address: l.host,
        port: l.port,
      })),
    });
  });
}

function node(app: Hono, options: ManagementOptions): void {
  const { host } = options;
  app.get("/api/nodes", (c) =>
    c.json([
      {
        name: NODE_NAME,
        type: "disc",
        running: true,
        partitions: [],
        mem_alarm: host.alarms?.().includes("memory") ?? false,
        disk_free_alarm: host.alarms?.().includes("disk") ?? false,
      },
    ]),
  );
  app.get("/api/cluster-name", (c) => c.json({ name: NODE_NAME }));
  app.get("/api/connections", (c) => c.json(options.connections?.() ?? []));
  app.get("/api/channels", (c) => c.json(options.channels?.() ?? []));
  app.get("/api/consumers", (c) => c.json([]));
  app.get("/api/parameters", (c) => c.json([]));
  app.get("/api/health/checks/alarms", (c) => {
    const alarms = host.alarms?.() ?? [];
    return alarms.length === 0
      ? c.json({ status: "ok" })
      : c.json({ status: "failed", reason: `alarms: ${alarms.join(", ")}` }, 503);
  });
  app.get(
    "/api/health/checks/:check{virtual-hosts|local-alarms|node-is-quorum-critical|is-in-service}",
    (c) => c.json({ status: "ok" }),
  );
}

function queues(app: Hono, host: BrokerHost): void {
  const find = (c: Context) => {
    const vhost = vhostOf(host, c);
    const queue = vhost.queues().find((one) => one.record.name === c.req.param("name"));
    if (!queue) throw notFound();
    return { vhost, queue };
  };
  app.get("/api/queues", (c) =>
    c.json(allVhosts(host).flatMap((vhost) => vhost.queues().map((queue) => queueView(vhost, queue)))),
  );
  app.get("/api/queues/:vhost", (c) => {
    const vhost = vhostOf(host, c);
    return c.json(vhost.queues().map((queue) => queueView(vhost, queue)));
  });
  app.get("/api/queues/:vhost/:name", (c) => {
    const { vhost, queue } = find(c);
    return c.json(queueView(vhost, queue));
  });
  app.put("/api/queues/:vhost/:name", async (c) => {
    const vhost = vhostOf(host, c);
    const name = c.req.param("name");
    const body = await bodyOf(c);
    const existed = vhost.queues().some((queue) => queue.record.name === name);
    await withSession(vhost, (session) =>
      session.submit({
        type: "queue-declare",
        channel: session.channel,
        queue: name,
        durable: body["durable"] !== false,
        autoDelete: body["auto_delete"] === true,
        arguments: table(body["arguments"], "arguments"),
      }),
    );
    return c.body(null, existed ? 204 : 201);
  });
  app.delete("/api/queues/:vhost/:name", async (c) => {
    const { vhost, queue } = find(c);
    await withSession(vhost, (session) =>
      session.submit({
        type: "queue-delete",
        channel: session.channel,
        queue: queue.record.name,
        ifEmpty: c.req.query("if-empty") === "true",
        ifUnused: c.req.query("if-unused") === "true",
      }),
    );
    return c.body(null, 204);
  });
  app.delete("/api/queues/:vhost/:name/contents", async (c) => {
    const { vhost, queue } = find(c);
    await withSession(vhost, (session) =>
      session.submit({ type: "queue-purge", channel: session.channel, queue: queue.record.name }),
    );
    return c.body(null, 204);
  });
  app.post("/api/queues/:vhost/:name/get", async (c) => {
    const { vhost, queue } = find(c);
    return c.json(await get(vhost, queue.record.name, await bodyOf(c)));
  });
  app.get("/api/queues/:vhost/:name/bindings", (c) => {
    const { vhost, queue } = find(c);
    const own = allBindings(vhost).filter(
      (b) => b.destinationType === "queue" && b.destination === queue.record.name,
    );
    return c.json(own.map((b) => bindingView(vhost, b)));
  });
}

function exchanges(app: Hono, host: BrokerHost): void {
  const find = (c: Context) => {
    const vhost = vhostOf(host, c);
    // RabbitMQ's tools write the default exchange as amq.default in a URL.
    const name = c.req.param("name") === "amq.default" ? "" : c.req.param("name");
    const exchange = vhost.exchanges().find((one) => one.record.name === name);
    if (!exchange) throw notFound();
    return { vhost, exchange };
  };
  app.get("/api/exchanges", (c) =>
    c.json(allVhosts(host).flatMap((vhost) => vhost.exchanges().map((x) => exchangeView(vhost, x)))),
  );
  app.get("/api/exchanges/:vhost", (c) => {
    const vhost = vhostOf(host, c);
    return c.json(vhost.exchanges().map((exchange) => exchangeView(vhost, exchange)));
  });
  app.get("/api/exchanges/:vhost/:name", (c) => {
    const { vhost, exchange } = find(c);
    return c.json(exchangeView(vhost, exchange));
  });
  app.put("/api/exchanges/:vhost/:name", async (c) => {
    const vhost = vhostOf(host, c);
    const name = c.req.param("name");
    const body = await bodyOf(c);
    if (typeof body["type"] !== "string") throw new ApiError(400, "bad_request", "key_missing: type");
    const existed = vhost.exchanges().some((exchange) => exchange.record.name === name);
    await withSession(vhost, (session) =>
      session.submit({
        type: "exchange-declare",
        channel: session.channel,
        exchange: name,
        exchangeType: body["type"] as string,
        durable: body["durable"] !== false,
        autoDelete: body["auto_delete"] === true,
        internal: body["internal"] === true,
        arguments: table(body["arguments"], "arguments"),
      }),
    );
    return c.body(null, existed ? 204 : 201);
  });
  app.delete("/api/exchanges/:vhost/:name", async (c) => {
    const { vhost, exchange } = find(c);
    const ifUnused = c.req.query("if-unused") === "true";
    await withSession(vhost, (session) =>
      session.submit({
        type: "exchange-delete",
        channel: session.channel,
        exchange: exchange.record.name,
        ifUnused,
      }),
    );
    return c.body(null, 204);
  });
  app.post("/api/exchanges/:vhost/:name/publish", async (c) => {
    const { vhost, exchange } = find(c);
    return c.json(await publish(vhost, exchange.record.name, await bodyOf(c)));
  });
  app.get("/api/exchanges/:vhost/:name/bindings/:side{source|destination}", (c) => {
    const { vhost, exchange } = find(c);
    const { name } = exchange.record;
    const mine = allBindings(vhost).filter((b) =>
      c.req.param("side") === "source"
        ? b.source === name
        : b.destinationType === "exchange" && b.destination === name,
    );
    return c.json(mine.map((b) => bindingView(vhost, b)));
  });
}

function policies(
  app: Hono,
  host: BrokerHost,
  path: "policies" | "operator-policies",
  operator: boolean,
): void {
  const own = (vhost: VirtualHost) =>
    vhost.policies().filter((policy: Policy) => (policy.operator ?? false) === operator);
  app.get(`/api/${path}`, (c) =>
    c.json(allVhosts(host).flatMap((vhost) => own(vhost).map((p) => policyView(vhost, p)))),
  );
  app.get(`/api/${path}/:vhost`, (c) => {
    const vhost = vhostOf(host, c);
    return c.json(own(vhost).map((p) => policyView(vhost, p)));
  });
  const find = (c: Context) => {
    const vhost = vhostOf(host, c);
    return { vhost, policy: own(vhost).find((policy) => policy.name === c.req.param("name")) };
  };
  app.get(`/api/${path}/:vhost/:name`, (c) => {
    const { vhost, policy } = find(c);
    if (!policy) throw notFound();
    return c.json(policyView(vhost, policy));
  });
  app.put(`/api/${path}/:vhost/:name`, async (c) => {
    const { vhost, policy } = find(c);
    const wanted = policyFrom(c.req.param("name"), await bodyOf(c), operator);
    await withSession(vhost, (session) => session.submit({ type: "policy-set", policy: wanted }));
    return c.body(null, policy ? 204 : 201);
  });
  app.delete(`/api/${path}/:vhost/:name`, async (c) => {
    const { vhost, policy } = find(c);
    if (!policy) throw notFound();
    await withSession(vhost, (session) =>
      session.submit({ type: "policy-clear", name: policy.name, ...(operator ? { operator: true } : {}) }),
    );
    return c.body(null, 204);
  });
}

function definitions(app: Hono, options: ManagementOptions): void {
  const { host, version } = options;
  app.get("/api/definitions", (c) => c.json(exportDefinitions(host, version)));
  app.get("/api/definitions/:vhost", (c) => c.json(exportDefinitions(host, version, vhostOf(host, c))));
  app.post("/api/definitions", async (c) => {
    const body = await bodyOf(c);
    await importDefinitions(host, body);
    await importAccounts(options.accounts, body);
    return c.body(null, 204);
  });
  app.post("/api/definitions/:vhost", async (c) => {
    await importDefinitions(host, await bodyOf(c), vhostOf(host, c));
    return c.body(null, 204);
  });
}
