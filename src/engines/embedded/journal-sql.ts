/** The statements of a journal. */
import type { MessageState } from "../../broker/index.ts";
import type { Database, Statement } from "./sqlite.ts";

/** Messages of one insert statement where there are that many: half the time of one statement each. */
export const ROWS = 20;

export interface BlockRow {
  id: number;
  records: Uint8Array;
}

/** A message that is not in the place of its number. */
export interface Displaced {
  readonly queueId: number;
  readonly state: MessageState;
}

export function statements(
  db: Database,
): Record<
  | "insert"
  | "insertRows"
  | "deleteRange"
  | "readBlock"
  | "writeBlock"
  | "deleteBlock"
  | "allBlocks"
  | "handed"
  | "getMeta"
  | "setMeta",
  Statement
> {
  return {
    insert: db.prepare("INSERT INTO messages (seq, head, body) VALUES (?, ?, ?)"),
    insertRows: db.prepare(
      `INSERT INTO messages (seq, head, body) VALUES ${Array(ROWS).fill("(?, ?, ?)").join(", ")}`,
    ),
    deleteRange: db.prepare("DELETE FROM messages WHERE seq BETWEEN ? AND ?"),
    readBlock: db.prepare("SELECT records FROM blocks WHERE id = ?"),
    writeBlock: db.prepare("INSERT OR REPLACE INTO blocks (id, records) VALUES (?, ?)"),
    deleteBlock: db.prepare("DELETE FROM blocks WHERE id = ?"),
    allBlocks: db.prepare("SELECT id, records FROM blocks WHERE id BETWEEN ? AND ? ORDER BY id"),
    handed: db.prepare("UPDATE queues SET delivered = max(delivered, ?) WHERE vhost = ? AND id = ?"),
    getMeta: db.prepare("SELECT value FROM meta WHERE key = ?"),
    setMeta: db.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"),
  };
}
