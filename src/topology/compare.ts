/**
 * A definitions file against a live broker: what an import did not change. RabbitMQ never changes the arguments of a
 * queue that exists, and drops a binding whose ends do not, both without a word.
 */
import { readDefinitions } from "./definitions.ts";
import { JsonFloat, readJson } from "./read-json.ts";
import type { BindingModel, Difference, VhostModel } from "./types.ts";

const shown = (value: unknown): string =>
  value === undefined ? "(not set)" : value instanceof JsonFloat ? value.text : JSON.stringify(value);

const same = (a: unknown, b: unknown): boolean => shown(a) === shown(b);

/**
 * Differences that matter to dead letters, file first. Only what the file declares is looked at; a live broker may
 * hold more.
 *
 * @param file - text or parsed document of the file; a text that cannot be read throws (examine it first).
 * @param live - the document of the live broker, as the management API lists it.
 * @param unnamed - the virtual host a file without vhost keys is compared with.
 */
export function compareDefinitions(file: string | object, live: object, unnamed: string = "/"): Difference[] {
  const wanted = readDefinitions(typeof file === "string" ? readJson(file).value : file);
  const found = readDefinitions(live);
  return wanted.vhosts.flatMap((vhost) => {
    const name = vhost.name === "" ? unnamed : vhost.name;
    const there = found.vhosts.find((candidate) => candidate.name === name);
    if (!there && vhost.queues.length + vhost.bindings.length + vhost.policies.length === 0) return [];
    return compareVhost(
      name,
      vhost,
      there ?? { ...vhost, queues: [], exchanges: [], bindings: [], policies: [] },
    );
  });
}

function compareVhost(vhost: string, file: VhostModel, live: VhostModel): Difference[] {
  const differences: Difference[] = [];
  const say = (
    what: Difference["what"],
    object: string,
    inFile: string,
    onBroker: string,
    why: string,
  ): number => differences.push({ vhost, object, what, file: inFile, live: onBroker, why });
  compareQueues(file, live, say);
  compareExchanges(file, live, say);
  compareBindings(file, live, say);
  comparePolicies(file, live, say);
  return differences;
}

type Say = (what: Difference["what"], object: string, file: string, live: string, why: string) => number;

function compareQueues(file: VhostModel, live: VhostModel, say: Say): void {
  const there = new Map(live.queues.map((queue) => [queue.name, queue] as const));
  for (const queue of file.queues) {
    const found = there.get(queue.name);
    if (!found) {
      say("missing", queue.name, "declared", "(missing)", `queue ${queue.name} is not on the broker`);
      continue;
    }
    const keys = new Set([...Object.keys(queue.arguments), ...Object.keys(found.arguments)]);
    keys.delete("x-queue-type"); // compared as the type it makes
    for (const key of keys) {
      if (!key.startsWith("x-") || same(queue.arguments[key], found.arguments[key])) continue;
      say(
        "argument-differs",
        queue.name,
        `${key} ${shown(queue.arguments[key])}`,
        `${key} ${shown(found.arguments[key])}`,
        `${key} of ${queue.name} differs: an import never changes the arguments of a queue that exists; delete and declare it again, or set it by policy`,
      );
    }
    for (const key of ["type", "durable"] as const) {
      if (queue[key] === found[key]) continue;
      const why = `${key} of ${queue.name} differs: an import never changes a queue that exists`;
      say("property-differs", queue.name, `${key} ${queue[key]}`, `${key} ${found[key]}`, why);
    }
  }
}

function compareExchanges(file: VhostModel, live: VhostModel, say: Say): void {
  const there = new Map(live.exchanges.map((exchange) => [exchange.name, exchange] as const));
  for (const exchange of file.exchanges) {
    if (exchange.builtin) continue;
    const found = there.get(exchange.name);
    if (!found) {
      say(
        "missing",
        exchange.name,
        "declared",
        "(missing)",
        `exchange ${exchange.name} is not on the broker`,
      );
      continue;
    }
    for (const key of ["type", "durable", "internal"] as const) {
      if (exchange[key] === found[key]) continue;
      const why = `${key} of exchange ${exchange.name} differs: an import never changes an exchange that exists`;
      say("property-differs", exchange.name, `${key} ${exchange[key]}`, `${key} ${found[key]}`, why);
    }
    const key = "alternate-exchange";
    if (!same(exchange.arguments[key], found.arguments[key])) {
      const why = `${key} of exchange ${exchange.name} differs`;
      say(
        "argument-differs",
        exchange.name,
        `${key} ${shown(exchange.arguments[key])}`,
        `${key} ${shown(found.arguments[key])}`,
        why,
      );
    }
  }
}

const bindingId = (binding: BindingModel): string =>
  JSON.stringify([binding.source, binding.destinationType, binding.destination, binding.routingKey]);

function compareBindings(file: VhostModel, live: VhostModel, say: Say): void {
  const there = new Set(live.bindings.map(bindingId));
  const queues = new Set(file.queues.map((queue) => queue.name));
  const exchanges = new Set(file.exchanges.map((exchange) => exchange.name));
  for (const binding of file.bindings) {
    if (there.has(bindingId(binding))) continue;
    const { source, destination, routingKey } = binding;
    const missing = [
      ...(exchanges.has(source) ? [] : [source]),
      ...((binding.destinationType === "queue" ? queues : exchanges).has(destination) ? [] : [destination]),
    ];
    const because =
      missing.length > 0 ? `: ${missing.join(" and ")} is not declared, so an import drops it` : "";
    const why = `the binding ${source} -> ${destination} with key '${routingKey}' is not on the broker${because}`;
    say("binding-missing", destination, `${source} '${routingKey}'`, "(missing)", why);
  }
}

function comparePolicies(file: VhostModel, live: VhostModel, say: Say): void {
  const layers = [
    ["policy", file.policies, live.policies],
    ["operator policy", file.operatorPolicies, live.operatorPolicies],
  ] as const;
  for (const [kind, wanted, found] of layers) {
    const there = new Map(found.map((policy) => [policy.name, policy] as const));
    for (const policy of wanted) {
      const other = there.get(policy.name);
      if (!other) {
        say(
          "policy-missing",
          policy.name,
          "declared",
          "(missing)",
          `${kind} ${policy.name} is not on the broker`,
        );
        continue;
      }
      const parts: [string, unknown, unknown][] = (["pattern", "applyTo", "priority"] as const).map((key) => [
        key,
        policy[key],
        other[key],
      ]);
      for (const key of new Set([...Object.keys(policy.definition), ...Object.keys(other.definition)])) {
        parts.push([key, policy.definition[key], other.definition[key]]);
      }
      for (const [key, mine, theirs] of parts) {
        if (same(mine, theirs)) continue;
        say(
          "policy-differs",
          policy.name,
          `${key} ${shown(mine)}`,
          `${key} ${shown(theirs)}`,
          `${key} of ${kind} ${policy.name} differs`,
        );
      }
    }
  }
}
