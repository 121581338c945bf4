import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";

let server: StartedBroker;
beforeEach(async () => {
  server = await startBroker({ port: 0, management: true });
});
afterEach(() => server.close());

const AUTH = `Basic ${Buffer.from("guest:guest").toString("base64")}`;

async function call(method: string, path: string, body?: unknown, auth = AUTH) {
  const response = await fetch(`${server.managementUrl}/api${path}`, {
    method,
    headers: { authorization: auth, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === "" ? null : JSON.parse(text) };
}

describe("the management API", () => {
  it("lets nobody in without the right password, and says so in RabbitMQ's words", async () => {
    const wrong = await call(
      "GET",
      "/overview",
      undefined,
      `Basic ${Buffer.from("guest:wrong").toString("base64")}`,
    );
    expect([wrong.status, wrong.body]).toEqual([401, { error: "not_authorized", reason: "Login failed" }]);
    expect((await call("GET", "/whoami")).body).toMatchObject({ name: "guest", tags: ["administrator"] });
  });

  it("declares, lists and deletes queues, with 201 for new and 204 for the same again", async () => {
    const body = { durable: true, arguments: { "x-dead-letter-exchange": "dlx", "x-message-ttl": 60000 } };
    expect((await call("PUT", "/queues/%2F/orders%2Feu", body)).status).toBe(201);
    expect((await call("PUT", "/queues/%2F/orders%2Feu", body)).status).toBe(204);
    const different = await call("PUT", "/queues/%2F/orders%2Feu", { ...body, arguments: {} });
    expect(different.status).toBe(400);
    expect(different.body.error).toBe("bad_request");
    expect(different.body.reason).toContain(
      "inequivalent arg 'x-message-ttl' for queue 'orders/eu' in vhost '/': received none but current is",
    );
    expect((await call("GET", "/queues/%2F/orders%2Feu")).body).toMatchObject({
      name: "orders/eu",
      vhost: "/",
      type: "classic",
      durable: true,
      auto_delete: false,
      arguments: body.arguments,
      messages: 0,
      messages_ready: 0,
      consumers: 0,
    });
    expect((await call("GET", "/queues")).body.map((queue: { name: string }) => queue.name)).toEqual([
      "orders/eu",
    ]);
    expect((await call("DELETE", "/queues/%2F/orders%2Feu")).status).toBe(204);
    expect((await call("GET", "/queues/%2F/orders%2Feu")).status).toBe(404);
  });

  it("publishes, gets with requeue and for good, and says whether a message was routed", async () => {
    await call("PUT", "/queues/%2F/q", {});
    const message = {
      routing_key: "q",
      payload: Buffer.from([0xff, 0, 0xfe]).toString("base64"),
      payload_encoding: "base64",
    };
    const properties = { message_id: "m1", delivery_mode: 2, headers: { n: 1, tenant: "a" } };
    expect(
      (await call("POST", "/exchanges/%2F/amq.default/publish", { ...message, properties })).body,
    ).toEqual({ routed: true });
    const lost = { ...message, routing_key: "nowhere", properties: {} };
    expect((await call("POST", "/exchanges/%2F/amq.default/publish", lost)).body).toEqual({ routed: false });
    const look = { count: 5, ackmode: "reject_requeue_true", encoding: "auto" };
    const [first] = (await call("POST", "/queues/%2F/q/get", look)).body;
    expect(first).toMatchObject({
      payload: message.payload,
      payload_encoding: "base64",
      payload_bytes: 3,
      redelivered: false,
      exchange: "",
      routing_key: "q",
      properties,
    });
    const taken = (
      await call("POST", "/queues/%2F/q/get", { count: 5, ackmode: "ack_requeue_false", encoding: "auto" })
    ).body;
    expect(taken).toHaveLength(1);
    expect(taken[0].redelivered).toBe(true);
    expect((await call("GET", "/queues/%2F/q")).body.messages).toBe(0);
  });

  it("keeps the order of what was looked at", async () => {
    await call("PUT", "/queues/%2F/q", {});
    for (const payload of ["a", "b", "c"])
      await call("POST", "/exchanges/%2F/amq.default/publish", {
        routing_key: "q",
        payload,
        payload_encoding: "string",
        properties: {},
      });
    const look = { count: 2, ackmode: "ack_requeue_true", encoding: "auto" };
    for (let i = 0; i < 3; i++) {
      const seen = (await call("POST", "/queues/%2F/q/get", look)).body.map(
        (m: { payload: string }) => m.payload,
      );
      expect(seen).toEqual(["a", "b"]);
    }
  });

  it("binds and unbinds by the key it gives back, whatever is in the routing key", async () => {
    await call("PUT", "/exchanges/%2F/x", { type: "topic" });
    await call("PUT", "/queues/%2F/q", {});
    for (const routing_key of ["a.b", "", "ü/~#", "*.#"]) {
      const made = await call("POST", "/bindings/%2F/e/x/q/q", { routing_key, arguments: {} });
      expect(made.status).toBe(201);
    }
    await call("POST", "/bindings/%2F/e/x/q/q", { routing_key: "k", arguments: { mark: 1 } });
    const listed = (await call("GET", "/bindings/%2F/e/x/q/q")).body;
    expect(listed).toHaveLength(5);
    for (const { properties_key } of listed)
      expect(
        (await call("DELETE", `/bindings/%2F/e/x/q/q/${encodeURIComponent(properties_key)}`)).status,
      ).toBe(204);
    expect((await call("GET", "/bindings/%2F/e/x/q/q")).body).toEqual([]);
    expect((await call("GET", "/queues/%2F/q/bindings")).body).toMatchObject([
      { source: "", routing_key: "q" },
    ]);
  });

  it("sets policies that work: a dead-letter exchange by policy catches a reject", async () => {
    await call("PUT", "/queues/%2F/jobs", {});
    await call("PUT", "/queues/%2F/dead", {});
    const policy = {
      pattern: "^jobs$",
      definition: { "dead-letter-exchange": "", "dead-letter-routing-key": "dead" },
      priority: 1,
      "apply-to": "queues",
    };
    expect((await call("PUT", "/policies/%2F/dlx", policy)).status).toBe(201);
    expect((await call("GET", "/queues/%2F/jobs")).body).toMatchObject({
      policy: "dlx",
      effective_policy_definition: policy.definition,
    });
    await call("POST", "/exchanges/%2F/amq.default/publish", {
      routing_key: "jobs",
      payload: "x",
      payload_encoding: "string",
      properties: {},
    });
    await call("POST", "/queues/%2F/jobs/get", {
      count: 1,
      ackmode: "reject_requeue_false",
      encoding: "auto",
    });
    const [letter] = (
      await call("POST", "/queues/%2F/dead/get", { count: 1, ackmode: "ack_requeue_false", encoding: "auto" })
    ).body;
    expect(letter.properties.headers["x-death"][0]).toMatchObject({
      queue: "jobs",
      reason: "rejected",
      count: 1,
    });
    expect((await call("DELETE", "/policies/%2F/dlx")).status).toBe(204);
    expect((await call("GET", "/queues/%2F/jobs")).body.policy).toBeNull();
    const bad = await call("PUT", "/policies/%2F/bad", { pattern: "^(", definition: { "message-ttl": 1 } });
    expect(bad.status).toBe(400);
  });

  it("exports definitions that, imported into a fresh broker, make the same topology", async () => {
    await call("PUT", "/exchanges/%2F/dlx", { type: "fanout", durable: true });
    await call("PUT", "/queues/%2F/jobs", {
      arguments: { "x-dead-letter-exchange": "dlx", "x-queue-type": "quorum" },
    });
    await call("PUT", "/queues/%2F/dead", {});
    await call("POST", "/bindings/%2F/e/dlx/q/dead", { routing_key: "", arguments: {} });
    await call("PUT", "/policies/%2F/p", {
      pattern: "^dead$",
      definition: { "max-length": 5 },
      "apply-to": "queues",
    });
    const exported = (await call("GET", "/definitions")).body;
    expect(exported.queues).toHaveLength(2);
    expect(exported.exchanges.map((x: { name: string }) => x.name)).toEqual(["dlx"]);
    expect(JSON.stringify(exported)).not.toContain("password");
    const first = server;
    server = await startBroker({ port: 0, management: true });
    await first.close();
    expect((await call("POST", "/definitions", exported)).status).toBe(204);
    expect((await call("GET", "/definitions")).body).toEqual(exported);
    expect((await call("POST", "/definitions", "{")).body).toMatchObject({ error: "bad_request" });
  });

  it("answers what monitors ask", async () => {
    expect((await call("GET", "/aliveness-test/%2F")).body).toEqual({ status: "ok" });
    expect((await call("GET", "/health/checks/alarms")).body).toEqual({ status: "ok" });
    expect((await call("GET", "/overview")).body.queue_totals.messages).toBe(0);
    expect((await call("GET", "/nothing/here")).body).toEqual({
      error: "Object Not Found",
      reason: "Not Found",
    });
    expect((await call("GET", "/queues/no-such-vhost")).status).toBe(404);
  });
});

const ADMIN = ["/usr/bin/rabbitmqadmin", "/usr/local/bin/rabbitmqadmin"].find(existsSync);

it("RabbitMQ's own rabbitmqadmin works: declare, list, publish, get, purge, delete", async (ctx) => {
  if (!ADMIN) return ctx.skip("rabbitmqadmin not found: install rabbitmq-server");
  const { port } = new URL(server.managementUrl!);
  const admin = async (...args: string[]) =>
    (
      await promisify(execFile)("python3", [ADMIN, "-H", "127.0.0.1", "-P", port, "-f", "tsv", ...args])
    ).stdout.trim();
  expect(await admin("declare", "exchange", "name=orders", "type=topic")).toContain("exchange declared");
  expect(
    await admin(
      "declare",
      "queue",
      "name=jobs",
      'arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"dead"}',
    ),
  ).toContain("queue declared");
  expect(await admin("declare", "queue", "name=dead")).toContain("queue declared");
  expect(
    await admin("declare", "binding", "source=orders", "destination=jobs", "routing_key=order.#"),
  ).toContain("binding declared");
  expect(await admin("publish", "exchange=orders", "routing_key=order.new", "payload=hello")).toContain(
    "Message published",
  );
  expect(await admin("publish", "exchange=orders", "routing_key=other", "payload=lost")).toContain(
    "NOT routed",
  );
  expect((await admin("list", "queues", "name", "messages")).split("\n").slice(1).sort()).toEqual([
    "dead\t0",
    "jobs\t1",
  ]);
  expect(await admin("get", "queue=jobs", "ackmode=reject_requeue_false")).toContain("hello");
  expect((await admin("list", "queues", "name", "messages")).split("\n").slice(1).sort()).toEqual([
    "dead\t1",
    "jobs\t0",
  ]);
  expect(await admin("list", "bindings", "source", "destination", "routing_key")).toContain(
    "orders\tjobs\torder.#",
  );
  expect(await admin("declare", "user", "name=app", "password=s3cret", "tags=management")).toContain(
    "user declared",
  );
  const wants = ["vhost=/", "user=app", "configure=", "write=.*", "read=.*"];
  expect(await admin("declare", "permission", ...wants)).toContain("permission declared");
  expect(await admin("list", "users", "name", "tags")).toContain("app\tmanagement");
  expect(await admin("list", "permissions", "user", "vhost", "write")).toContain("app\t/\t.*");
  expect(await admin("delete", "user", "name=app")).toContain("user deleted");
  expect(await admin("purge", "queue", "name=dead")).toContain("queue purged");
  expect(await admin("delete", "queue", "name=jobs")).toContain("queue deleted");
  expect((await admin("list", "queues", "name")).split("\n").slice(1)).toEqual(["dead"]);
});
