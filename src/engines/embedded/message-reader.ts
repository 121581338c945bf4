/** Reads messages back from the file, one by one or, for who reads one after the other, many at a time. */
import type { Content } from "../../broker/index.ts";
import { decodeHead } from "./content.ts";
import type { Database, Statement } from "./sqlite.ts";

/** Numbers read at once. */
const AHEAD = 64;
/** Larger bodies are read when they are asked for, bytes: so 1 MB at most is read ahead. */
const SMALL = 16_384;
const NO_BODY = new Uint8Array(0);

// One row and one blob for all of them: an object and two buffers for each took twice as long. Text keeps bytes as
// they are; what it must not do is be looked at as text.
const READ_MANY = `
  SELECT group_concat(seq || ' ' || length(head) || ' ' || ifnull(length(body), 0), ' ') AS layout,
    CAST(group_concat(CAST(head AS TEXT) || ifnull(CAST(body AS TEXT), ''), '') AS BLOB) AS bytes
  FROM (SELECT seq, head, body FROM messages
    WHERE seq >= ?1 AND seq < ?2 AND (seq = ?1 OR length(body) <= ${SMALL}) ORDER BY seq)`;

export class MessageReader {
  readonly #one: Statement;
  readonly #moved: Statement;
  readonly #many: Statement;
  #next = Number.POSITIVE_INFINITY;

  constructor(db: Database) {
    this.#one = db.prepare("SELECT head, body FROM messages WHERE seq = ?");
    this.#moved = db.prepare(
      "SELECT m.head, b.body FROM messages m JOIN messages b ON b.seq = ? WHERE m.seq = ?",
    );
    this.#many = db.prepare(READ_MANY);
  }

  /** The message in `row` whose body lies in `bodyRow`; undefined: it is not there. Others on the way are `found`. */
  read(row: number, bodyRow: number, found: (row: number, content: Content) => void): Content | undefined {
    if (bodyRow !== row) return contentOf(this.#moved.get(bodyRow, row));
    const goesOn = row >= this.#next && row < this.#next + AHEAD;
    this.#next = row + (goesOn ? AHEAD : 1);
    return goesOn ? this.#readMany(row, found) : contentOf(this.#one.get(row));
  }

  #readMany(first: number, found: (row: number, content: Content) => void): Content | undefined {
    const { layout, bytes } = this.#many.get(first, first + AHEAD) as {
      layout: string | null;
      bytes: Uint8Array;
    };
    if (layout === null) return undefined;
    const numbers = layout.split(" ").map(Number);
    let at = 0;
    let asked: Content | undefined;
    for (let i = 0; i < numbers.length; i += 3) {
      const [row, head, body] = numbers.slice(i, i + 3) as [number, number, number];
      const content = decodeHead(bytes.subarray(at, at + head), bytes.subarray(at + head, at + head + body));
      at += head + body;
      if (row === first) asked = content;
      else found(row, content);
    }
    return asked;
  }
}

function contentOf(found: unknown): Content | undefined {
  const row = found as { head: Uint8Array; body: Uint8Array | null } | undefined;
  return row === undefined ? undefined : decodeHead(row.head, row.body ?? NO_BODY);
}
