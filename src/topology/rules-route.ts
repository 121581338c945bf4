/** Does the DLX exist, and do the letters that are sent there arrive anywhere but where they died? */
import { countedKeys, keepsUnroutable } from "./ends.ts";
import { carried } from "./flow.ts";
import { idOf, type Keys, showKeys } from "./keys.ts";
import { looksLikeDlq } from "./names.ts";
import type { Route } from "./routing.ts";
import { bindCommand, eachVariant, type Judge, quoted, some } from "./rules.ts";
import type { Effective, QueueModel } from "./types.ts";

interface Case {
  readonly judge: Judge;
  readonly queue: QueueModel;
  readonly q: number;
  readonly variant: Effective;
  readonly dlx: string;
  readonly source: string;
  /** Every counted key of the letters and where it is routed. */
  readonly routes: readonly { readonly keys: Keys; readonly route: Route }[];
}

export function judgeRoutes(judge: Judge): void {
  eachVariant(judge.ground, (queue, q, variant) => {
    if (!variant.dlx) return;
    const dlx = variant.dlx.value;
    const letters = new Map<string, Keys>();
    for (const keys of countedKeys(judge.ground.flow, q)) {
      const letter = carried(variant, keys);
      letters.set(idOf(letter), letter);
    }
    const routes = [...letters.values()].map((keys) => ({
      keys,
      route: judge.ground.router.route(dlx, keys),
    }));
    const one: Case = { judge, queue, q, variant, dlx, source: variant.dlx.source, routes };
    if (judgeOne(one)) judge.broken.add(q);
    judgeAtLeastOnce(one);
    judgeDurability(one);
  });
}

/** Says what is wrong with one way; true when letters are lost (or stuck) on it. */
function judgeOne(one: Case): boolean {
  const { judge, queue, dlx, source, routes } = one;
  if (dlx === "") return judgeDefaultExchange(one);
  const exchange = judge.ground.router.exchange(dlx);
  if (!exchange) return notDeclared(one);
  if (routes.some(({ route }) => route.queues.has(one.q))) toSelf(one);
  const losing = routes.filter(({ route }) => route.lost !== undefined);
  if (losing.length === 0) return false;
  const all = losing.length === routes.length && losing.every(({ route }) => route.targets.length === 0);
  if (!all) {
    const example = losing[0]!.route.lost!;
    judge.say("dlx-partly-unroutable", "warning", {
      object: queue.name,
      why: `some letters of ${queue.name} find a binding behind ${dlx}, others do not: one with key '${example}' is lost`,
      fix: `bind '#' (topic) behind ${dlx}, or set x-dead-letter-routing-key to a key that is bound`,
      source,
    });
    return true;
  }
  const bindings = judge.ground.router.bindingsFrom(dlx);
  const alternate = judge.ground.router.alternateOf(dlx);
  const reachable =
    bindings.length > 0 ||
    (alternate !== undefined && judge.ground.router.bindingsFrom(alternate).length > 0);
  if (reachable)
    unroutable(
      one,
      losing.map(({ keys }) => showKeys(keys)),
    );
  else withoutBindings(one, alternate);
  return true;
}

const fate = (one: Case): string =>
  keepsUnroutable(one.judge.ground, one.q, one.variant)
    ? "letters stay stuck in the queue, invisible as ready"
    : "letters vanish without error, log line or return";

function notDeclared(one: Case): true {
  const { judge, queue, dlx, source } = one;
  const { partial } = judge.ground;
  const near = judge.guess(dlx, "exchanges");
  const elsewhere = judge.exchangeElsewhere(dlx);
  const hint = near ? ` (did you mean ${near}?)` : "";
  const other =
    elsewhere === undefined ? "" : `; it exists in vhost '${elsewhere}', but a DLX never crosses vhosts`;
  judge.say("dlx-not-declared", partial ? "warning" : "error", {
    object: queue.name,
    why: `${dlx} is not declared${partial ? " in this file" : ""}${hint}${other}: ${fate(one)}`,
    fix: near
      ? `set the dead-letter exchange to ${near}, or declare exchange ${dlx} in this vhost`
      : `declare exchange ${dlx} in this vhost and bind a dead-letter queue to it`,
    source,
  });
  return true;
}

function withoutBindings(one: Case, alternate: string | undefined): void {
  const { judge, queue, dlx, source, variant } = one;
  const also = alternate === undefined ? "" : `, nor to its alternate exchange ${alternate}`;
  judge.say("dlx-without-bindings", "error", {
    object: queue.name,
    why: `nothing is bound to ${dlx}${also}: ${fate(one)}`,
    fix: bindCommand(judge.ground.vhost.name, dlx, `${queue.name}.dlq`, variant.dlrk?.value ?? "#"),
    source,
  });
}

function unroutable(one: Case, keys: readonly string[]): void {
  const { judge, queue, dlx, source, variant } = one;
  const bindings = judge.ground.router.bindingsFrom(dlx);
  const wanted = [...new Set(bindings.map((binding) => `'${binding.routingKey}'`))];
  const carries = variant.dlrk
    ? `the key '${variant.dlrk.value}' (${variant.dlrk.source})`
    : `their original key ${some(keys.map((key) => `'${key}'`))}`;
  const target =
    bindings.find((binding) => binding.destinationType === "queue")?.destination ?? `${queue.name}.dlq`;
  const bound = bindings.find((binding) => binding.destinationType === "queue")?.routingKey;
  const set = bound === undefined ? "" : `set x-dead-letter-routing-key to '${bound}', or `;
  judge.say("dlx-unroutable", "error", {
    object: queue.name,
    why: `letters arrive at ${dlx} with ${carries}; the bindings there want ${some(wanted)}: ${fate(one)}`,
    fix: `${set}${bindCommand(judge.ground.vhost.name, dlx, target, keys[0] ?? "#")}`,
    source,
  });
}

