/**
 * The SQLite driver: Node's own `node:sqlite` where it is built in (22.13 and later), else
 * `@photostructure/sqlite`, which offers the same API with prebuilt binaries. Both are loaded without waiting, so
 * that a data file can be opened synchronously, and only when the first file is opened.
 */
import { createRequire } from "node:module";
import { getBuiltinModule, emitWarning as warn } from "node:process";
import { DloError } from "../../core/index.ts";

/** A value SQLite stores. Integers above 2^53 never occur here. */
export type SqlValue = null | number | string | Uint8Array;
export type Row = Record<string, SqlValue>;

/** The part of `StatementSync` this engine uses. */
export interface Statement {
  run(...values: SqlValue[]): { changes: number | bigint };
  get(...values: SqlValue[]): unknown;
  all(...values: SqlValue[]): unknown[];
  iterate(...values: SqlValue[]): IterableIterator<unknown>;
}

/** The part of `DatabaseSync` this engine uses. */
interface RawDatabase {
  exec(sql: string): void;
  prepare(sql: string): Statement;
  close(): void;
}

interface Driver {
  readonly DatabaseSync: new (path: string) => RawDatabase;
}

// SQLite's texts end at the first NUL when they are read: an error would lose its end, and two ids or queues become one.
const NUL = /[\0\ufdd0]/;
const EVERY_NUL = /[\0\ufdd0]/g;
const KEPT_NUL = /\ufdd0([01])/g;

/** A text as it is stored: NUL, and the character that stands for it, as that character and a digit. */
const keptText = (text: string): string =>
  NUL.test(text) ? text.replace(EVERY_NUL, (char) => (char === "\0" ? "\ufdd00" : "\ufdd01")) : text;

/** Texts for `json_each`, each as it is stored. */
export const textsAsJson = (texts: readonly string[]): string =>
  JSON.stringify(texts.map(keptText)).replaceAll("\ufdd0", "\\ufdd0");

const shownText = (text: string): string =>
  text.replace(KEPT_NUL, (_kept, which: string) => (which === "0" ? "\0" : "\ufdd0"));

function kept(values: SqlValue[]): SqlValue[] {
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (typeof value === "string") values[i] = keptText(value);
  }
  return values;
}

function shown<T>(row: T): T {
  if (typeof row !== "object" || row === null) return row;
  const fields = row as Record<string, unknown>;
  for (const name in fields) {
    const value = fields[name];
    if (typeof value === "string" && value.includes("\ufdd0")) fields[name] = shownText(value);
  }
  return row;
}

/** Statements on tables of bytes alone, which every message passes through. (The texts of `evidence` are JSON.) */
const OF_BYTES = /\b(?:FROM|INTO|UPDATE) (?:messages|blocks|evidence)\b/;

/** A statement whose texts come back as they were given. */
class TextSafe implements Statement {
  readonly #raw: Statement;

  constructor(raw: Statement) {
    this.#raw = raw;
  }

  run(...values: SqlValue[]): { changes: number | bigint } {
    return this.#raw.run(...kept(values));
  }

  get(...values: SqlValue[]): unknown {
    return shown(this.#raw.get(...kept(values)));
  }

  all(...values: SqlValue[]): unknown[] {
    return this.#raw.all(...kept(values)).map(shown);
  }

  *iterate(...values: SqlValue[]): IterableIterator<unknown> {
    for (const row of this.#raw.iterate(...kept(values))) yield shown(row);
  }
}

function textSafe(raw: RawDatabase, sql: string): Statement {
  const statement = raw.prepare(sql);
  return OF_BYTES.test(sql) ? statement : new TextSafe(statement);
}

/** A database whose statements are prepared once each. */
export class Database {
  readonly #raw: RawDatabase;
  readonly #statements = new Map<string, Statement>();

  constructor(raw: RawDatabase) {
    this.#raw = raw;
  }

  exec(sql: string): void {
    this.#raw.exec(sql);
  }

  /** The same text answers the same statement. */
  prepare(sql: string): Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) this.#statements.set(sql, (statement = textSafe(this.#raw, sql)));
    return statement;
  }

  close(): void {
    this.#statements.clear();
    this.#raw.close();
  }
}

let driver: Driver | undefined;

// Node 22 prints a warning when its SQLite is first loaded. It says that the API may change, which is for us to
// watch, not for the people who run a program built on us; every other warning passes.
function loadQuietly(): Driver | undefined {
  const host = globalThis.process;
  host.emitWarning = ((warning: string | Error, ...rest: unknown[]) => {
    if (String(warning).includes("SQLite is an experimental feature")) return;
    (warn as (...values: unknown[]) => void)(warning, ...rest);
  }) as typeof host.emitWarning;
  try {
    return getBuiltinModule("node:sqlite") as Driver | undefined;
  } finally {
    host.emitWarning = warn;
  }
}

function load(): Driver {
  driver ??= loadQuietly() ?? (createRequire(import.meta.url)("@photostructure/sqlite") as unknown as Driver);
  return driver;
}

/** Opens a database file (created when missing) or `:memory:`. Throws the driver's error; see {@link sqlError}. */
export function openDatabase(path: string): Database {
  return new Database(new (load().DatabaseSync)(path));
}

const FULL_ERRNOS = new Set([27, 28, 122]); // EFBIG, ENOSPC, EDQUOT on Linux

/** True for errors raised by the driver. */
export function isSqlError(error: unknown): error is Error & { errcode: number; systemErrno?: number } {
  return error instanceof Error && typeof (error as { errcode?: unknown }).errcode === "number";
}

/** Puts a driver's error into the product's words; anything else is handed back as it is. */
export function sqlError(error: unknown, file: string): unknown {
  if (!isSqlError(error)) return error;
  const options = { cause: error };
  switch (error.errcode & 0xff) {
    case 13:
      return diskFull(file, error);
    case 5:
    case 6:
      return new DloError("DATA_IN_USE", `${file} is in use by another process`, options);
    case 11:
    case 26:
      return new DloError(
        "DATA_DAMAGED",
        `${file} is damaged (${error.message}); nothing was changed. Restore it from a backup`,
        options,
      );
    case 3:
    case 8:
    case 14:
    case 23:
      return new DloError("DATA_UNWRITABLE", `${file} cannot be written (${error.message})`, options);
    case 10:
      if (error.systemErrno !== undefined && FULL_ERRNOS.has(error.systemErrno)) return diskFull(file, error);
      return new DloError(
        "DATA_UNWRITABLE",
        `the disk under ${file} reports an error (${error.message})`,
        options,
      );
    default:
      return new DloError("INTERNAL", `${file}: ${error.message}`, options);
  }
}

function diskFull(file: string, cause: Error): DloError {
  return new DloError(
    "DISK_FULL",
    `no room to write ${file}: nothing of this call is confirmed, everything confirmed before is kept`,
    { cause },
  );
}
