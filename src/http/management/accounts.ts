import type { Context, Hono, Next } from "hono";
import { basicAuth } from "hono/basic-auth";
import { DloError } from "../../core/index.ts";
import { ApiError, bodyOf, notFound } from "./context.ts";

type Json = Record<string, unknown>;
type Awaitable<T> = T | Promise<T>;

/** What a user may do in a virtual host: patterns over the names of queues and exchanges. */
export interface AccountPermissions {
  readonly configure: string;
  readonly write: string;
  readonly read: string;
}

/**
 * Who may use the API and who they are; the tags are RabbitMQ's (`administrator`, `management` ...). Without the
 * verbs that change, users cannot be changed over the API. A verb resolves when what it did is durable, and throws
 * DloError: NOT_FOUND, BAD_ARGUMENT, or REFUSED where a user is not the API's to change.
 */
export interface ManagementAccounts {
  /** The user's tags; null when name and password do not belong together. */
  authenticate(name: string, password: string): Awaitable<readonly string[] | null>;
  users?(): readonly { name: string; tags: readonly string[] }[];
  permissions?(): readonly ({ user: string; vhost: string } & AccountPermissions)[];
  /** `passwordHash`: "none", or "rabbit$" (SHA-256) or "rabbit512$" and RabbitMQ's base64. */
  putUser?(
    name: string,
    given: { password?: string; passwordHash?: string; tags: readonly string[] },
  ): Promise<void>;
  /** False when there was none. */
  deleteUser?(name: string): Promise<boolean>;
  /** undefined: the user may not even enter the virtual host. */
  setPermissions?(user: string, vhost: string, permissions: AccountPermissions | undefined): Promise<void>;
  vhostMade?(vhost: string, by: string): Promise<void>;
  vhostGone?(vhost: string): Promise<void>;
}

interface Account {
  readonly name: string;
  readonly tags: readonly string[];
}

const accountsByRequest = new WeakMap<Request, Account>();

/** Who makes this request. */
export const accountOf = (c: Context): Account => accountsByRequest.get(c.req.raw) as Account;

const TAGS = ["administrator", "monitoring", "policymaker", "management"];
const POLICIES = /^\/api\/(operator-)?policies(\/|$)/;
const ABOUT_USERS = /^\/api\/(users|permissions)(\/|$)|^\/api\/vhosts\/[^/]+\/permissions$/;
const mayNot = (why: string): ApiError => new ApiError(401, "not_authorized", why);

/**
 * Lets in who has a name, the right password and a tag. Any tag may look, but not at users; changing is the
 * administrator's, policies also the policymaker's.
 */
function guard(c: Context, next: Next): Promise<void> {
  const { tags } = accountOf(c);
  if (!tags.some((tag) => TAGS.includes(tag))) throw mayNot("Not management user");
  if (!tags.includes("administrator")) {
    const looks = c.req.method === "GET" || c.req.method === "HEAD";
    const policy = tags.includes("policymaker") && POLICIES.test(c.req.path);
    if (ABOUT_USERS.test(c.req.path) || !(looks || policy)) throw mayNot("Not administrator user");
  }
  return next();
}

/** Login, and what each tag may do; to be put in front of everything. */
export function authorization(app: Hono, accounts: ManagementAccounts): void {
  app.use(
    basicAuth({
      realm: "RabbitMQ Management",
      invalidUserMessage: { error: "not_authorized", reason: "Login failed" },
      verifyUser: async (name, password, c) => {
        const tags = await accounts.authenticate(name, password);
        if (tags !== null) accountsByRequest.set(c.req.raw, { name, tags });
        return tags !== null;
      },
    }),
  );
  app.use(guard);
}

const FAULTS: Readonly<Record<string, ApiError["status"]>> = {
  NOT_FOUND: 404,
  BAD_ARGUMENT: 400,
  REFUSED: 400,
};

/** A user's mistake as this API words it; anything else as it is. */
async function told<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    const status = error instanceof DloError ? FAULTS[error.code] : undefined;
    if (status === undefined) throw error;
    throw status === 404 ? notFound() : new ApiError(400, "bad_request", (error as DloError).message);
  }
}

const bad = (reason: string): ApiError => new ApiError(400, "bad_request", reason);

/** RabbitMQ takes tags as a list or as text with commas. */
function tagsOf(value: unknown): readonly string[] {
  if (value === undefined) throw bad("tags_not_present");
  const tags = typeof value === "string" ? value.split(",").map((tag) => tag.trim()) : value;
  if (!Array.isArray(tags) || tags.some((tag) => typeof tag !== "string")) throw bad("tags must be a list");
  return (tags as string[]).filter((tag) => tag !== "");
}

const ALGORITHMS: Readonly<Record<string, [prefix: string, bytes: number]>> = {
  rabbit_password_hashing_sha256: ["rabbit$", 36],
  rabbit_password_hashing_sha512: ["rabbit512$", 68],
};

