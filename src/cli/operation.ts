/** What replay and discard share: selecting letters, showing the plan, asking, running, reporting. */

import { userInfo } from "node:os";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { DloError } from "../core/index.ts";
import type { OfficeClient } from "../http/index.ts";
import { type Plan, type Progress, runPlan, type Selection } from "../office/index.ts";
import type { OperationResult } from "../ports/index.ts";
import { EXIT } from "./exit.ts";
import { canAsk, confirm, type Io, ProgressLine, say } from "./io.ts";
import { emitJson } from "./output.ts";
import { counted, escapeLine } from "./text.ts";

export interface SelectOptions {
  group?: string;
  where?: string;
  all?: boolean;
}

export interface OperationOptions extends SelectOptions {
  dryRun?: boolean;
  yes?: boolean;
  reason?: string;
  json?: boolean;
}

export const withSelection = (command: Command): Command =>
  command
    .argument("[ids...]", "letter ids or message ids; - reads them from standard input, one a line")
    .option("--group <id>", "all dead letters of this group (a unique beginning of its id is enough)")
    .option("--where <query>", "all dead letters that match, e.g. 'reason:poison age:>1h'")
    .option("--all", "all dead letters")
    .option("--dry-run", "show the plan and change nothing")
    .option("--yes", "do not ask")
    .option("--reason <text>", "why, for the record")
    .option("--json", "the plan or the result as one JSON document");

async function idsFrom(io: Io): Promise<string[]> {
  // The first field of a line, so that `dlo ls | dlo replay -` reads what ls wrote.
  const lines = (await text(io.stdin))
    .split("\n")
    .map((line) => (line.split("\t")[0] as string).replace(/\r$/, ""));
  return lines.filter((line) => line !== "");
}

/** Reads the selection; exactly one way to select is accepted. */
export async function selectionFrom(
  io: Io,
  ids: readonly string[],
  options: SelectOptions,
): Promise<Selection> {
  const ways = [
    ids.length > 0,
    options.group !== undefined,
    options.where !== undefined,
    options.all === true,
  ];
  const given = ways.filter(Boolean).length;
  if (given !== 1) {
    throw new DloError(
      "BAD_ARGUMENT",
      `${given === 0 ? "which letters?" : "too many ways to select letters:"} expected either ids, -, --group, --where or --all`,
    );
  }
  if (options.group !== undefined) return { group: options.group };
  if (options.where !== undefined) return { where: options.where };
  if (options.all) return { all: true };
  if (!ids.includes("-")) return { ids };
  if (ids.length > 1)
    throw new DloError("BAD_ARGUMENT", "- stands alone: ids come from standard input or as arguments");
  return { ids: await idsFrom(io) };
}

const LISTED = 5;

/** The plan in words, a line each. */
export function planLines(plan: Plan, verb: string): string[] {
  const lines = [`${verb} ${counted(plan.letterIds.length, "letter")}:`];
  for (const { queue, count, exists } of plan.byQueue) {
    const where = plan.action === "replay" ? `to ${queue}` : `from ${queue}`;
    lines.push(
      `  ${where}: ${count}${exists || plan.action === "discard" ? "" : " (there is no such queue)"}`,
    );
  }
  if (plan.byReason.length > 0) {
    lines.push(`  died as ${plan.byReason.map((r) => `${r.reason} ${r.count}`).join(", ")}`);
  }
  if (plan.replayedBefore > 0) lines.push(`  replayed before: ${plan.replayedBefore}`);
  for (const letter of plan.first) lines.push(`  ${letter.id}  ${letter.error ?? letter.reason}`);
  if (plan.letterIds.length > plan.first.length)
    lines.push(`  ... and ${plan.letterIds.length - plan.first.length} more`);
  return lines.map(escapeLine);
}

/** Names letters and why; the first few, and how many more. */
async function sayEach(io: Io, letters: readonly { id: string; why: string }[], all: boolean): Promise<void> {
  const shown = all ? letters : letters.slice(0, LISTED);
  for (const { id, why } of shown) await say(io, `dlo: ${escapeLine(`${id}: ${why}`)}`);
  if (letters.length > shown.length) await say(io, `dlo: ... and ${letters.length - shown.length} more`);
}

export interface Operation {
  /** `replay`, `discard`. */
  readonly name: "replay" | "discard";
  readonly verb: string;
  readonly past: string;
  readonly act: (
    client: OfficeClient,
    ids: readonly string[],
    said: { actor: string; reason?: string },
  ) => Promise<OperationResult>;
  readonly ratePerSecond?: number;
  /** Ask even for one letter named by its id. */
  readonly always: boolean;
}

