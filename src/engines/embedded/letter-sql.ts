/** The statements of the letters. */
import type { Database, Statement } from "./sqlite.ts";

export const LIVE = "state IN ('dead', 'replaying')";

/** Letters of lives that were over before a time, but for those that the letter of a later life tells of. */
export const OVER = `n IN (SELECT e.n FROM ended e JOIN letters l ON l.n = e.n WHERE e.at < ? AND l.state = 'replayed'
  AND NOT EXISTS (SELECT 1 FROM letters t WHERE t.id = l.id AND t.generation > l.generation AND t.store = l.store
    AND t.state <> 'replayed') LIMIT ?)`;

export function statements(db: Database): Record<string, Statement> {
  return {
    insert: db.prepare(`INSERT INTO letters VALUES (${Array(21).fill("?").join(", ")})`),
    has: db.prepare(
      `SELECT 1 FROM letters WHERE id = ? AND generation >= ? AND store = ? AND (fenced = 1 OR ${LIVE}) LIMIT 1`,
    ),
    anyOf: db.prepare(
      "SELECT n, kept_at FROM letters WHERE fingerprint = ? AND state = ? AND store = ? ORDER BY n DESC LIMIT 1",
    ),
    drop: db.prepare("DELETE FROM letters WHERE n = ?"),
    move: db.prepare("UPDATE letters SET state = ?, fenced = ? WHERE n = ?"),
    forgetBody: db.prepare("UPDATE letters SET body = ?, body_row = NULL WHERE n = ?"),
    unfence: db.prepare("UPDATE letters SET fenced = 0 WHERE id = ? AND store = ? AND fenced = 1"),
    end: db.prepare("INSERT OR REPLACE INTO ended VALUES (?, ?)"),
    dropEnd: db.prepare("DELETE FROM ended WHERE n = ?"),
    dropBody: db.prepare("DELETE FROM messages WHERE seq = ?"),
    bodyRow: db.prepare("SELECT body FROM messages WHERE seq = ?"),
    putGroup: db.prepare("INSERT OR REPLACE INTO letter_groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
    dropGroup: db.prepare(
      "DELETE FROM letter_groups WHERE store = ? AND queue = ? AND fingerprint = ? AND reason = ? AND state = ?",
    ),
  };
}
