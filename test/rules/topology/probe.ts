/**
 * The probe method: put a topology on a broker, publish through every binding (one or two instances of a pattern),
 * let each message die once, look where the letter is, and hold that against what the doctor said.
 */

import {
  type DeathReason,
  examine,
  type LetterEnd,
  type QueueVerdict,
  type Report,
} from "../../../src/topology/index.ts";
import { topicMatches } from "../../../src/topology/keys.ts";

export interface Definitions {
  readonly exchanges: readonly { name: string; type: string; internal: boolean }[];
  readonly queues: readonly { name: string; arguments: Record<string, unknown> }[];
  readonly bindings: readonly {
    source: string;
    destination: string;
    destination_type: string;
    routing_key: string;
  }[];
  readonly policies?: readonly object[];
  readonly parameters?: readonly object[];
}

/** One message taken from a queue and not settled yet. */
export interface Taken {
  readonly id: string;
  readonly tag: number;
}

/** A broker that has the topology, as far as a probe needs it. */
export interface ProbeBroker {
  readonly version: string;
  publish(exchange: string, key: string, id: string): Promise<void>;
  get(queue: string): Promise<Taken | null>;
  ack(tag: number): Promise<void>;
  reject(tag: number, requeue: boolean): Promise<void>;
  /** Lets this much time pass, and all that is due in it happen. */
  wait(ms: number): Promise<void>;
  /** Where a message is or has been since it was published, on brokers that can tell; null elsewhere. */
  visited(id: string): ReadonlySet<string> | null;
}

export interface Tally {
  probes: number;
  /** Verdicts for exactly the key that was published; they must say all and nothing but what happened. */
  exact: number;
  /** Verdicts for a pattern the key belongs to; they must allow what happened. */
  pattern: number;
  /** The doctor said it cannot know. */
  unknown: number;
  readonly wrong: string[];
}

export const newTally = (): Tally => ({ probes: 0, exact: 0, pattern: 0, unknown: 0, wrong: [] });

export interface Probe {
  readonly exchange: string;
  readonly key: string;
  readonly queue: string;
  readonly reason: DeathReason;
}

/** Instances of a topic pattern; a `#` once as nothing, once as two words. */
export function instances(pattern: string): string[] {
  const words = pattern === "" ? [] : pattern.split(".");
  const fill = (hash: string[]): string =>
    words.flatMap((word) => (word === "*" ? ["w"] : word === "#" ? hash : [word])).join(".");
  return [...new Set([fill([]), fill(["w", "v"])])];
}

/** Every binding of a queue to an exchange one may publish to; by name where a queue has none. */
export function probesOf(definitions: Definitions, report: Report): Probe[] {
  const exchanges = new Map(definitions.exchanges.map((exchange) => [exchange.name, exchange] as const));
  const type = (name: string): string =>
    exchanges.get(name)?.type ??
    (name === "amq.topic" ? "topic" : name === "amq.fanout" ? "fanout" : "direct");
  const probes: Probe[] = [];
  for (const queue of definitions.queues) {
    const verdict = report.queues.find((candidate) => candidate.queue === queue.name)!;
    const reasons = [...new Set(verdict.letters.map((letter) => letter.reason))].filter(
      (reason) =>
        reason === "rejected" ||
        (reason === "expired" && Number(verdict.settings["ttl"]?.value) < 1000) ||
        (reason === "maxlen" && verdict.settings["maxLength"]?.value === 1) ||
        (reason === "delivery_limit" && Number(verdict.settings["deliveryLimit"]?.value) < 3),
    );
    const ways = definitions.bindings
      .filter((binding) => binding.destination === queue.name && binding.destination_type === "queue")
      .filter((binding) => !exchanges.get(binding.source)?.internal)
      .filter((binding) => type(binding.source) !== "headers")
      .filter((binding) => exchanges.has(binding.source) || binding.source.startsWith("amq."))
      .flatMap((binding) =>
        (type(binding.source) === "topic" ? instances(binding.routing_key) : [binding.routing_key]).map(
          (key) => ({
            exchange: binding.source,
            key,
          }),
        ),
      );
    // By name, where the doctor judged it so (not, when applications reach it over other exchanges).
    if (ways.length === 0 && verdict.letters.some((letter) => named(letter, queue.name, verdict))) {
      ways.push({ exchange: "", key: queue.name });
    }
    for (const reason of reasons) {
      for (const way of ways.slice(0, 6)) probes.push({ ...way, queue: queue.name, reason });
    }
  }
  return probes;
}

