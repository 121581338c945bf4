/** The one thing asked of RabbitMQ's management API: what a queue is, which AMQP does not tell. */
import { DloError } from "../../core/index.ts";
import { DEFAULT_LIMIT } from "./topology.ts";

/** A queue's type and what limits its deliveries. */
export interface QueueFacts {
  readonly type: string;
  /** The delivery limit in force: by argument or policy (the lower), or the version's default; null for none. */
  readonly deliveryLimit: number | null;
}

/**
 * @param url of the management API, with user and password, e.g. `http://guest:guest@localhost:15672`.
 * @throws DloError QUEUE_NOT_FOUND, REFUSED, NOT_CONNECTED
 */
export async function queueFacts(
  url: string,
  vhost: string,
  queue: string,
  version: string,
): Promise<QueueFacts> {
  const at = new URL(`/api/queues/${encodeURIComponent(vhost)}/${encodeURIComponent(queue)}`, url);
  const user = `${decodeURIComponent(at.username || new URL(url).username || "guest")}`;
  const password = decodeURIComponent(new URL(url).password || "guest");
  at.username = "";
  at.password = "";
  let response: Response;
  try {
    response = await fetch(at, {
      headers: { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` },
      signal: AbortSignal.timeout(10_000),
    });
  } catch (error) {
    throw new DloError("NOT_CONNECTED", `the management API at ${at.host} does not answer`, { cause: error });
  }
  if (response.status === 404) throw new DloError("QUEUE_NOT_FOUND", `queue '${queue}' does not exist`);
  if (!response.ok)
    throw new DloError("REFUSED", `the management API at ${at.host} answered ${response.status}`);
  return factsOf(await response.json(), version);
}

/** Reads the API's answer. Pure. */
export function factsOf(answer: unknown, version: string): QueueFacts {
  const {
    type = "classic",
    arguments: args,
    effective_policy_definition: policy,
  } = answer as {
    type?: string;
    arguments?: Record<string, unknown>;
    effective_policy_definition?: Record<string, unknown>;
  };
  const limits = [args?.["x-delivery-limit"], policy?.["delivery-limit"]].filter(
    (limit): limit is number => typeof limit === "number",
  );
  const major = Number.parseInt(version, 10);
  if (type !== "quorum") return { type, deliveryLimit: null };
  if (limits.length === 0) return { type, deliveryLimit: major >= 4 ? DEFAULT_LIMIT : null };
  const set = limits.filter((limit) => limit >= 0);
  return { type, deliveryLimit: set.length === 0 ? null : Math.min(...set) };
}