/** A user as the API and definitions take one. No message holds anything of a password or hash. */
function userFrom(body: Json): { password?: string; passwordHash?: string; tags: readonly string[] } {
  const {
    password,
    password_hash: hash,
    hashing_algorithm: algorithm = "rabbit_password_hashing_sha256",
  } = body;
  const tags = tagsOf(body["tags"]);
  if (password !== undefined && hash !== undefined) {
    throw bad("both_password_and_password_hash_are_provided");
  }
  if (password !== undefined) {
    if (typeof password !== "string" || password === "")
      throw bad("password must be a text that is not empty");
    return { password, tags };
  }
  if (hash === undefined || hash === "") return { passwordHash: "none", tags };
  const known = typeof algorithm === "string" ? ALGORITHMS[algorithm] : undefined;
  if (known === undefined) throw bad(`hashing_algorithm is not one of ${Object.keys(ALGORITHMS).join(", ")}`);
  const [prefix, bytes] = known;
  const whole = typeof hash === "string" && /^[A-Za-z0-9+/]+=*$/.test(hash);
  if (!whole || Buffer.from(hash, "base64").length !== bytes) throw bad("password_hash is not one");
  return { passwordHash: `${prefix}${hash}`, tags };
}

function permissionsFrom(body: Json): AccountPermissions {
  const [configure, write, read] = ["configure", "write", "read"].map((key) => {
    if (typeof body[key] !== "string") throw bad(`key_missing: ${key}`);
    return body[key] as string;
  }) as [string, string, string];
  return { configure, write, read };
}

/** What a name in a verb that is missing means. */
function can<T>(verb: T | undefined): T {
  if (verb === undefined)
    throw new ApiError(405, "method_not_allowed", "users cannot be changed over this API");
  return verb;
}

const shown = ({ name, tags }: Account): Json => ({ name, tags: [...tags], limits: {} });

/** `/api/users`, `/api/permissions` and their like. Answers hold no hash. */
export function accountRoutes(
  app: Hono,
  accounts: ManagementAccounts,
  vhosts: () => readonly string[],
): void {
  const users = () => accounts.users?.() ?? [];
  const permissions = () => accounts.permissions?.() ?? [];
  const user = (c: Context): Account => {
    const found = users().find(({ name }) => name === c.req.param("name"));
    if (found === undefined) throw notFound();
    return found;
  };
  app.get("/api/whoami", (c) => {
    const { name, tags } = accountOf(c);
    return c.json({ name, tags: [...tags] });
  });
  app.get("/api/users", (c) => c.json(users().map(shown)));
  app.get("/api/users/without-permissions", (c) => {
    const has = new Set(permissions().map((one) => one.user));
    return c.json(
      users()
        .filter(({ name }) => !has.has(name))
        .map(shown),
    );
  });
  app.get("/api/users/:name", (c) => c.json(shown(user(c))));
  app.put("/api/users/:name", async (c) => {
    const name = c.req.param("name");
    const wanted = userFrom(await bodyOf(c));
    const existed = users().some((one) => one.name === name);
    await told(can(accounts.putUser)(name, wanted));
    return c.body(null, existed ? 204 : 201);
  });
  app.delete("/api/users/:name", async (c) => {
    if (!(await told(can(accounts.deleteUser)(c.req.param("name"))))) throw notFound();
    return c.body(null, 204);
  });
  app.get("/api/users/:name/permissions", (c) => {
    const { name } = user(c);
    return c.json(permissions().filter((one) => one.user === name));
  });
  permissionRoutes(app, accounts, vhosts);
}

function permissionRoutes(app: Hono, accounts: ManagementAccounts, vhosts: () => readonly string[]): void {
  const permissions = () => accounts.permissions?.() ?? [];
  const vhost = (c: Context): string => {
    const name = c.req.param("vhost") as string;
    if (!vhosts().includes(name)) throw notFound();
    return name;
  };
  const find = (c: Context) =>
    permissions().find((one) => one.vhost === c.req.param("vhost") && one.user === c.req.param("name"));
  app.get("/api/permissions", (c) => c.json(permissions()));
  app.get("/api/vhosts/:vhost/permissions", (c) => {
    const name = vhost(c);
    return c.json(permissions().filter((one) => one.vhost === name));
  });
  app.get("/api/permissions/:vhost/:name", (c) => {
    const found = find(c);
    if (found === undefined) throw notFound();
    return c.json(found);
  });
  app.put("/api/permissions/:vhost/:name", async (c) => {
    const wanted = permissionsFrom(await bodyOf(c));
    const existed = find(c) !== undefined;
    await told(can(accounts.setPermissions)(c.req.param("name"), vhost(c), wanted));
    return c.body(null, existed ? 204 : 201);
  });
  app.delete("/api/permissions/:vhost/:name", async (c) => {
    if (find(c) === undefined) throw notFound();
    await told(can(accounts.setPermissions)(c.req.param("name"), vhost(c), undefined));
    return c.body(null, 204);
  });
}

const list = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);

/** The users and permissions of a definitions file, after its virtual hosts were made. */
export async function importAccounts(accounts: ManagementAccounts, body: Json): Promise<void> {
  for (const user of list(body["users"])) {
    await told(can(accounts.putUser)(String(user["name"]), userFrom(user)));
  }
  for (const one of list(body["permissions"])) {
    const [user, vhost] = [String(one["user"]), String(one["vhost"] ?? "/")];
    await told(can(accounts.setPermissions)(user, vhost, permissionsFrom(one)));
  }
}
