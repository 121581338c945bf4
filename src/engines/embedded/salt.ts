import { randomInt } from "node:crypto";
import type { Host } from "./host.ts";

const SALT_LIMIT = 2 ** 22;

/** Bits that make this file's letter ids differ from every other file's. */
export function saltOf(host: Host): number {
  const { db } = host.file;
  const row = db.prepare("SELECT value FROM meta WHERE key = 'salt'").get() as { value: number } | undefined;
  if (row !== undefined) return row.value;
  const salt = randomInt(SALT_LIMIT);
  const insert = db.prepare("INSERT INTO meta VALUES ('salt', ?)");
  host.committer.run(() => insert.run(salt));
  return salt;
}
