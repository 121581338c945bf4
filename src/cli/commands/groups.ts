import type { Command } from "commander";
import type { LetterGroup } from "../../ports/index.ts";
import { Settings } from "../config.ts";
import { EXIT } from "../exit.ts";
import { type Io, say } from "../io.ts";
import { withOffice } from "../office.ts";
import { type FilterOptions, type FormOptions, queryOf, withData, withFilter, withForm } from "../options.ts";
import { type Column, emitList, formOf, isoTime } from "../output.ts";
import type { Act } from "../program.ts";
import { ago } from "../text.ts";

/** As much of a fingerprint as people need to type; replay and ls take any unique beginning. */
const SHORT = 12;

const columns = (now: number): Column<LetterGroup>[] => [
  { head: "GROUP", value: (g) => g.fingerprint.slice(0, SHORT), field: (g) => g.fingerprint },
  { head: "LETTERS", value: (g) => String(g.count), right: true },
  { head: "REASONS", value: (g) => g.reasons.join(",") },
  { head: "QUEUES", value: (g) => g.queues.join(",") },
  { head: "FIRST", value: (g) => isoTime(g.firstSeenAt), only: "tsv" },
  {
    head: "LAST",
    value: (g) => `${ago(g.lastSeenAt, now)} ago`,
    field: (g) => isoTime(g.lastSeenAt),
    right: true,
  },
  { head: "ERROR", value: (g) => g.title, flex: true },
];

async function groups(io: Io, options: FilterOptions & FormOptions): Promise<number> {
  const form = formOf(io, options);
  const { data } = await Settings.read(io, { ...options });
  return withOffice(data, async (client) => {
    const count = await emitList(io, form, await client.groups(queryOf(options)), columns(Date.now()));
    if (form === "table" && count === 0) await say(io, "no letters here, so no groups");
    return EXIT.done;
  });
}

export function define(command: Command, act: Act): void {
  withForm(withFilter(withData(command)))
    .addHelpText(
      "after",
      "\nIn a pipe: group, letters, reasons, queues, first, last, error, separated by tabs.",
    )
    .action(act(groups));
}
