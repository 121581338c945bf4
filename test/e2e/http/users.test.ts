// Users, permissions and virtual hosts made over the management API: in force at once, and after a restart.
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import amqplib from "amqplib";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type StartedBroker, type StartOptions, startBroker } from "../../../src/dev/index.ts";

let folder: string;
let server: StartedBroker;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "dlo-users-"));
  await start();
});
afterEach(async () => {
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

async function start(options: StartOptions = {}): Promise<void> {
  server = await startBroker({ data: folder, management: true, ...options });
}
async function restart(options: StartOptions = {}): Promise<void> {
  await server.close();
  await start(options);
}

async function call(method: string, path: string, body?: unknown, as = "guest:guest") {
  const response = await fetch(`${server.managementUrl}/api${path}`, {
    method,
    headers: { authorization: `Basic ${Buffer.from(as).toString("base64")}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: text === "" ? null : JSON.parse(text) };
}

/** What comes of a login: "in", or the refusal. */
const login = async (as: string, vhost = "%2F"): Promise<string> => {
  try {
    const connection = await amqplib.connect(`amqp://${as}@127.0.0.1:${server.port}/${vhost}`);
    await connection.close();
    return "in";
  } catch (error) {
    return (
      /\d\d\d \([A-Z-]+\)|ACCESS_REFUSED|NOT_ALLOWED/.exec((error as Error).message)?.[0] ?? String(error)
    );
  }
};

const ALL = { configure: ".*", write: ".*", read: ".*" };

it("a user made over the API gets in where permitted, before and after a restart; the file holds no password", async () => {
  const user = { password: "s3cret-word", tags: "monitoring" };
  expect((await call("PUT", "/users/app", user)).status).toBe(201);
  expect((await call("PUT", "/users/app", user)).status).toBe(204);
  expect(await login("app:s3cret-word")).not.toBe("in");
  expect((await call("PUT", "/vhosts/shop")).status).toBe(201);
  expect((await call("PUT", "/permissions/shop/app", { ...ALL, configure: "^mine" })).status).toBe(201);
  expect((await call("PUT", "/permissions/shop/app", { ...ALL, configure: "^mine" })).status).toBe(204);
  const holds = async () => {
    expect(await login("app:s3cret-word", "shop")).toBe("in");
    expect(await login("app:s3cret-word")).not.toBe("in");
    expect(await login("app:wrong", "shop")).not.toBe("in");
    expect((await call("GET", "/users/app")).body).toEqual({ name: "app", tags: ["monitoring"], limits: {} });
    expect((await call("GET", "/permissions/shop/app")).body).toEqual({
      user: "app",
      vhost: "shop",
      configure: "^mine",
      write: ".*",
      read: ".*",
    });
    expect((await call("GET", "/users/app/permissions")).body).toHaveLength(1);
    expect((await call("GET", "/vhosts/shop/permissions")).body).toHaveLength(2);
    expect((await call("GET", "/vhosts")).body.map((one: { name: string }) => one.name)).toEqual([
      "/",
      "shop",
    ]);
  };
  await holds();
  await restart();
  await holds();
  expect(JSON.stringify((await call("GET", "/definitions")).body)).not.toMatch(/hash|scrypt|s3cret/);
  expect((await call("DELETE", "/permissions/shop/app")).status).toBe(204);
  expect((await call("DELETE", "/permissions/shop/app")).status).toBe(404);
  expect(await login("app:s3cret-word", "shop")).not.toBe("in");
  await restart();
  expect(await login("app:s3cret-word", "shop")).not.toBe("in");
  expect((await call("DELETE", "/users/app")).status).toBe(204);
  expect((await call("DELETE", "/users/app")).status).toBe(404);
  await restart();
  expect((await call("GET", "/users/app")).status).toBe(404);
  await server.close();
  for (const suffix of ["", "-wal"]) {
    const bytes = Buffer.from(readIfThere(join(folder, `dlo.db${suffix}`)));
    expect(bytes.includes("s3cret-word")).toBe(false);
  }
});

const readIfThere = (path: string): Uint8Array => {
  try {
    return readFileSync(path);
  } catch {
    return new Uint8Array(0);
  }
};

it("a virtual host that was deleted takes its permissions along", async () => {
  await call("PUT", "/vhosts/shop");
  await call("PUT", "/users/app", { password: "p", tags: "" });
  await call("PUT", "/permissions/shop/app", ALL);
  expect((await call("DELETE", "/vhosts/shop")).status).toBe(204);
  await restart();
  expect((await call("GET", "/vhosts/shop")).status).toBe(404);
  await call("PUT", "/vhosts/shop");
  expect(await login("app:p", "shop")).not.toBe("in");
  expect((await call("DELETE", "/vhosts/%2F")).status).toBe(400);
});

it("guest can be deleted for good, or given another password", async () => {
  await call("PUT", "/users/root", { password: "r", tags: ["administrator"] });
  expect((await call("PUT", "/users/guest", { password: "other", tags: "administrator" })).status).toBe(204);
  await restart();
  expect([(await login("guest:guest")) === "in", await login("guest:other")]).toEqual([false, "in"]);
  expect((await call("DELETE", "/users/guest", undefined, "root:r")).status).toBe(204);
  expect(await login("guest:other")).not.toBe("in");
  await restart();
  expect(await login("guest:guest")).not.toBe("in");
  expect((await call("GET", "/users", undefined, "root:r")).body).toEqual([
    { name: "root", tags: ["administrator"], limits: {} },
  ]);
});

it("guest's permissions can be narrowed, also over a restart", async () => {
  await call("PUT", "/vhosts/shop");
  expect((await call("DELETE", "/permissions/shop/guest")).status).toBe(204);
  expect([await login("guest:guest"), await login("guest:guest", "shop")]).toEqual([
    "in",
    expect.not.stringMatching(/^in$/),
  ]);
  await restart();
  expect([await login("guest:guest"), await login("guest:guest", "shop")]).toEqual([
    "in",
    expect.not.stringMatching(/^in$/),
  ]);
});

it("takes RabbitMQ's own hashes, and users of a definitions file", async () => {
  const salt = Buffer.from("a1b2c3d4", "hex");
  const hash = (algorithm: string) =>
    Buffer.concat([salt, createHash(algorithm).update(salt).update("p").digest()]).toString("base64");
  const sha512 = { password_hash: hash("sha512"), hashing_algorithm: "rabbit_password_hashing_sha512" };
  await call("PUT", "/users/a", { password_hash: hash("sha256"), tags: [] });
  const imported = await call("POST", "/definitions", {
    vhosts: [{ name: "new" }],
    users: [{ name: "b", ...sha512, tags: ["administrator"] }],
    permissions: [{ user: "b", vhost: "new", ...ALL }],
  });
  expect(imported.status).toBe(204);
  await call("PUT", "/permissions/%2F/a", ALL);
  await call("PUT", "/users/nobody", { password_hash: "", tags: "" });
  await call("PUT", "/permissions/%2F/nobody", ALL);
  for (let i = 0; i < 2; i++) {
    expect([await login("a:p"), await login("b:p", "new")]).toEqual(["in", "in"]);
    for (const wrong of ["a:q", "b:q", "nobody:none", "nobody:p"]) expect(await login(wrong)).not.toBe("in");
    await restart();
  }
});

it("refuses what is none, in RabbitMQ's shapes, and keeps nothing of it", async () => {
  const bad = async (path: string, body: unknown) => {
    const { status, body: answer } = await call("PUT", path, body);
    expect([status, answer.error]).toEqual([400, "bad_request"]);
    return answer.reason as string;
  };
  expect(await bad("/users/x", { password: "p" })).toContain("tags_not_present");
  expect(await bad("/users/x", { password: "p", password_hash: "q", tags: "" })).toContain("both_password");
  expect(await bad("/users/x", { password_hash: "hunter2", tags: "" })).not.toContain("hunter2");
  expect(await bad("/users/x", { password_hash: "AAAA", hashing_algorithm: "md5", tags: "" })).toContain(
    "sha256",
  );
  expect(await bad("/permissions/%2F/guest", { configure: ".*" })).toContain("key_missing: write");
  expect(await bad("/permissions/%2F/guest", { ...ALL, read: "(" })).toContain("read");
  expect((await call("PUT", "/permissions/%2F/nobody", ALL)).status).toBe(404);
  expect((await call("PUT", "/permissions/nowhere/guest", ALL)).status).toBe(404);
  expect((await call("GET", "/users")).body).toHaveLength(1);
});

it("lets only administrators change things and see users; without a tag nobody looks", async () => {
  for (const [name, tags] of [
    ["look", "monitoring"],
    ["policy", "policymaker"],
    ["none", ""],
  ]) {
    await call("PUT", `/users/${name}`, { password: "p", tags });
  }
  const status = async (as: string, method: string, path: string, body?: unknown) =>
    (await call(method, path, body, `${as}:p`)).status;
  expect(await status("none", "GET", "/overview")).toBe(401);
  expect(await status("look", "GET", "/queues")).toBe(200);
  expect(await status("look", "GET", "/whoami")).toBe(200);
  expect(await status("look", "GET", "/users")).toBe(401);
  expect(await status("look", "GET", "/vhosts/%2F/permissions")).toBe(401);
  expect(await status("look", "PUT", "/users/look", { password: "p", tags: "administrator" })).toBe(401);
  expect(await status("look", "PUT", "/queues/%2F/q", {})).toBe(401);
  const policy = { pattern: "^q", definition: { "max-length": 1 } };
  expect(await status("look", "PUT", "/policies/%2F/p", policy)).toBe(401);
  expect(await status("policy", "PUT", "/policies/%2F/p", policy)).toBe(201);
  expect(await status("policy", "DELETE", "/vhosts/%2F")).toBe(401);
});

it("a configured user is the configuration's to change, and another machine's address needs one besides guest", async () => {
  await expect(startBroker({ host: "0.0.0.0", data: join(folder, "other") })).rejects.toMatchObject({
    code: "REFUSED",
  });
  const users = [{ name: "app", password: "p", tags: ["administrator"] }];
  await restart({ users, host: "0.0.0.0" });
  expect([await login("app:p"), (await login("guest:guest")) === "in"]).toEqual(["in", false]);
  const refused = await call("PUT", "/users/app", { password: "x", tags: "" }, "app:p").catch(
    (error) => error,
  );
  expect([refused.status, refused.body.reason]).toEqual([400, expect.stringContaining("configured")]);
  expect((await call("DELETE", "/users/app", undefined, "app:p")).status).toBe(400);
  expect((await call("PUT", "/users/made", { password: "m", tags: "" }, "app:p")).status).toBe(201);
  expect((await call("PUT", "/permissions/%2F/made", ALL, "app:p")).status).toBe(201);
  // A user of the file is one besides guest too.
  await restart({ host: "0.0.0.0" });
  expect(await login("made:m")).toBe("in");
});
