/** A report for people: every queue's way first, then the findings, worst first and folded. */
import type { Difference, Finding, LetterEnd, QueueVerdict, Report, Severity } from "../topology/index.ts";
import { colorsFor, type Io } from "./io.ts";
import { counted, escapeLine } from "./text.ts";

type Colors = ReturnType<typeof colorsFor>;

/** Findings of one code that are written out; the others are named. */
const SPELT_OUT = 5;

/** The lines of a report. Every name and value from outside is escaped. */
export function* reportLines(io: Io, report: Report, differences: readonly Difference[]): Generator<string> {
  const colors = colorsFor(io, io.stdout);
  yield* paths(report.queues, colors);
  yield* findingLines(report.findings, colors);
  if (report.observations.length > 0) {
    yield "";
    yield colors.bold("Seen on the broker");
    for (const seen of report.observations) yield `  ${escapeLine(`${where(seen.vhost)}${seen.why}`)}`;
  }
  if (differences.length > 0) {
    yield "";
    yield colors.bold(`File against broker: ${counted(differences.length, "difference")}`);
    for (const one of differences) {
      yield `  ${escapeLine(`${where(one.vhost)}${one.why}`)}`;
      yield `    file: ${escapeLine(one.file)}   broker: ${escapeLine(one.live)}`;
    }
  }
  if (report.notes.length > 0) {
    yield "";
    yield colors.bold("About the file");
    for (const note of report.notes) yield `  ${escapeLine(note)}`;
  }
  yield "";
  yield summary(report, differences);
}

const where = (vhost: string): string => (vhost === "" || vhost === "/" ? "" : `[${vhost}] `);

function* paths(queues: readonly QueueVerdict[], colors: Colors): Generator<string> {
  if (queues.length === 0) {
    yield "No queues here, so no letters to follow.";
    return;
  }
  yield colors.bold("Where letters end");
  let vhost: string | undefined;
  for (const queue of queues) {
    if (queue.vhost !== vhost) {
      vhost = queue.vhost;
      yield `vhost ${vhost === "" ? "(unnamed)" : escapeLine(vhost)}`;
    }
    const dlx = queue.settings["dlx"];
    const settings = dlx ? `, ${dlx.source}` : "";
    yield `  ${colors.bold(escapeLine(queue.queue))} ${colors.dim(escapeLine(`(${queue.type}, ${ROLES[queue.role]}${settings})`))}`;
    for (const line of letterLines(queue, colors)) yield `    ${line}`;
  }
}

const ROLES = { work: "work queue", wait: "waiting queue", letters: "dead-letter queue" } as const;

/** Equal ends of several reasons are one line. */
function* letterLines(queue: QueueVerdict, colors: Colors): Generator<string> {
  if (queue.type === "stream") {
    yield "a stream: reading takes nothing away, so nothing dies";
    return;
  }
  const folded = new Map<string, { reasons: string[]; letter: LetterEnd }>();
  for (const letter of queue.letters) {
    const id = JSON.stringify([letter.key, letter.ends, letter.at, letter.why ?? ""]);
    const known = folded.get(id);
    if (known) known.reasons.push(letter.reason);
    else folded.set(id, { reasons: [letter.reason], letter });
  }
  for (const { reasons, letter } of folded.values()) {
    const key =
      letter.why === "no-dlx" || letter.why === "policy-unknown" ? "" : ` key '${escapeLine(letter.key)}'`;
    yield `${reasons.join(", ")}${key} -> ${verdict(letter, queue, colors)}`;
  }
  if (queue.keysLeftOut > 0) yield `${counted(queue.keysLeftOut, "more key")} not followed`;
}

