/** The doctor's front door: a definitions text in, a report out. Pure: no clock, no file, no network. */
import { readDefinitions } from "./definitions.ts";
import { makeEnds } from "./ends.ts";
import { type Ground, prepare } from "./ground.ts";
import { lineOf } from "./policies.ts";
import { readJson, Unreadable } from "./read-json.ts";
import { byWorst, type Judge, makeJudge, some } from "./rules.ts";
import { judgeArguments, judgeBindings } from "./rules-arguments.ts";
import { judgeLetterQueues } from "./rules-letters.ts";
import { judgeLimits } from "./rules-limits.ts";
import { judgeLoops } from "./rules-loops.ts";
import { judgePolicies } from "./rules-policy.ts";
import { judgeRoutes } from "./rules-route.ts";
import type {
  AllowRule,
  Effective,
  ExamineOptions,
  Finding,
  LetterEnd,
  Observation,
  QueueModel,
  QueueVerdict,
  Report,
  Topology,
  VhostModel,
} from "./types.ts";

/** Groups of queues with letters copied alike that are told; the rest is as those. */
const MAX_COPIES = 8;

/**
 * Judges a topology: where every queue's letters end, then what is wrong.
 *
 * @param definitions - the text of a definitions file (a byte order mark and trailing commas are taken), or the
 *   parsed document. Users, permissions and other parameters in it are never looked at.
 * @returns the report. A text that cannot be read gives a report with the one finding `definitions-unreadable`
 *   (and `unreadable` with line and column); nothing is thrown for a user's mistake.
 *
 * @example
 * const report = examine(await readFile("definitions.json", "utf8"), { brokerVersion: "4.1" });
 * for (const { queue, letters } of report.queues) console.log(queue, letters.map((l) => `${l.ends} ${l.at}`));
 */
export function examine(definitions: string | object, options: ExamineOptions = {}): Report {
  let topology: Topology;
  let notes: readonly string[] = [];
  try {
    const read = typeof definitions === "string" ? readJson(definitions) : { value: definitions, notes: [] };
    notes = read.notes;
    topology = readDefinitions(read.value);
  } catch (error) {
    if (error instanceof Unreadable) return unreadable(error, options.sourceName ?? "definitions");
    throw error;
  }
  return examineTopology({ ...topology, notes: [...notes, ...topology.notes] }, options);
}

/** Judges a topology that is already in the model's shape. */
export function examineTopology(topology: Topology, options: ExamineOptions = {}): Report {
  const version = options.brokerVersion ?? topology.version;
  const known = lineOf(version) !== "unknown";
  const findings: Finding[] = undeclaredVhosts(topology);
  const queues: QueueVerdict[] = [];
  const observations: Observation[] = [];
  const elsewhere = exchangesByName(topology);
  const notes = [...topology.notes];
  for (const vhost of topology.vhosts) {
    const judged = judgeVhost(vhost, version, options, (name) =>
      elsewhere.get(name)?.find((other) => other !== vhost.name),
    );
    findings.push(...judged.findings());
    queues.push(...verdicts(judged.judge));
    if (options.live) observations.push(...observe(judged.judge));
    notes.push(...mirrors(vhost, version), ...copies(judged.judge));
  }
  const { kept, allowed } = sift(findings, options.allow ?? []);
  return {
    queues,
    findings: kept.sort(byWorst),
    allowed,
    observations,
    notes,
    ...(known && version !== undefined ? { brokerVersion: version } : {}),
  };
}

/** Runs every rule over one virtual host, those whose results others use first. */
function judgeVhost(
  vhost: VhostModel,
  version: string | undefined,
  options: ExamineOptions,
  elsewhere: (name: string) => string | undefined,
): { readonly judge: Judge; readonly findings: () => Finding[] } {
  const ground = prepare(vhost, {
    line: lineOf(version),
    partial: options.partial ?? false,
    live: options.live ?? false,
  });
  const made = makeJudge(ground, makeEnds(ground), elsewhere);
  judgeRoutes(made.judge);
  judgeLoops(made.judge);
  judgeLetterQueues(made.judge);
  judgeLimits(made.judge);
  judgePolicies(made.judge, version);
  judgeArguments(made.judge);
  judgeBindings(made.judge);
  return made;
}

function unreadable(error: Unreadable, name: string): Report {
  const { line, column, message } = error;
  return {
    queues: [],
    findings: [
      {
        code: "definitions-unreadable",
        severity: "error",
        vhost: "",
        object: name,
        why: `line ${line}, column ${column}: ${message}`,
        fix: "export the definitions from a broker, or make the file plain JSON",
        source: "file",
      },
    ],
    allowed: [],
    observations: [],
    notes: [],
    unreadable: { line, column },
  };
}

function undeclaredVhosts(topology: Topology): Finding[] {
  return topology.undeclaredVhosts.map((name) => ({
    code: "vhost-not-declared",
    severity: "error",
    vhost: name,
    object: name,
    why: `objects use vhost '${name}', which the file does not declare: the broker refuses the file`,
    fix: `add { "name": ${JSON.stringify(name)} } to "vhosts", or correct the name`,
    source: "file",
  }));
}

