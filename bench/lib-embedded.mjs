// What the embedded rows of the bench share: temp folders, timing, bodies, and a bare loop on the same driver.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const BODY = Buffer.alloc(1024, "x").toString();

export function openDriver(path) {
  const builtin = process.getBuiltinModule?.("node:sqlite");
  const { DatabaseSync } = builtin ?? createRequire(import.meta.url)("@photostructure/sqlite");
  return new DatabaseSync(path);
}

/** Runs `work(file)` in a folder of its own. */
export async function inFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), "dlo-bench-"));
  try {
    return await work(join(folder, "data.db"), folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Messages a second of a loop that handles `count`. */
export async function rate(count, work) {
  const startedAt = performance.now();
  await work();
  return (count / (performance.now() - startedAt)) * 1000;
}

/** As {@link rate}, and the processor time a message took, us: what a busy machine disturbs least. */
export async function measured(count, work) {
  const before = process.cpuUsage();
  const perSecond = await rate(count, work);
  const { user, system } = process.cpuUsage(before);
  return { rate: perSecond, cpuUs: (user + system) / count };
}

export function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

/**
 * The same writes with nothing around them: 100 rows of head and body (synced), the start counts of two blocks, then
 * the range and the blocks gone. No ids, no order, no counts kept in memory, no promises.
 */
export function bareLoop(file, count, batch) {
  const db = openDriver(file);
  db.exec("PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA locking_mode = EXCLUSIVE");
  db.exec("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 1000; PRAGMA cache_size = -16000");
  db.exec("CREATE TABLE messages (seq INTEGER PRIMARY KEY, head BLOB NOT NULL, body BLOB)");
  db.exec("CREATE TABLE blocks (id INTEGER PRIMARY KEY, records BLOB NOT NULL)");
  const insert = db.prepare("INSERT INTO messages VALUES (?, ?, ?)");
  const put = db.prepare("INSERT OR REPLACE INTO blocks VALUES (?, ?)");
  const remove = db.prepare("DELETE FROM messages WHERE seq BETWEEN ? AND ?");
  const drop = db.prepare("DELETE FROM blocks WHERE id BETWEEN ? AND ?");
  const head = Buffer.alloc(90, "h");
  const body = Buffer.from(BODY);
  const records = Buffer.alloc(60 * 64, 1);
  const commit = (sync, work) => {
    db.exec(sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    db.exec("BEGIN IMMEDIATE");
    work();
    db.exec("COMMIT");
  };
  const before = process.cpuUsage();
  const startedAt = performance.now();
  let seq = 1;
  for (let done = 0; done < count; done += batch) {
    const first = seq;
    const blocks = [];
    for (let id = Math.floor(first / 60); id <= Math.floor((first + batch - 1) / 60); id++) blocks.push(id);
    commit(true, () => {
      for (let i = 0; i < batch; i++) insert.run(seq++, head, body);
      for (const id of blocks) put.run(id, records);
    });
    commit(false, () => {
      for (const id of blocks) put.run(id, records);
    });
    commit(false, () => {
      remove.run(first, seq - 1);
      drop.run(blocks[0], blocks.at(-1));
    });
  }
  const elapsed = performance.now() - startedAt;
  const { user, system } = process.cpuUsage(before);
  db.close();
  return { rate: (count / elapsed) * 1000, cpuUs: (user + system) / count };
}