function verdict(letter: LetterEnd, queue: QueueVerdict, colors: Colors): string {
  const at = letter.at === "" ? "the default exchange" : escapeLine(letter.at);
  const via = letter.path.slice(0, -1).filter((name) => name !== letter.at);
  const through = via.length > 0 ? ` by way of ${via.map(escapeLine).join(", ")}` : "";
  if (letter.ends === "queue") {
    if (letter.why === "held") return colors.yellow(`held in ${at} itself (at-least-once finds no way)`);
    return `${colors.green(at)}${through}`;
  }
  if (letter.ends === "back") return `${colors.yellow(`back to ${at}`)}${through}`;
  if (letter.ends === "unknown")
    return `${colors.yellow("cannot be known")}: ${UNKNOWN[letter.why ?? ""] ?? ""} (${at})`;
  if (letter.why === "no-dlx") {
    const text =
      queue.role === "letters"
        ? "gone (it is a last stop: take letters out with an ack)"
        : "gone: no dead-letter exchange";
    return queue.role === "letters" ? colors.dim(text) : colors.red(text);
  }
  return `${colors.red("nowhere")}: ${LOST[letter.why ?? ""] ?? "lost"} (${at})${through}`;
}

const LOST: Readonly<Record<string, string>> = {
  "dlx-not-declared": "that exchange is not declared",
  unroutable: "nothing is bound there for this key",
  cycle: "dropped as a cycle on its return",
};

const UNKNOWN: Readonly<Record<string, string>> = {
  "routing-unknown": "routing by headers or by a plugin",
  "policy-unknown": "a policy pattern that cannot be evaluated here may apply",
  "not-in-file": "declared elsewhere",
};

function paint(severity: Severity, colors: Colors): string {
  if (severity === "error") return colors.red("error");
  return severity === "warning" ? colors.yellow("warning") : colors.cyan("info");
}

/** Findings of one code, severity and virtual host stand together. */
function* findingLines(findings: readonly Finding[], colors: Colors): Generator<string> {
  if (findings.length === 0) return;
  yield "";
  yield colors.bold("Findings, worst first");
  const groups = new Map<string, Finding[]>();
  for (const finding of findings) {
    const id = `${finding.severity}\u0000${finding.code}\u0000${finding.vhost}`;
    const known = groups.get(id);
    if (known) known.push(finding);
    else groups.set(id, [finding]);
  }
  for (const group of groups.values()) {
    const first = group[0]!;
    const many = group.length > 1 ? ` (${group.length})` : "";
    yield `${paint(first.severity, colors)} ${colors.bold(first.code)}${many}${first.vhost === "" || first.vhost === "/" ? "" : ` in vhost ${escapeLine(first.vhost)}`}`;
    let fix = "";
    for (const finding of group.slice(0, SPELT_OUT)) {
      yield `  ${escapeLine(finding.object)}: ${escapeLine(finding.why)}${finding.source === "" ? "" : colors.dim(escapeLine(` [${finding.source}]`))}`;
      if (finding.fix !== fix) yield `    fix: ${escapeLine(finding.fix)}`;
      fix = finding.fix;
    }
    const rest = group.slice(SPELT_OUT).map((finding) => escapeLine(finding.object));
    if (rest.length > 0) {
      const names = rest.slice(0, 20).join(", ");
      yield `  and ${rest.length} more: ${names}${rest.length > 20 ? ", ... (all with --json)" : ""}`;
    }
  }
}

function summary(report: Report, differences: readonly Difference[]): string {
  const count = (severity: Severity): number =>
    report.findings.filter((finding) => finding.severity === severity).length;
  const parts = [
    counted(report.queues.length, "queue"),
    counted(count("error"), "error"),
    counted(count("warning"), "warning"),
    `${count("info").toLocaleString("en")} info`,
  ];
  if (report.allowed.length > 0) parts.push(`${report.allowed.length} allowed`);
  if (differences.length > 0) parts.push(counted(differences.length, "difference"));
  const version = report.brokerVersion ?? "3.x and 4.x";
  return `${parts.join(", ")} (judged for RabbitMQ ${escapeLine(version)})`;
}