function judgeDefaultExchange(one: Case): boolean {
  const { judge, queue, source, variant } = one;
  const key = variant.dlrk?.value;
  if (key === undefined) {
    judge.say("dlx-default-exchange-without-key", "error", {
      object: queue.name,
      why:
        `the dead-letter exchange is the default one and there is no dead-letter routing key: a letter keeps its key, ` +
        `is lost when no queue has that name, and comes back for ever when it had been sent to ${queue.name} by name`,
      fix: "set x-dead-letter-routing-key to the name of the dead-letter queue",
      source,
    });
    return true;
  }
  if (key === queue.name) {
    toSelf(one);
    return false;
  }
  if (judge.ground.router.queueIndex(key) !== undefined) return false;
  const near = judge.guess(key, "queues");
  const { partial } = judge.ground;
  judge.say("dlx-default-exchange-no-such-queue", partial ? "warning" : "error", {
    object: queue.name,
    why: `no queue is called ${key}${partial ? " in this file" : ""}${near ? ` (did you mean ${near}?)` : ""}: ${fate(one)}`,
    fix: near
      ? `set x-dead-letter-routing-key to ${quoted(near)}, or declare queue ${quoted(key)}`
      : `declare queue ${quoted(key)}, or set x-dead-letter-routing-key to the name of the dead-letter queue`,
    source: variant.dlrk!.source,
  });
  return true;
}

function toSelf(one: Case): void {
  const { judge, queue, dlx, source, variant } = one;
  const key = variant.dlrk ? ` with key '${variant.dlrk.value}'` : ", keeping their key,";
  const byPolicy =
    variant.dlx!.kind === "policy" ? `; or exclude ${queue.name} from the pattern of ${source}` : "";
  judge.say("dead-letter-to-self", "error", {
    object: queue.name,
    why:
      `letters sent to ${dlx === "" ? "the default exchange" : dlx}${key} come straight back to ${queue.name}: ` +
      "rejected ones loop as fast as the broker delivers, expired or overflowing ones are dropped as a cycle",
    fix: `use another dead-letter exchange or x-dead-letter-routing-key${byPolicy}`,
    source,
  });
}

function judgeAtLeastOnce(one: Case): void {
  const { judge, queue, q, variant, dlx, routes } = one;
  const { ground } = judge;
  const asked = variant.strategy?.value === "at-least-once";
  if (!asked || !keepsUnroutable(ground, q, variant)) return;
  const source = variant.strategy!.source;
  if (routes.some(({ route }) => route.lost !== undefined)) {
    judge.say("at-least-once-blocked", "error", {
      object: queue.name,
      why:
        `at-least-once dead-lettering finds no way behind '${dlx}': letters stay in ${queue.name} (messages_dlx), ` +
        "count against its limits and in the end block publishers",
      fix: "repair the route (see the finding about the dead-letter exchange); the letters then flow by themselves",
      source,
    });
  }
  const weak = new Set(
    routes
      .flatMap(({ route }) => route.targets.map((target) => target.queue))
      .filter((t) => t !== q && ground.hasDlx[t] && ground.hasTtl[t])
      .filter((t) => !ground.settled[t]!.variants.every((settings) => keepsUnroutable(ground, t, settings))),
  );
  for (const t of weak) {
    const next = ground.vhost.queues[t]!.name;
    const said = {
      why: `${queue.name} dead-letters at least once, but ${next}, the next hop, only at most once`,
      fix: `give ${next} the same: x-queue-type quorum, x-dead-letter-strategy at-least-once, x-overflow reject-publish`,
      source,
    };
    judge.say("at-least-once-chain-weak", "info", { object: next, ...said });
    judge.say("at-least-once-chain-weak", "info", { object: queue.name, ...said });
  }
}

/** What a restart takes away on the way of a durable queue's letters. */
function judgeDurability(one: Case): void {
  const { judge, queue, routes } = one;
  for (const { route } of routes) {
    if (!routeSeen(judge, route, queue.durable)) judgeRouteDurability(one, route);
  }
}

/** Many queues share a route; what is fragile on it is said once for durable queues and once for others. */
function routeSeen(judge: Judge, route: Route, durable: boolean): boolean {
  const seen = durable ? judge.durableSeen : judge.transientSeen;
  if (seen.has(route)) return true;
  seen.add(route);
  return false;
}

function judgeRouteDurability(one: Case, route: Route): void {
  const { judge, queue, source } = one;
  const { ground } = judge;
  for (const name of route.through) {
    const exchange = ground.router.exchange(name);
    if (!exchange || exchange.builtin) continue;
    if (queue.durable && !exchange.durable) {
      judge.say("dlx-not-durable", "error", {
        object: name,
        why: `${name} is gone after a broker restart; durable queues stay and lose their letters`,
        fix: `declare exchange ${name} durable`,
        source: "exchange",
      });
    }
    if (exchange.autoDelete) {
      judge.say("dlx-auto-delete", "warning", {
        object: name,
        why: `${name} is deleted as soon as its last binding goes; letters sent to it then vanish`,
        fix: `declare exchange ${name} with auto_delete false`,
        source: "exchange",
      });
    }
  }
  if (!queue.durable) return;
  for (const t of route.queues) {
    const target = ground.vhost.queues[t]!;
    if (target.durable || (ground.roles[t] === "work" && !looksLikeDlq(target.name))) continue;
    judge.say("dlq-not-durable", "error", {
      object: target.name,
      why: `${target.name} is gone after a broker restart, with the letters in it; the queues that feed it are durable`,
      fix: `declare queue ${target.name} durable`,
      source,
    });
  }
}
