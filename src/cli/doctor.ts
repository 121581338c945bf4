/** `dlo doctor`: where do this queue's letters end? Offline on a definitions file, live through the management API. */
import { type Command, InvalidArgumentError } from "commander";
import { DloError } from "../core/index.ts";
import {
  atLeast,
  compareDefinitions,
  type Difference,
  examine,
  type Report,
  type Severity,
} from "../topology/index.ts";
import { readAllowList, readLive, readSource, type Source } from "./doctor-source.ts";
import { reportLines } from "./doctor-text.ts";
import { EXIT } from "./exit.ts";
import { type Io, say, write } from "./io.ts";
import { emitJson } from "./output.ts";
import type { Act } from "./program.ts";
import { escapeLine } from "./text.ts";

/** The options of `dlo doctor`, as commander gives them. */
export interface DoctorOptions {
  readonly json?: boolean;
  readonly failOn?: Severity;
  readonly brokerVersion?: string;
  readonly partial?: boolean;
  readonly allow?: string;
  /** Management (or AMQP) address of a broker the file is held against. */
  readonly against?: string;
  readonly vhost?: string;
}

const SEVERITIES: readonly Severity[] = ["error", "warning", "info"];

/**
 * Examines a file, standard input (`-`) or a live broker (a URL) and writes the report.
 *
 * @returns the exit status: 0 clean, 10 when there is a finding at or above `failOn` (default warning) or the file
 *   and the broker differ, 2 for a text that cannot be read.
 * @throws DloError `BAD_ARGUMENT` (exit 2) for wrong options, `NOT_CONNECTED` (exit 5) for a broker that cannot be
 *   asked. Nothing is ever changed, so a crash in the middle leaves nothing behind.
 *
 * @example
 * const status = await runDoctor(io, "definitions.json", { failOn: "error", brokerVersion: "4.1" });
 */
export async function runDoctor(io: Io, target: string, options: DoctorOptions = {}): Promise<number> {
  const source = await readSource(io, target, options.vhost);
  if (source.live && options.against !== undefined) {
    throw new DloError(
      "BAD_ARGUMENT",
      "--against compares a file with a broker; expected a file, not an address",
    );
  }
  if (source.live && options.partial) {
    throw new DloError("BAD_ARGUMENT", "--partial is for files; a live broker always says everything");
  }
  const report = examineSource(source, options, await readAllowList(io, target, options.allow));
  const unreadable = report.unreadable !== undefined;
  const differences = unreadable || options.against === undefined ? [] : await compare(io, source, options);
  if (options.json)
    await emitJson(io, { ...report, ...(options.against === undefined ? {} : { differences }) });
  else if (unreadable) {
    await say(io, `dlo: ${escapeLine(source.name)}: ${escapeLine(report.findings[0]!.why)}`);
  } else await print(io, report, differences);
  if (unreadable) return EXIT.usage;
  const threshold = options.failOn ?? "warning";
  const bad =
    differences.length > 0 || report.findings.some((finding) => atLeast(finding.severity, threshold));
  return bad ? EXIT.findings : EXIT.done;
}

function examineSource(
  source: Source,
  options: DoctorOptions,
  allow: Awaited<ReturnType<typeof readAllowList>>,
): Report {
  const report = examine(source.definitions, {
    sourceName: source.name,
    live: source.live,
    partial: options.partial ?? false,
    allow,
    ...(options.brokerVersion === undefined ? {} : { brokerVersion: options.brokerVersion }),
  });
  return source.notes.length === 0 ? report : { ...report, notes: [...source.notes, ...report.notes] };
}

async function compare(io: Io, source: Source, options: DoctorOptions): Promise<Difference[]> {
  const { definitions } = await readLive(io, options.against!, options.vhost);
  return compareDefinitions(source.definitions, definitions, options.vhost ?? "/");
}

async function print(io: Io, report: Report, differences: readonly Difference[]): Promise<void> {
  let chunk = "";
  for (const line of reportLines(io, report, differences)) {
    chunk += `${line}\n`;
    if (chunk.length < 65_536) continue;
    await write(io.stdout, chunk);
    chunk = "";
  }
  await write(io.stdout, chunk);
}

function severity(value: string): Severity {
  const found = SEVERITIES.find((name) => name === value);
  if (!found) throw new InvalidArgumentError(`expected ${SEVERITIES.join(", ")}.`);
  return found;
}

function version(value: string): string {
  if (!/^v?\d+(\.\d+)*([.-].*)?$/.test(value))
    throw new InvalidArgumentError("expected a version such as 3.10.8 or 4.1.");
  return value;
}

/** Adds arguments, options and help of `dlo doctor` to a commander command. */
export function doctorCommand(command: Command): Command {
  return command
    .argument(
      "<source>",
      "definitions.json, - for standard input, or http://host:15672 (amqp:// is turned into it)",
    )
    .option("--json", "one JSON document, safe to paste")
    .option("--fail-on <severity>", "exit 10 at or above: error, warning (default) or info", severity)
    .option("--broker-version <version>", "judge for this version; without one for 3.x and 4.x", version)
    .option("--partial", "the file is not all: what it does not declare is declared elsewhere")
    .option("--allow <file>", "wanted losses; default <source>.allow.json beside the file")
    .option("--against <url>", "compare the file with this live broker")
    .option("--vhost <name>", "only this virtual host of a live broker")
    .addHelpText(
      "after",
      "\nSays for every queue where its dead letters end, then what is wrong, worst first.\nThe broker needs to give the user the tag 'management', no more. Exit status: 0 clean, 10 findings, 2 unreadable, 5 not connected.",
    );
}

export function define(command: Command, act: Act): void {
  doctorCommand(command).action(act(runDoctor));
}
