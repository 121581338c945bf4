import type { Hono } from "hono";
import type { BrokerHost } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import { accountOf, type ManagementAccounts } from "./accounts.ts";
import { ApiError, vhostOf, withSession } from "./context.ts";

const single = (): ApiError => new ApiError(400, "bad_request", "this broker has exactly one vhost");

const view = (name: string): Record<string, unknown> => ({
  name,
  description: "",
  tags: [],
  tracing: false,
  metadata: { description: "", tags: [] },
  default_queue_type: "classic",
});

/** `/api/vhosts` and the aliveness test. */
export function vhostRoutes(app: Hono, host: BrokerHost, accounts: ManagementAccounts): void {
  app.get("/api/vhosts", (c) => c.json(host.vhosts().map(view)));
  app.get("/api/vhosts/:vhost", (c) => c.json(view(vhostOf(host, c).name)));
  app.put("/api/vhosts/:vhost", async (c) => {
    const name = c.req.param("vhost");
    if (host.vhost(name) !== undefined) return c.body(null, 204);
    if (!host.createVhost) throw single();
    // Answered once it is durable.
    await withSession(host.createVhost(name), () => {});
    await accounts.vhostMade?.(name, accountOf(c).name);
    return c.body(null, 201);
  });
  app.delete("/api/vhosts/:vhost", async (c) => {
    const { name } = vhostOf(host, c);
    if (!host.deleteVhost) throw single();
    // Whoever finds the name again shall not find the old permissions: those go first.
    if (name !== "/") await accounts.vhostGone?.(name);
    try {
      host.deleteVhost(name);
    } catch (error) {
      if (error instanceof DloError && error.code === "REFUSED") {
        throw new ApiError(400, "bad_request", error.message);
      }
      throw error;
    }
    const any = host.vhost("/");
    if (any !== undefined) await withSession(any, () => {});
    return c.body(null, 204);
  });
  app.get("/api/aliveness-test/:vhost", async (c) => {
    const vhost = vhostOf(host, c);
    const queue = "aliveness-test";
    const message = await withSession(vhost, (session) => {
      const { channel } = session;
      session.submit({ type: "queue-declare", channel, queue, autoDelete: false });
      session.submit({
        type: "publish",
        channel,
        exchange: "",
        routingKey: queue,
        properties: {},
        body: new Uint8Array([1]),
      });
      return session.submit({ type: "get", channel, queue, noAck: true });
    });
    return message.type === "got"
      ? c.json({ status: "ok" })
      : c.json({ status: "failed", reason: "the test message did not come back" }, 500);
  });
}
