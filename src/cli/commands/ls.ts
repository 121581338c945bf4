import type { Command } from "commander";
import { DloError } from "../../core/index.ts";
import type { OfficeClient } from "../../http/index.ts";
import type { LetterSummary } from "../../ports/index.ts";
import { Settings } from "../config.ts";
import { EXIT } from "../exit.ts";
import { type Io, say } from "../io.ts";
import { withOffice } from "../office.ts";
import { type FilterOptions, type FormOptions, queryOf, withData, withFilter, withForm } from "../options.ts";
import { type Column, emitList, formOf, isoTime } from "../output.ts";
import type { Act } from "../program.ts";
import { ago } from "../text.ts";

/** Rows of a table when nothing is said: what a person reads, not a flood. */
const TABLE_ROWS = 100;
const PAGE = 500;

interface LsOptions extends FilterOptions, FormOptions {
  limit?: string;
  data?: string;
}

const columns = (now: number): Column<LetterSummary>[] => [
  { head: "LETTER", value: (l) => l.letterId, only: "tsv" },
  { head: "MESSAGE", value: (l) => l.id, flex: true },
  { head: "QUEUE", value: (l) => l.sourceQueue },
  { head: "REASON", value: (l) => l.reason },
  { head: "ATTEMPTS", value: (l) => String(l.attempts), right: true },
  {
    head: "DIED",
    value: (l) => `${ago(l.failedAt, now)} ago`,
    field: (l) => isoTime(l.failedAt),
    right: true,
  },
  { head: "STATE", value: (l) => l.state },
  { head: "ERROR", value: (l) => l.error ?? "", flex: true },
];

async function* pages(
  client: OfficeClient,
  where: string,
  limit: number,
  more: () => void,
): AsyncGenerator<LetterSummary> {
  let left = limit;
  let after: string | undefined;
  for (;;) {
    const size = Math.min(PAGE, left);
    const page = await client.letters(where, after === undefined ? { limit: size } : { limit: size, after });
    yield* page.letters;
    left -= page.letters.length;
    if (page.next === null) return;
    if (left <= 0) return more();
    after = page.next;
  }
}

function limitOf(text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  if (/^\d+$/.test(text) && Number(text) > 0) return Number(text);
  throw new DloError("BAD_ARGUMENT", `--limit is "${text}"; expected a whole number of at least 1`);
}

async function ls(io: Io, options: LsOptions): Promise<number> {
  const form = formOf(io, options);
  const limit = limitOf(options.limit, form === "table" ? TABLE_ROWS : Number.POSITIVE_INFINITY);
  const { data } = await Settings.read(io, { ...options });
  return withOffice(data, async (client) => {
    let cut = false;
    const found = pages(client, queryOf(options), limit, () => {
      cut = true;
    });
    const count = await emitList(io, form, found, columns(Date.now()));
    if (form === "table" && count === 0) await say(io, "no letters here");
    if (cut) await say(io, `the first ${count} are shown; --limit shows more`);
    return EXIT.done;
  });
}

export function define(command: Command, act: Act): void {
  withForm(withFilter(withData(command)))
    .option("--limit <n>", `at most this many (default: ${TABLE_ROWS} on a terminal, all in a pipe)`)
    .addHelpText(
      "after",
      "\nIn a pipe: letter id, message id, queue, reason, attempts, died at, state, error, separated by tabs.",
    )
    .action(act(ls));
}
