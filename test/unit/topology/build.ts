/** Small definition documents for tests, written short. */
export type Doc = Record<string, unknown>;

const SHORT: Readonly<Record<string, string>> = {
  dlx: "x-dead-letter-exchange",
  dlrk: "x-dead-letter-routing-key",
  ttl: "x-message-ttl",
  type: "x-queue-type",
  max: "x-max-length",
  overflow: "x-overflow",
  limit: "x-delivery-limit",
  strategy: "x-dead-letter-strategy",
  expires: "x-expires",
};

/** `q("orders", { dlx: "dlx" }, { durable: false })`; short names become x-arguments, `x-` names are taken as they are. */
export const q = (name: string, args: Doc = {}, properties: Doc = {}): Doc => ({
  name,
  durable: true,
  auto_delete: false,
  arguments: Object.fromEntries(Object.entries(args).map(([key, value]) => [SHORT[key] ?? key, value])),
  ...properties,
});

export const x = (name: string, type = "topic", properties: Doc = {}): Doc => ({
  name,
  type,
  durable: true,
  auto_delete: false,
  internal: false,
  arguments: {},
  ...properties,
});

/** `b("in -> orders", "order.#")`; `=>` binds an exchange. */
export const b = (way: string, key = ""): Doc => {
  const [source, destination] = way.split(/ [-=]> /);
  const destinationType = way.includes("=>") ? "exchange" : "queue";
  return { source, destination, destination_type: destinationType, routing_key: key, arguments: {} };
};

export const p = (name: string, pattern: string, definition: Doc, more: Doc = {}): Doc => ({
  name,
  pattern,
  "apply-to": "queues",
  priority: 0,
  definition,
  ...more,
});

/** A document; what is given by kind is sorted by its shape. */
export const doc = (...parts: (Doc | Doc[])[]): Doc => {
  const lists: Record<string, Doc[]> = {
    queues: [],
    exchanges: [],
    bindings: [],
    policies: [],
    parameters: [],
  };
  for (const part of parts.flat()) {
    if ("pattern" in part) lists["policies"]!.push(part);
    else if ("component" in part) lists["parameters"]!.push(part);
    else if ("source" in part) lists["bindings"]!.push(part);
    else if ("type" in part) lists["exchanges"]!.push(part);
    else lists["queues"]!.push(part);
  }
  const vhost = (list: Doc[]): Doc[] => list.map((one) => ({ vhost: "/", ...one }));
  return {
    vhosts: [{ name: "/" }],
    ...Object.fromEntries(Object.entries(lists).map(([kind, list]) => [kind, vhost(list)])),
  };
};

export const operator = (name: string, pattern: string, definition: Doc): Doc => ({
  component: "operator_policy",
  name,
  value: { pattern, "apply-to": "queues", priority: 0, definition },
});