const named = (letter: LetterEnd, queue: string, verdict: QueueVerdict): boolean =>
  letter.key === queue || isFixed(letter, verdict);

/** Runs every probe of a topology, one after another, and adds up how the doctor did. */
export async function probeAll(
  broker: ProbeBroker,
  name: string,
  definitions: Definitions,
  tally: Tally,
): Promise<Report> {
  const report = examine(definitions, { brokerVersion: broker.version });
  const ttls = report.queues.flatMap((queue) => {
    const ttl = queue.settings["ttl"]?.value;
    return typeof ttl === "number" && ttl < 1000 ? [ttl] : [];
  });
  // Twice round, so that what comes back has come back.
  const settleMs = ttls.reduce((sum, ttl) => sum + ttl, 0) * 2 + (ttls.length > 0 ? 250 : 120);
  const queues = definitions.queues.map((queue) => queue.name);
  let serial = 0;
  for (const probe of probesOf(definitions, report)) {
    const verdict = report.queues.find((candidate) => candidate.queue === probe.queue)!;
    const letters = verdict.letters.filter((letter) => letter.reason === probe.reason);
    if (saidOf(letters, probe, verdict).length === 0) {
      tally.wrong.push(`${name}: no verdict for ${show(probe)}`);
      continue;
    }
    serial += 1;
    const seen = await observe(broker, queues, probe, `${serial}`, settleMs);
    if (seen === undefined) tally.wrong.push(`${name}: ${show(probe)} never arrived in its queue`);
    else judge(name, probe, verdict, letters, { seen, visited: broker.visited(`${serial}`), report }, tally);
  }
  return report;
}

const show = (probe: Probe): string => `'${probe.exchange}'/'${probe.key}' -> ${probe.queue} ${probe.reason}`;

/** Lets one message die in its queue; answers the queues its letter is in afterwards. */
async function observe(
  broker: ProbeBroker,
  queues: readonly string[],
  probe: Probe,
  id: string,
  settleMs: number,
): Promise<string[] | undefined> {
  await empty(broker, queues);
  await broker.publish(probe.exchange, probe.key, id);
  if (probe.reason === "expired") {
    await copiesAway(broker, queues, probe.queue);
    await broker.wait(settleMs);
  } else {
    if (!(await kill(broker, queues, probe, id))) return undefined;
    await broker.wait(settleMs);
  }
  const found: string[] = [];
  for (const queue of queues) {
    for (let taken = await broker.get(queue); taken; taken = await broker.get(queue)) {
      if (taken.id === id && !found.includes(queue)) found.push(queue);
      await broker.ack(taken.tag);
      if (found.length > 50) break;
    }
  }
  return found;
}

async function empty(broker: ProbeBroker, queues: readonly string[]): Promise<void> {
  for (const queue of queues) {
    for (let taken = await broker.get(queue); taken; taken = await broker.get(queue))
      await broker.ack(taken.tag);
  }
}

/** Copies of the message in other queues would be taken for its letter. */
async function copiesAway(broker: ProbeBroker, queues: readonly string[], keep: string): Promise<void> {
  await empty(
    broker,
    queues.filter((queue) => queue !== keep),
  );
}

