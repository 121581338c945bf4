/**
 * What lies in a data file. `application_id` marks it as ours, `user_version` is {@link SCHEMA_VERSION}.
 *
 * Messages are written once: `messages` holds head (exchange, key, properties) and body and is never updated. What
 * changes about a message, and all that is needed to know the queues at start, lies in `blocks`: fixed records of
 * 64 neighbouring messages in one blob (see blocks.ts), so a start reads no bodies and a batch touches few rows.
 */
export const APPLICATION_ID = 0x444c4f31; // "DLO1"
export const SCHEMA_VERSION = 2;

// 8 KB pages hold seven 1 KB messages or two blocks: the best of 4, 8 and 16 KB for batches.
export const PAGE_SIZE = 8192;

/** Messages of vhost v have rowids from v * VHOST_SPAN: a trillion each, 8,000 vhosts below 2^53. */
export const VHOST_SPAN: number = 2 ** 40;

export const SCHEMA = `
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE vhosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE queues (
  vhost INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, durable INTEGER NOT NULL,
  auto_delete INTEGER NOT NULL, exclusive INTEGER NOT NULL, arguments BLOB NOT NULL, delivered INTEGER NOT NULL,
  PRIMARY KEY (vhost, id)
) WITHOUT ROWID;
CREATE TABLE exchanges (
  vhost INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, durable INTEGER NOT NULL,
  auto_delete INTEGER NOT NULL, internal INTEGER NOT NULL, arguments BLOB NOT NULL, PRIMARY KEY (vhost, name)
) WITHOUT ROWID;
CREATE TABLE bindings (
  n INTEGER PRIMARY KEY, vhost INTEGER NOT NULL, source TEXT NOT NULL, destination TEXT NOT NULL,
  destination_type TEXT NOT NULL, routing_key TEXT NOT NULL, arguments BLOB NOT NULL,
  UNIQUE (vhost, source, destination, destination_type, routing_key, arguments)
);
CREATE TABLE policies (
  vhost INTEGER NOT NULL, name TEXT NOT NULL, operator INTEGER NOT NULL, policy TEXT NOT NULL,
  PRIMARY KEY (vhost, name, operator)
) WITHOUT ROWID;
CREATE TABLE messages (seq INTEGER PRIMARY KEY, head BLOB NOT NULL, body BLOB);
CREATE TABLE blocks (id INTEGER PRIMARY KEY, records BLOB NOT NULL);
CREATE TABLE evidence (seq INTEGER PRIMARY KEY, attempts TEXT NOT NULL);
CREATE TABLE resends (queue TEXT NOT NULL, id TEXT NOT NULL, generation INTEGER NOT NULL,
  sent_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (queue, id)) WITHOUT ROWID;
CREATE INDEX resends_by_time ON resends (sent_at);
CREATE TABLE letters (
  n INTEGER PRIMARY KEY, kept_at INTEGER NOT NULL, store TEXT NOT NULL, queue TEXT NOT NULL, id TEXT NOT NULL,
  generation INTEGER NOT NULL, reason TEXT NOT NULL, error TEXT, attempts INTEGER NOT NULL,
  first_attempt_at INTEGER NOT NULL, failed_at INTEGER NOT NULL, state TEXT NOT NULL, fingerprint TEXT NOT NULL,
  replays INTEGER NOT NULL, fenced INTEGER NOT NULL, size INTEGER NOT NULL, kind TEXT NOT NULL, more TEXT,
  head BLOB, body BLOB, body_row INTEGER
);
CREATE INDEX letters_by_id ON letters (id, generation);
CREATE INDEX letters_by_cause ON letters (fingerprint);
CREATE INDEX letters_by_state ON letters (store, state);
CREATE TABLE ended (n INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE INDEX ended_by_time ON ended (at);
CREATE TABLE letter_groups (
  store TEXT NOT NULL, queue TEXT NOT NULL, fingerprint TEXT NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL,
  count INTEGER NOT NULL, first_seen_at INTEGER NOT NULL, last_seen_at INTEGER NOT NULL, sample INTEGER NOT NULL,
  title TEXT NOT NULL, PRIMARY KEY (store, queue, fingerprint, reason, state)
) WITHOUT ROWID;
CREATE TABLE lost (
  vhost INTEGER NOT NULL, queue TEXT NOT NULL, reason TEXT NOT NULL, why TEXT NOT NULL, count INTEGER NOT NULL,
  last_at INTEGER NOT NULL, PRIMARY KEY (vhost, queue, reason, why)
) WITHOUT ROWID;
`;

/** From format 1, in one transaction: since when a life is over is known from now on. `?` is now. */
export const FROM_1: readonly string[] = [
  "ALTER TABLE resends ADD COLUMN sent_at INTEGER NOT NULL DEFAULT 0",
  "CREATE INDEX resends_by_time ON resends (sent_at)",
  "CREATE TABLE ended (n INTEGER PRIMARY KEY, at INTEGER NOT NULL)",
  "CREATE INDEX ended_by_time ON ended (at)",
  "UPDATE resends SET sent_at = ?",
  "INSERT INTO ended SELECT n, ? FROM letters WHERE state = 'replayed'",
];