function exchangesByName(topology: Topology): Map<string, string[]> {
  const names = new Map<string, string[]>();
  if (topology.vhosts.length < 2) return names;
  for (const vhost of topology.vhosts) {
    for (const exchange of vhost.exchanges) {
      if (!exchange.builtin) names.set(exchange.name, [...(names.get(exchange.name) ?? []), vhost.name]);
    }
  }
  return names;
}

function mirrors(vhost: VhostModel, version: string | undefined): string[] {
  if (lineOf(version) === "3") return [];
  const names = vhost.policies
    .filter((policy) => "ha-mode" in policy.definition)
    .map((policy) => policy.name);
  if (names.length === 0) return [];
  return [`policy ${names.slice(0, 4).join(", ")}: ha-mode mirrors classic queues, which 4.x no longer does`];
}

/**
 * Queues whose letters are copied to the same several queues: a message that failed in one consumer lies among the
 * letters of others too. Not wrong by itself (an archive beside the dead-letter queue), hence a note.
 */
function copies(judge: Judge): string[] {
  const bySet = new Map<string, { readonly to: readonly string[]; readonly from: Set<string> }>();
  judge.ground.vhost.queues.forEach((queue, q) => {
    if (judge.ground.roles[q] !== "work") return;
    const byKey = new Map<string, Set<string>>();
    for (const { reason, ends, key, at } of judge.letters[q]!) {
      if (reason !== "rejected" || ends !== "queue") continue;
      byKey.set(key, (byKey.get(key) ?? new Set()).add(at));
    }
    for (const set of byKey.values()) {
      if (set.size < 2) continue;
      const to = [...set].sort();
      const id = to.join("\u0000");
      const known = bySet.get(id) ?? { to, from: new Set<string>() };
      known.from.add(queue.name);
      bySet.set(id, known);
    }
  });
  return [...bySet.values()]
    .filter(({ from }) => from.size > 1)
    .slice(0, MAX_COPIES)
    .map(
      ({ from, to }) =>
        `a letter of ${some([...from])} is copied to ${some(to)}: each gets what failed in the others' consumers; a dead-letter routing key of its own per queue keeps them apart`,
    );
}

function verdicts(judge: Judge): QueueVerdict[] {
  const { ground } = judge;
  return ground.vhost.queues.map((queue, q) => ({
    vhost: ground.vhost.name,
    queue: queue.name,
    type: queue.type,
    role: ground.roles[q]!,
    letters: judge.letters[q]!,
    settings: settingsOf(ground.settled[q]!.variants),
    keysLeftOut: ground.flow.leftOut(q),
  }));
}

function settingsOf(variants: readonly Effective[]): QueueVerdict["settings"] {
  const settings: Record<string, { value: string | number; source: string }> = {};
  for (const variant of variants) {
    for (const [key, setting] of Object.entries(variant) as [
      string,
      { value: string | number; source: string },
    ][]) {
      settings[key] ??= { value: setting.value, source: setting.source };
    }
  }
  return settings;
}

/** What a live broker shows of the letters themselves. */
function observe(judge: Judge): Observation[] {
  const { ground } = judge;
  const vhost = ground.vhost.name;
  return ground.vhost.queues.flatMap((queue, q): Observation[] => {
    const { live } = queue;
    if (!live) return [];
    const seen: Observation[] = [];
    if ((live.stuckLetters ?? 0) > 0) {
      const messages = live.stuckLetters!;
      seen.push({
        vhost,
        queue: queue.name,
        what: "letters-stuck",
        messages,
        why: `${messages} letters wait inside ${queue.name} for a way out (messages_dlx): they are not ready, count against its limits, and are retried every 3 minutes`,
      });
    }
    const ready = live.ready ?? 0;
    if (ready === 0 || live.consumers !== 0) return seen;
    const letters = ground.roles[q] === "letters";
    if (ground.roles[q] === "wait" || queue.type === "stream") return seen;
    seen.push({
      vhost,
      queue: queue.name,
      what: letters ? "letters-unattended" : "no-consumer",
      messages: ready,
      why: letters
        ? `${ready} letters in ${queue.name} and nobody consumes it`
        : `${ready} messages in ${queue.name} and no consumer`,
    });
    return seen;
  });
}

