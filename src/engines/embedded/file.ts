/**
 * Opening and making data files. A file is made whole beside its place and then linked there, so whatever stands
 * at the given path is complete: anything else is refused before SQLite sees it, and nothing is overwritten.
 */
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { DloError } from "../../core/index.ts";
import { inUse, type Lock, readHolder, takeLock } from "./lock.ts";
import { LogSync } from "./log-sync.ts";
import { park, unpark } from "./parked.ts";
import { APPLICATION_ID, FROM_1, PAGE_SIZE, SCHEMA, SCHEMA_VERSION } from "./schema.ts";
import { type Database, isSqlError, openDatabase, sqlError } from "./sqlite.ts";

/** An opened data file. */
export interface DataFile {
  readonly path: string;
  readonly db: Database;
  /** Absent in memory. */
  readonly log?: LogSync;
  /** Where there is no room to take the log in, it is left beside the file. */
  close(): void;
}

const MAGIC = "SQLite format 3\0";

// Files this process holds, across copies of this package: the kernel's lock does not keep a process from itself.
const OPEN_HERE = Symbol.for("dead-letter-office.open-files");

function openHere(): Set<string> {
  const host = globalThis as { [OPEN_HERE]?: Set<string> };
  host[OPEN_HERE] ??= new Set();
  return host[OPEN_HERE];
}

/** Opens the file, or makes it with its folder. See the codes `DATA_*` and `DISK_FULL` for what can be refused. */
export function openDataFile(file: string, now: number): DataFile {
  if (file === ":memory:") return openMemory();
  const path = place(file);
  if (openHere().has(path)) throw inUse(path, readHolder(`${path}.lock`));
  const parked = unpark(path);
  // Not looked at from outside while a connection of ours is on it: closing a second handle would end its locks.
  const isNew = parked === undefined && guarded(path, () => examine(path));
  const lock = parked?.lock ?? guarded(path, () => takeLock(path, now));
  let db = parked?.db;
  let log: LogSync;
  try {
    if (isNew && !existsSync(path)) guarded(path, () => make(path));
    db ??= openDatabase(path);
    prepare(db, path);
    lock.claim();
    verify(db, path, now);
    log = guarded(path, () => new LogSync(path));
  } catch (error) {
    const why = isBusy(error) ? inUse(path, readHolder(`${path}.lock`)) : sqlError(error, path);
    if (db !== undefined && isFull(why)) park(path, { db, lock });
    else {
      db?.close();
      lock.release();
    }
    throw why;
  }
  openHere().add(path);
  const opened = db;
  return {
    path,
    db: opened,
    log,
    close: () => {
      log.close();
      shut(opened, path, lock);
      openHere().delete(path);
    },
  };
}

function shut(db: Database, path: string, lock: Lock): void {
  if (!letGo(db)) {
    park(path, { db, lock });
    return;
  }
  db.close();
  lock.release();
}

/**
 * Gives the kernel's lock back before closing: the driver ends a connection's statements only when they are
 * collected, and until then the file would stay locked. Takes the log into the file, too. False when it cannot: for
 * want of room the log stays beside the file, the next opening takes it in, and the lock stays until then.
 */
function letGo(db: Database): boolean {
  try {
    db.exec("PRAGMA locking_mode = NORMAL; SELECT 1 FROM meta LIMIT 1");
    db.exec("PRAGMA journal_mode = DELETE; SELECT 1 FROM meta LIMIT 1");
    return true;
  } catch (error) {
    return !isFull(sqlError(error, ""));
  }
}

const isFull = (error: unknown): boolean => error instanceof DloError && error.code === "DISK_FULL";

function openMemory(): DataFile {
  const db = openDatabase(":memory:");
  db.exec(SCHEMA);
  return { path: ":memory:", db, close: () => db.close() };
}

function isBusy(error: unknown): boolean {
  return isSqlError(error) && ((error.errcode & 0xff) === 5 || (error.errcode & 0xff) === 6);
}

/** The path with its folder made and links resolved, so that one file has one name. */
function place(file: string): string {
  const path = resolve(file);
  return guarded(path, () => {
    mkdirSync(dirname(path), { recursive: true });
    return existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));
  });
}

/** Runs file system work; its failures become the product's errors. */
function guarded<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof DloError || isSqlError(error)) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOSPC" || code === "EDQUOT" || code === "EFBIG")
      throw new DloError("DISK_FULL", `no room to make ${path}`, { cause: error });
    throw new DloError("DATA_UNWRITABLE", `${path} cannot be opened for writing (${message})`, {
      cause: error,
    });
  }
}

