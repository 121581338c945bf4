import type { Context } from "hono";
import {
  AmqpError,
  type BrokerHost,
  type Command,
  HeaderTable,
  type HostConnection,
  type HostSink,
  type OutwardEffect,
  type Reply,
  type VirtualHost,
} from "../../broker/index.ts";

/** An answer of the management API that is not a success, with RabbitMQ's shape `{ error, reason }`. */
export class ApiError extends Error {
  override readonly name: string = "ApiError";
  readonly status: 400 | 401 | 403 | 404 | 405 | 409;
  readonly error: string;

  constructor(status: 400 | 401 | 403 | 404 | 405 | 409, error: string, reason: string) {
    super(reason);
    this.status = status;
    this.error = error;
  }
}

/** What is not there, in RabbitMQ's words. */
export const notFound = (): ApiError => new ApiError(404, "Object Not Found", "Not Found");

/** A refusal of the machine as the management API words it. */
export function fromAmqp(error: AmqpError): ApiError {
  const reason = error.message.replace(/^[A-Z_]+ - /, "");
  if (error.code === 404) return new ApiError(404, "Object Not Found", reason);
  if (error.code === 403) return new ApiError(403, "not_authorised", reason);
  return new ApiError(400, "bad_request", reason);
}

/** One request's connection to a virtual host: commands go in, returned messages are noted, answers wait for the commit. */
export class Session {
  readonly returned: OutwardEffect[] = [];
  readonly #connection: HostConnection;
  readonly channel: number;
  #ended: Error | undefined;
  #failed: (why: Error) => void = () => {};

  constructor(vhost: VirtualHost) {
    const sink: HostSink = {
      effect: (effect) => {
        if (effect.type === "return") this.returned.push(effect);
      },
      flush: () => {},
      ended: (why) => {
        this.#ended = why;
        this.#failed(why);
      },
    };
    this.#connection = vhost.connect(sink);
    this.channel = this.#connection.openChannel();
  }

  /** @throws ApiError when the broker refuses; nothing was changed then. */
  submit(command: Command): Reply {
    try {
      return this.#connection.submit(command);
    } catch (error) {
      throw error instanceof AmqpError ? fromAmqp(error) : error;
    }
  }

  /** Resolves when everything submitted is durable. */
  committed(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      this.#failed = reject;
      this.#connection.afterCommit(resolve);
    });
  }

  close(): void {
    if (!this.#ended) this.#connection.close();
  }
}

/** Runs `work` with a session of its own and answers after the commit. */
export async function withSession<T>(vhost: VirtualHost, work: (session: Session) => T): Promise<T> {
  const session = new Session(vhost);
  try {
    const result = work(session);
    await session.committed();
    return result;
  } finally {
    session.close();
  }
}

/** A JSON object of arguments as a table; anything else is refused. */
export function table(value: unknown, what: string): HeaderTable {
  if (value === undefined || value === null) return HeaderTable.empty;
  if (Array.isArray(value) && value.length === 0) return HeaderTable.empty;
  if (typeof value !== "object" || Array.isArray(value))
    throw new ApiError(400, "bad_request", `${what} must be an object, got ${JSON.stringify(value)}`);
  return HeaderTable.fromObject(value as Record<string, unknown>);
}

/** Header tables as JSON: int64 above 2^53 as text, bytes as base64 text, as far as JSON goes. */
export function plain(value: unknown): unknown {
  if (typeof value === "bigint")
    return value >= -(2n ** 53n) && value <= 2n ** 53n ? Number(value) : String(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof Date) return Math.floor(value.getTime() / 1000);
  if (Array.isArray(value)) return value.map(plain);
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]));
  return value;
}

/** The virtual host a request names. */
export function vhostOf(host: BrokerHost, c: Context): VirtualHost {
  const vhost = host.vhost(c.req.param("vhost")!);
  if (!vhost) throw notFound();
  return vhost;
}

/** All of them. */
export const allVhosts = (host: BrokerHost): VirtualHost[] => host.vhosts().map((name) => host.vhost(name)!);

type Json = Record<string, unknown>;

/** The request body, a JSON object; empty when there is none. */
export async function bodyOf(c: Context): Promise<Json> {
  const text = await c.req.text();
  if (text.trim() === "") return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ApiError(400, "bad_request", "not_json: the request body is not JSON");
  }
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new ApiError(400, "bad_request", "not_json: the request body must be an object");
  return value as Json;
}
