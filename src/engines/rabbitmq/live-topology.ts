/**
 * The management API, as far as the doctor needs it: read only, the `management` tag is enough. Never asks for
 * /api/definitions, users or permissions. Messages name the address without its credentials.
 */
import { DloError } from "../../core/index.ts";

export interface ManagementOptions {
  /** `http://user:password@host:15672`; without credentials guest:guest. A path in it is kept (reverse proxies). */
  readonly url: string;
  /** Only this virtual host; without it all the user may see. */
  readonly vhost?: string;
  /** Gives one request up after this long; default 15 s. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** What the lists hold, in the shape of a definitions document; queues carry what only a live broker knows. */
export interface LiveDefinitions {
  readonly rabbit_version?: string;
  readonly vhosts: readonly { readonly name: string }[];
  readonly queues: readonly object[];
  readonly exchanges: readonly object[];
  readonly bindings: readonly object[];
  readonly policies: readonly object[];
  readonly operator_policies: readonly object[];
}

export interface LiveTopology {
  readonly definitions: LiveDefinitions;
  /** What could not be asked, for people. */
  readonly notes: readonly string[];
}

const QUEUE_COLUMNS = [
  "name",
  "vhost",
  "type",
  "durable",
  "auto_delete",
  "exclusive",
  "arguments",
  "policy",
  "operator_policy",
  "effective_policy_definition",
  "consumers",
  "messages_ready",
  "messages_dlx",
];

/** An address as it may be shown: without user and password. */
export function withoutCredentials(url: string): string {
  try {
    const at = new URL(url);
    at.username = "";
    at.password = "";
    at.search = "";
    return at.href;
  } catch {
    return url.replace(/\/\/[^/@]*@/, "//");
  }
}

/**
 * Reads a live topology. A crash or an error in the middle leaves nothing behind: every request is a GET.
 *
 * @throws DloError `NOT_CONNECTED` when the broker cannot be reached, refuses the user, or answers something else
 *   than its lists; `BAD_ARGUMENT` for an address that is none; `NOT_FOUND` for a virtual host that is not there.
 *
 * @example
 * const { definitions } = await readLiveTopology({ url: "http://guest:guest@127.0.0.1:15672" });
 */
export async function readLiveTopology(options: ManagementOptions): Promise<LiveTopology> {
  const client = clientOf(options);
  const of = options.vhost === undefined ? "" : `/${encodeURIComponent(options.vhost)}`;
  const notes: string[] = [];
  const [overview, queues, exchanges, bindings] = await Promise.all([
    client.ask("/api/overview", "optional"),
    client.ask(`/api/queues${of}?columns=${QUEUE_COLUMNS.join()}`),
    client.ask(`/api/exchanges${of}`),
    client.ask(`/api/bindings${of}`),
  ]);
  const policies = await client.ask(`/api/policies${of}`, "optional");
  const operators = await client.ask(`/api/operator-policies${of}`, "optional");
  if (policies === null)
    notes.push("this user may not list policies; judged by each queue's effective policy");
  else if (operators === null) notes.push("this user may not list operator policies");
  const lists = { queues: client.list(queues, "queues"), exchanges: client.list(exchanges, "exchanges") };
  const names = new Set([...lists.queues, ...lists.exchanges].map((entry) => String(field(entry, "vhost"))));
  const version = field(overview, "rabbitmq_version");
  return {
    definitions: {
      ...(typeof version === "string" ? { rabbit_version: version } : {}),
      vhosts: [...names].map((name) => ({ name })),
      ...lists,
      bindings: client.list(bindings, "bindings"),
      policies: policies === null ? [] : client.list(policies, "policies"),
      operator_policies: operators === null ? [] : client.list(operators, "operator policies"),
    },
    notes,
  };
}

const field = (value: unknown, key: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined;

interface Client {
  /** `optional`: a refusal or an absence answers null. */
  ask(path: string, optional?: "optional"): Promise<unknown>;
  list(value: unknown, what: string): readonly object[];
}

function clientOf(options: ManagementOptions): Client {
  const shown = withoutCredentials(options.url);
  const base = parse(options.url, shown);
  const user = decodeURIComponent(base.username) || "guest";
  const password = base.username ? decodeURIComponent(base.password) : "guest";
  const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
  const root = `${base.origin}${base.pathname.replace(/\/(api\/?)?$/, "")}`;
  const fail = (why: string, cause?: unknown): never => {
    throw new DloError("NOT_CONNECTED", `the management API at ${shown} ${why}`, { cause });
  };
  return {
    async ask(path, optional) {
      const response = await request(`${root}${path}`, authorization, options, fail);
      if (response.ok)
        return response.json().catch((cause: unknown) => fail("answered something that is not JSON", cause));
      await response.body?.cancel();
      if (optional && [401, 403, 404].includes(response.status)) return null;
      if (response.status === 401) {
        return fail(`refuses user '${user}': wrong password, or without the tag 'management'`);
      }
      if (response.status === 404 && options.vhost !== undefined) {
        throw new DloError(
          "NOT_FOUND",
          `no virtual host '${options.vhost}' at ${shown}, or not for user '${user}'`,
        );
      }
      return fail(`answered ${response.status} to ${path.split("?")[0]}`);
    },
    list(value, what) {
      return Array.isArray(value)
        ? (value as object[])
        : fail(`answered no list of ${what}; is it a RabbitMQ?`);
    },
  };
}

function parse(url: string, shown: string): URL {
  try {
    const at = new URL(url);
    if (at.protocol === "http:" || at.protocol === "https:") return at;
  } catch {
    // said below
  }
  throw new DloError("BAD_ARGUMENT", `'${shown}' is no management address; expected http://host:15672`);
}

async function request(
  url: string,
  authorization: string,
  options: ManagementOptions,
  fail: (why: string, cause?: unknown) => never,
): Promise<Response> {
  const timeoutMs = options.timeoutMs ?? 15_000;
  const limit = AbortSignal.timeout(timeoutMs);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  try {
    return await fetch(url, { headers: { authorization }, signal, redirect: "error" });
  } catch (error) {
    if (limit.aborted) return fail(`did not answer within ${timeoutMs} ms`, error);
    const cause = (error as { cause?: { code?: string } }).cause?.code;
    return fail(`cannot be reached${cause ? ` (${cause})` : ""}`, error);
  }
}