/** Whether to go on: asks where somebody can answer, else wants `--yes`. */
async function allowed(
  io: Io,
  plan: Plan,
  operation: Operation,
  options: OperationOptions,
  named: boolean,
): Promise<boolean> {
  const small = named && plan.letterIds.length === 1 && !operation.always;
  if (options.yes || small) return true;
  for (const line of planLines(plan, operation.verb)) await say(io, line);
  if (!canAsk(io)) {
    throw new DloError(
      "REFUSED",
      `this would ${operation.name} ${counted(plan.letterIds.length, "letter")} and nobody is there to ask; add --yes (or --dry-run to look)`,
    );
  }
  return confirm(io, `${operation.verb} ${counted(plan.letterIds.length, "letter")}?`);
}

const actor = (): string => {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`;
  }
};

interface Outcome {
  readonly progress: Progress;
  readonly problem: unknown;
}

async function run(
  io: Io,
  client: OfficeClient,
  plan: Plan,
  operation: Operation,
  reason?: string,
): Promise<Outcome> {
  const line = new ProgressLine(io);
  const said = reason === undefined ? { actor: actor() } : { actor: actor(), reason };
  let progress: Progress = { total: plan.letterIds.length, done: 0, failed: [], stopped: false };
  try {
    for await (progress of runPlan(plan.letterIds, {
      act: (ids) => operation.act(client, ids, said),
      ...(operation.ratePerSecond !== undefined && { ratePerSecond: operation.ratePerSecond }),
      signal: io.signal,
      now: () => performance.now(),
      sleep: (ms, signal) => sleep(ms, undefined, { signal }).catch(() => {}),
    })) {
      line.show(`${operation.past} ${progress.done} of ${progress.total}`);
    }
    return { progress, problem: undefined };
  } catch (problem) {
    return { progress, problem };
  } finally {
    line.clear();
  }
}

function statusFor(plan: Plan, { progress, problem }: Outcome): number {
  if (progress.stopped) return EXIT.interrupted;
  const bad = progress.failed.length + plan.leftOut.length;
  if (bad === 0 && problem === undefined) return EXIT.done;
  if (progress.done > 0) return EXIT.partly;
  const onlyMissing = plan.leftOut.length > 0 && plan.leftOut.every((left) => left.kind === "missing");
  return onlyMissing && progress.failed.length === 0 && problem === undefined ? EXIT.notFound : EXIT.failed;
}

/** Plans, asks, runs and reports one operation; answers the exit status. */
export async function operate(
  io: Io,
  client: OfficeClient,
  selection: Selection,
  operation: Operation,
  options: OperationOptions & { to?: string; force?: boolean },
): Promise<number> {
  const plan = await client.plan(operation.name, selection, {
    ...(options.to !== undefined && { to: options.to }),
    ...(options.force !== undefined && { force: options.force }),
  });
  const named = selection.ids !== undefined;
  if (options.dryRun) {
    if (options.json) await emitJson(io, plan);
    else for (const line of planLines(plan, `would ${operation.name}`)) await say(io, line);
    await sayEach(io, plan.leftOut, named);
    return plan.leftOut.length > 0 ? statusFor(plan, nothing(plan)) : EXIT.done;
  }
  if (plan.letterIds.length > 0 && !(await allowed(io, plan, operation, options, named))) {
    await say(io, io.signal.aborted ? "dlo: interrupted; nothing was changed" : "nothing was changed");
    return io.signal.aborted ? EXIT.interrupted : EXIT.refused;
  }
  const outcome = await run(io, client, plan, operation, options.reason);
  return finish(io, plan, operation, outcome, { named, json: options.json === true });
}

const nothing = (plan: Plan): Outcome => ({
  progress: { total: plan.letterIds.length, done: plan.letterIds.length, failed: [], stopped: false },
  problem: undefined,
});

async function finish(
  io: Io,
  plan: Plan,
  operation: Operation,
  outcome: Outcome,
  { named, json }: { named: boolean; json: boolean },
): Promise<number> {
  const { progress, problem } = outcome;
  const failed = [
    ...plan.leftOut.map(({ id, why }) => ({ id, why })),
    ...progress.failed.map(({ id, why }) => ({ id: plan.askedAs[id] ?? id, why })),
  ];
  await sayEach(io, failed, named);
  const rest = progress.total - progress.done - progress.failed.length;
  if (json) await emitJson(io, { [operation.past]: progress.done, failed, untouched: rest });
  else {
    const of = progress.total + plan.leftOut.length;
    await say(io, `${operation.past} ${progress.done} of ${counted(of, "letter")}`);
  }
  if (problem !== undefined) {
    if (!(problem instanceof DloError)) throw problem;
    await say(io, `dlo: ${escapeLine(problem.message)}`);
  }
  if (rest > 0) {
    await say(
      io,
      `${counted(rest, "letter")} had no turn and are as they were; the same command goes on with them`,
    );
  }
  return statusFor(plan, outcome);
}
