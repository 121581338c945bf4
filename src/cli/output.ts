/** Lists in the form asked for: a table on a terminal, tab-separated in a pipe, one JSON document, or a record a line. */
import { DloError } from "../core/index.ts";
import { colorsFor, type Io, write } from "./io.ts";
import { cutTo, escapeField, escapeJson, escapeLine, padEnd, padStart, widthOf } from "./text.ts";

export type Form = "table" | "tsv" | "json" | "ndjson";

/** The form of `--json`, `--ndjson`, or by what standard output is. */
export function formOf(io: Io, options: { json?: boolean; ndjson?: boolean }): Form {
  if (options.json && options.ndjson) {
    throw new DloError("BAD_ARGUMENT", "--json and --ndjson exclude each other; expected one of them");
  }
  if (options.json) return "json";
  if (options.ndjson) return "ndjson";
  return io.stdout.isTTY ? "table" : "tsv";
}

/** One column: how a record is shown to people and, where that differs, written to a pipe. */
export interface Column<T> {
  readonly head: string;
  readonly value: (record: T) => string;
  /** In a pipe; default: `value`. */
  readonly field?: (record: T) => string;
  /** `table`: only on a terminal; `tsv`: only in a pipe. */
  readonly only?: "table" | "tsv";
  readonly right?: boolean;
  /** Takes what room is left and is cut to it. */
  readonly flex?: boolean;
}

const GAP = "  ";
const MIN_FLEX = 12;

function widths(
  cells: readonly (readonly string[])[],
  columns: readonly Column<never>[],
  room: number,
): number[] {
  const natural = columns.map((_column, i) => Math.max(...cells.map((row) => widthOf(row[i] ?? ""))));
  const total = natural.reduce((a, b) => a + b, 0) + GAP.length * (columns.length - 1);
  let excess = total - room;
  for (const [i, column] of columns.entries()) {
    if (!column.flex || excess <= 0) continue;
    const give = Math.min(excess, Math.max(0, (natural[i] ?? 0) - MIN_FLEX));
    natural[i] = (natural[i] ?? 0) - give;
    excess -= give;
  }
  return natural;
}

/** A table's lines, heads first; every cell escaped. */
export function tableLines<T>(records: readonly T[], columns: readonly Column<T>[], room: number): string[] {
  const shown = columns.filter((column) => column.only !== "tsv");
  const cells = [
    shown.map((column) => column.head),
    ...records.map((record) => shown.map((column) => escapeLine(column.value(record)))),
  ];
  const wide = widths(cells, shown as unknown as Column<never>[], room);
  return cells.map((row) =>
    row
      .map((cell, i) => {
        const text = cutTo(cell, wide[i] ?? 0);
        return shown[i]?.right ? padStart(text, wide[i] ?? 0) : padEnd(text, wide[i] ?? 0);
      })
      .join(GAP)
      .trimEnd(),
  );
}

async function table<T>(io: Io, records: readonly T[], columns: readonly Column<T>[]): Promise<void> {
  if (records.length === 0) return;
  const colors = colorsFor(io, io.stdout);
  const [head = "", ...rows] = tableLines(records, columns, io.stdout.columns ?? 80);
  await write(io.stdout, `${[colors.bold(head), ...rows].join("\n")}\n`);
}

const line = <T>(record: T, columns: readonly Column<T>[]): string =>
  columns
    .filter((column) => column.only !== "table")
    .map((column) => escapeField((column.field ?? column.value)(record)))
    .join("\t");

const jsonOf = (value: unknown, indent?: number): string => escapeJson(JSON.stringify(value, null, indent));

/**
 * Writes a list. Tables are measured as a whole; the other forms are written as records come, so that a list of any
 * length takes little memory. Answers how many there were; an empty table writes nothing, so the caller can say why.
 */
export async function emitList<T>(
  io: Io,
  form: Form,
  records: AsyncIterable<T> | Iterable<T>,
  columns: readonly Column<T>[],
  toJson: (record: T) => unknown = (record) => record,
): Promise<number> {
  let count = 0;
  if (form === "table") {
    const all: T[] = [];
    for await (const record of records) all.push(record);
    await table(io, all, columns);
    return all.length;
  }
  for await (const record of records) {
    if (form === "tsv") await write(io.stdout, `${line(record, columns)}\n`);
    else if (form === "ndjson") await write(io.stdout, `${jsonOf(toJson(record))}\n`);
    else await write(io.stdout, `${count === 0 ? "[\n" : ",\n"}${jsonOf(toJson(record))}`);
    count += 1;
  }
  if (form === "json") await write(io.stdout, count === 0 ? "[]\n" : "\n]\n");
  return count;
}

/** One document. */
export const emitJson = (io: Io, value: unknown): Promise<void> => write(io.stdout, `${jsonOf(value, 2)}\n`);

/** Times in pipes and documents. */
export const isoTime = (at: number): string => new Date(at).toISOString();
