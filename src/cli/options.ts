/** Options that several commands share. */
import type { Command } from "commander";

export const withData = (command: Command): Command =>
  command.option("--data <dir>", "data directory (DLO_DATA; default ./.dlo)");

export const withForm = (command: Command): Command =>
  command.option("--json", "one JSON document").option("--ndjson", "one JSON record a line");

export interface FormOptions {
  json?: boolean;
  ndjson?: boolean;
}

/** Filters of `ls` and `groups`: shorthands for a query. */
export const withFilter = (command: Command): Command =>
  command
    .option("--where <query>", "only letters that match, e.g. 'reason:poison age:>1h'")
    .option("--queue <name>", "only letters from this queue")
    .option("--reason <reason>", "only letters that died for this reason")
    .option("--group <id>", "only letters of this group")
    .option("--state <state>", "dead (default), replaying, replayed, discarded or any");

export interface FilterOptions {
  where?: string;
  queue?: string;
  reason?: string;
  group?: string;
  state?: string;
}

const quoted = (value: string): string => `"${value.replace(/[\\"]/g, "\\$&")}"`;

/** One query out of the filter options. */
export function queryOf(options: FilterOptions): string {
  const terms = options.where === undefined ? [] : [options.where];
  for (const name of ["queue", "reason", "state"] as const) {
    if (options[name] !== undefined) terms.push(`${name}:${quoted(options[name])}`);
  }
  if (options.group !== undefined) terms.push(`group:${quoted(`${options.group}*`)}`);
  return terms.join(" ");
}
