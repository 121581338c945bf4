/**
 * An own record of handler starts, by message id, in one SQLite file: exact counts where the broker has none (classic
 * queues) or only a window's (quorum queues). Processes of one machine can share the file.
 */
import { DloError } from "../../core/index.ts";
import type { Maybe } from "../../ports/index.ts";

/** What a ledger knows of a message in this life. */
export interface LedgerEntry {
  /** Starts that count. */
  readonly counted: number;
  /** All starts, interrupted ones included. */
  readonly starts: number;
  /** The last start has no outcome: its process died, or it is running. */
  readonly open: boolean;
  /** Epoch ms of the first delivery. */
  readonly firstAt: number;
}

/** Where handler starts are recorded. Keys are opaque; they name queue, id and generation. */
export interface Ledger {
  look(key: string): Maybe<LedgerEntry | undefined>;
  /**
   * Records a start, durably against the death of this process, before it answers. `before` is what the message
   * itself says was counted so far, where that is more than the ledger knows. Answers the new entry.
   */
  begin(key: string, now: number, before: number): Maybe<LedgerEntry>;
  /** The last start has an outcome. `counts` false takes it back from the count. */
  end(key: string, counts: boolean): Maybe<void>;
  /** Settled for good. */
  forget(key: string): Maybe<void>;
  close(): Maybe<void>;
}

/** Notes of messages first seen longer ago are dropped when the ledger is opened: 30 days, ms. */
const STALE_MS = 30 * 86_400_000;

/** The part of `node:sqlite` that is used here; `@photostructure/sqlite` offers the same. */
interface Database {
  exec(sql: string): void;
  prepare(sql: string): { get(...values: unknown[]): unknown; run(...values: unknown[]): unknown };
  close(): void;
}

/**
 * Opens (or makes) the ledger file. A start is safe from the death of the process at once; a power cut can lose the
 * last moments, and a count is then one low.
 *
 * @throws DloError DATA_UNWRITABLE when the file cannot be opened.
 * @example
 * const ledger = await openLedger("/var/lib/orders/starts.db");
 * const queue = rabbit.queue("orders", { type: "classic", ledger });
 */
export async function openLedger(file: string): Promise<Ledger> {
  let database: Database;
  try {
    const { DatabaseSync } = await driver();
    database = new DatabaseSync(file);
    database.exec("pragma busy_timeout = 5000");
    database.exec("pragma journal_mode = wal; pragma synchronous = normal");
    database.exec(
      "create table if not exists starts (key text primary key, counted integer not null, starts integer not null, " +
        "open integer not null, first_at integer not null) without rowid",
    );
  } catch (error) {
    throw new DloError(
      "DATA_UNWRITABLE",
      `the ledger ${file} cannot be opened: ${(error as Error).message}`,
      {
        cause: error,
      },
    );
  }
  // What was settled while its note could not be taken away; nothing is in flight for a month.
  database.prepare("delete from starts where first_at < ?").run(Date.now() - STALE_MS);
  return ledgerOn(database);
}

function ledgerOn(database: Database): Ledger {
  const columns = "counted, starts, open, first_at as firstAt";
  const look = database.prepare(`select ${columns} from starts where key = ?`);
  const begin = database.prepare(
    "insert into starts (key, counted, starts, open, first_at) values (?1, ?3 + 1, ?3 + 1, 1, ?2) " +
      "on conflict (key) do update set counted = max(counted, ?3) + 1, starts = max(starts, ?3) + 1, open = 1 " +
      `returning ${columns}`,
  );
  const end = database.prepare(
    "update starts set open = 0, counted = case when ?2 = 1 then counted else max(counted - 1, 0) end where key = ?1",
  );
  const forget = database.prepare("delete from starts where key = ?");
  const entry = (row: unknown): LedgerEntry | undefined => {
    if (row === undefined) return undefined;
    const { open, ...rest } = row as { counted: number; starts: number; open: number; firstAt: number };
    return { ...rest, open: open === 1 };
  };
  return {
    look: (key) => entry(look.get(key)),
    begin: (key, now, before) => entry(begin.get(key, now, before)) as LedgerEntry,
    end: (key, counts) => void end.run(key, counts ? 1 : 0),
    forget: (key) => void forget.run(key),
    close: () => database.close(),
  };
}

/** Node's own SQLite where it is built in, else the package with the same API. */
async function driver(): Promise<{ DatabaseSync: new (file: string) => Database }> {
  try {
    // By a variable, so that neither compiler nor bundler insists on a module Node 20 does not have.
    const builtin = "node:sqlite";
    return await import(builtin);
  } catch {
    return (await import("@photostructure/sqlite")) as unknown as {
      DatabaseSync: new (file: string) => Database;
    };
  }
}