async function kill(
  broker: ProbeBroker,
  queues: readonly string[],
  probe: Probe,
  id: string,
): Promise<boolean> {
  if (probe.reason === "maxlen") {
    await copiesAway(broker, queues, probe.queue);
    await broker.publish("", probe.queue, "pusher");
    return true;
  }
  let taken = await take(broker, probe.queue);
  if (taken?.id !== id) return false;
  await copiesAway(broker, queues, probe.queue);
  if (probe.reason === "rejected") {
    await broker.reject(taken.tag, false);
    return true;
  }
  for (let returns = 0; returns < 5; returns += 1) {
    await broker.reject(taken.tag, true);
    taken = await take(broker, probe.queue);
    if (taken === null) return true;
  }
  await broker.ack(taken.tag);
  return false;
}

/** A quorum queue may need a moment. */
async function take(broker: ProbeBroker, queue: string): Promise<Taken | null> {
  for (let tries = 0; tries < 4; tries += 1) {
    const taken = await broker.get(queue);
    if (taken) return taken;
    await broker.wait(15);
  }
  return null;
}

/** The verdict is for this key: the DLRK stands for every key, `#` for any, a pattern for its keys. */
function matches(letter: LetterEnd, probe: Probe, verdict: QueueVerdict): boolean {
  if (verdict.settings["dlrk"] !== undefined || letter.why === "no-dlx") return true;
  return letter.key === probe.key || letter.key === "?" || topicMatches(letter.key.split(" ")[0]!, probe.key);
}

/** What was said of this key; of a pattern that is lost in part, one lost key stands for all that arrive nowhere. */
function saidOf(letters: readonly LetterEnd[], probe: Probe, verdict: QueueVerdict): LetterEnd[] {
  const own = letters.filter((letter) => matches(letter, probe, verdict));
  if (own.length > 0) return own;
  return letters.filter((letter) => letter.ends === "nowhere" && letter.why === "unroutable");
}

interface Seen {
  /** Where the letter lay at the end. */
  readonly seen: readonly string[];
  readonly visited: ReadonlySet<string> | null;
  readonly report: Report;
}

function judge(
  name: string,
  probe: Probe,
  verdict: QueueVerdict,
  letters: readonly LetterEnd[],
  { seen, visited, report }: Seen,
  tally: Tally,
): void {
  tally.probes += 1;
  const said = saidOf(letters, probe, verdict);
  const places = new Set(said.flatMap((letter) => (letter.why === "held" ? [] : placeOf(letter))));
  const nothing = said.some((letter) => letter.ends === "nowhere" || letter.why === "held");
  const story = `${name}: ${show(probe)}: said ${said.map((l) => `${l.ends} ${l.at} (${l.key})`).join("; ")}, seen in [${seen.join(", ")}]`;
  if (said.some((letter) => letter.ends === "unknown")) {
    tally.unknown += 1;
    return;
  }
  // A queue with a short TTL is where the letter ends and not where it lies when the probe looks.
  const fleeting = new Set(
    report.queues
      .filter(({ settings }) => Number(settings["ttl"]?.value) < 1000 || settings["maxLength"]?.value === 1)
      .map((queue) => queue.queue),
  );
  const stays = [...places].every((queue) => !fleeting.has(queue));
  const exact = said.every((letter) => letter.key === probe.key || isFixed(letter, verdict));
  const there = (queue: string): boolean =>
    fleeting.has(queue) ? (visited?.has(queue) ?? true) : seen.includes(queue);
  const allowed = !stays || (seen.every((queue) => places.has(queue)) && (seen.length > 0 || nothing));
  const complete = !exact || [...places].every(there);
  if (exact) tally.exact += 1;
  else tally.pattern += 1;
  if (!allowed || !complete) tally.wrong.push(story);
}

const placeOf = (letter: LetterEnd): string[] =>
  letter.ends === "queue" || letter.ends === "back" ? [letter.at] : [];

const isFixed = (letter: LetterEnd, verdict: QueueVerdict): boolean =>
  verdict.settings["dlrk"] !== undefined || letter.why === "no-dlx";