/** Looks at what stands there with our own eyes. True: nothing does. */
function examine(path: string): boolean {
  if (!existsSync(path)) {
    if (sizeOf(`${path}-wal`) > 0) throw damaged(path, `it is missing, but its log ${path}-wal is there`);
    return true;
  }
  const stat = statSync(path);
  if (!stat.isFile()) throw new DloError("DATA_FOREIGN", `${path} is not a file`);
  if (stat.size === 0) throw damaged(path, "it is empty, which a data file never is");
  const header = Buffer.alloc(100);
  const read = guarded(path, () => {
    const fd = openSync(path, "r+");
    try {
      return readSync(fd, header, 0, 100, 0);
    } finally {
      closeSync(fd);
    }
  });
  checkHeader(path, header.subarray(0, read), stat.size);
  return false;
}

function checkHeader(path: string, header: Buffer, size: number): void {
  const magic = header.toString("latin1", 0, 16);
  if (header.length < 100 && MAGIC.startsWith(magic) && magic.length > 0)
    throw damaged(path, `it ends after ${size} bytes`);
  if (magic !== MAGIC)
    throw new DloError("DATA_FOREIGN", `${path} is not a data file of the Dead Letter Office; left as it is`);
  if (header.readUInt32BE(68) !== APPLICATION_ID)
    throw new DloError("DATA_FOREIGN", `${path} is an SQLite file of another program; left as it is`);
  checkVersion(path, header.readUInt32BE(60));
  const pageSize = header.readUInt16BE(16);
  const pages = header.readUInt32BE(28);
  // With a log beside it the file may be shorter than its header says; SQLite completes it from the log.
  if (sizeOf(`${path}-wal`) === 0 && size < pages * (pageSize === 1 ? 65536 : pageSize))
    throw damaged(path, `it has ${size} bytes and should have ${pages * pageSize}`);
}

function checkVersion(path: string, version: number): void {
  if (version > SCHEMA_VERSION)
    throw new DloError(
      "DATA_NEWER",
      `${path} is of format ${version}, made by a newer version; this one reads up to ${SCHEMA_VERSION}`,
    );
  if (version < 1) throw damaged(path, `its format number is ${version}`);
}

function damaged(path: string, why: string): DloError {
  return new DloError(
    "DATA_DAMAGED",
    `${path} is damaged: ${why}. Nothing was changed; restore it from a backup`,
  );
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** Makes a complete, synced file and gives it its name. A crash leaves at most a `.new-*` file behind. */
function make(path: string): void {
  const fresh = `${path}.new-${process.pid}`;
  try {
    rmSync(fresh, { force: true });
    const db = openDatabase(fresh);
    try {
      db.exec(
        `PRAGMA synchronous = FULL; PRAGMA page_size = ${PAGE_SIZE}; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = MEMORY`,
      );
      db.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION}`);
      db.exec(`BEGIN; ${SCHEMA} COMMIT`);
    } finally {
      db.close();
    }
    syncPath(fresh);
    try {
      linkSync(fresh, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return;
      renameSync(fresh, path);
    }
    syncPath(dirname(path));
  } finally {
    rmSync(fresh, { force: true });
  }
}

function syncPath(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } catch (error) {
    // Some systems do not sync folders; there the file's own sync has to do.
    if (!["EINVAL", "EPERM", "EISDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  } finally {
    closeSync(fd);
  }
}

function prepare(db: Database, path: string): void {
  // Synced before the first word is written: a file whose switch to the log is not on the disk loses its log.
  db.exec("PRAGMA synchronous = FULL");
  const mode = db.prepare("PRAGMA journal_mode = WAL").get() as { journal_mode: string };
  if (mode.journal_mode !== "wal")
    throw new DloError("DATA_UNWRITABLE", `${path} cannot have a write-ahead log (${mode.journal_mode})`);
  db.exec("PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY");
  // The whole life of the connection under one lock, so that a second process is kept out. Taken only after a first
  // look at the log: the other way round SQLite could not give it back without room on the disk.
  db.exec("SELECT 1 FROM sqlite_schema; PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT");
}

function upgrade(db: Database, now: number): void {
  db.exec("BEGIN IMMEDIATE");
  for (const sql of FROM_1) db.prepare(sql).run(...(sql.includes("?") ? [now] : []));
  db.exec(`PRAGMA user_version = ${SCHEMA_VERSION}; COMMIT`);
}

/** After the log was replayed: is the file whole and ours? */
function verify(db: Database, path: string, now: number): void {
  const { user_version: version } = db.prepare("PRAGMA user_version").get() as { user_version: number };
  checkVersion(path, version);
  if (version === 1) upgrade(db, now);
  db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  const { page_count: pages } = db.prepare("PRAGMA page_count").get() as { page_count: number };
  const { page_size: pageSize } = db.prepare("PRAGMA page_size").get() as { page_size: number };
  if (sizeOf(path) < pages * pageSize)
    throw damaged(path, `it has ${sizeOf(path)} bytes and should have ${pages * pageSize}`);
  const tables = db.prepare("SELECT count(*) AS n FROM sqlite_schema WHERE type = 'table'").get() as {
    n: number;
  };
  if (tables.n < SCHEMA.split("CREATE TABLE").length - 1) throw damaged(path, "tables are missing");
}