/** Takes out what an allow-list says is wanted. */
function sift(
  findings: readonly Finding[],
  rules: readonly AllowRule[],
): { kept: Finding[]; allowed: (Finding & { allowedBecause: string })[] } {
  const kept: Finding[] = [];
  const allowed: (Finding & { allowedBecause: string })[] = [];
  const tests = rules.map((rule) => ({ rule, matches: wildcard(rule.queue) }));
  for (const finding of findings) {
    const objects = finding.objects ?? [finding.object];
    const why = (object: string): AllowRule | undefined =>
      tests.find(
        ({ rule, matches }) =>
          (rule.code === "*" || rule.code === finding.code) &&
          (rule.vhost === undefined || rule.vhost === finding.vhost) &&
          matches(object),
      )?.rule;
    const rest = objects.filter((object) => why(object) === undefined);
    if (rest.length === objects.length) kept.push(finding);
    else if (rest.length === 0) allowed.push({ ...finding, allowedBecause: why(objects[0]!)!.reason });
    else kept.push({ ...finding, object: rest[0]!, objects: rest });
  }
  return { kept, allowed };
}

/** `orders.*` with `*` for any run of characters; linear, as patterns come from a file. */
function wildcard(pattern: string): (text: string) => boolean {
  const parts = pattern.split("*");
  return (text) => {
    if (parts.length === 1) return text === pattern;
    const first = parts[0]!;
    const last = parts.at(-1)!;
    if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length)
      return false;
    let at = first.length;
    for (const part of parts.slice(1, -1)) {
      const found = text.indexOf(part, at);
      if (found === -1 || found + part.length > text.length - last.length) return false;
      at = found + part.length;
    }
    return true;
  };
}

/** A virtual host as a broker sees it, and what applies there. For checks at declare time and consumer start. */
export interface BrokerView {
  readonly vhost: VhostModel;
  readonly brokerVersion?: string;
}

/** What the rules say of one queue. */
export interface QueueExamination {
  readonly letters: readonly LetterEnd[];
  readonly findings: readonly Finding[];
}

/**
 * The findings for one queue as it is being declared, given the virtual host as the broker has it at that moment
 * (with or without the queue itself). For a host that declares step by step: what is not there yet is reported as
 * missing, so call it when the application's declarations are done, or take the findings as advice.
 *
 * @example
 * const { findings } = examineQueueDeclaration(view, queueModel({ name: "orders", arguments: { "x-dead-letter-exchange": "dlx" } }));
 */
export function examineQueueDeclaration(view: BrokerView, queue: QueueModel): QueueExamination {
  const others = view.vhost.queues.filter((other) => other.name !== queue.name);
  const vhost: VhostModel = { ...view.vhost, queues: [...others, queue] };
  const { judge, findings } = judgeVhost(vhost, view.brokerVersion, {}, () => undefined);
  const q = others.length;
  const around = new Set([queue.name, ...reached(judge.ground, q)]);
  const dlxes = judge.ground.settled[q]!.variants.map((variant) => variant.dlx?.value);
  return {
    letters: judge.letters[q]!,
    findings: findings()
      .filter(({ object, objects, code }) => {
        if (objects ? objects.includes(queue.name) : object === queue.name) return true;
        if (code.startsWith("dlq-") && code !== "dlq-never-fed") return around.has(object);
        return code.startsWith("dlx-") && dlxes.includes(object);
      })
      .sort(byWorst),
  };
}

const reached = (ground: Ground, q: number): string[] =>
  ground.flow.targets(q).map((target) => ground.vhost.queues[target]!.name);

/**
 * Where one queue's letters end, by the virtual host as the broker has it. Empty for a queue that is not there.
 *
 * @example
 * lettersOf({ vhost }, "orders"); // [{ reason: "rejected", key: "dead", ends: "queue", at: "orders.dlq", ... }]
 */
export function lettersOf(view: BrokerView, queue: string): readonly LetterEnd[] {
  const q = view.vhost.queues.findIndex((candidate) => candidate.name === queue);
  if (q === -1) return [];
  const ground = prepare(view.vhost, { line: lineOf(view.brokerVersion), partial: false, live: false });
  return makeEnds(ground).lettersOf(q);
}

/** Why a consumer of this queue should not start: its letters would vanish, or come straight back for ever. */
export interface StartRefusal {
  readonly queue: string;
  readonly letters: readonly LetterEnd[];
  /** One sentence, naming the queue, the key and the place. */
  readonly message: string;
}

/**
 * For a consumer that refuses to start when its letters would vanish: undefined when every letter it rejects ends
 * in a queue, waits and returns, or cannot be followed; else what would be lost.
 *
 * @example
 * const refusal = refusesToStart(view, "orders");
 * if (refusal) throw new DloError("REFUSED", refusal.message);
 */
export function refusesToStart(view: BrokerView, queue: string): StartRefusal | undefined {
  const lost = lettersOf(view, queue).filter(
    (letter) =>
      letter.reason === "rejected" &&
      (letter.ends === "nowhere" || (letter.ends === "back" && letter.path[0] === queue)),
  );
  const first = lost[0];
  if (!first) return undefined;
  const where =
    first.ends === "back"
      ? "come straight back to it, for ever"
      : first.why === "no-dlx"
        ? "are discarded: it has no dead-letter exchange"
        : `vanish at '${first.at}' (${first.why ?? "lost"}), key '${first.key}'`;
  return { queue, letters: lost, message: `rejected messages of queue '${queue}' ${where}` };
}
