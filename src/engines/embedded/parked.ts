/**
 * Connections that could not be closed: without room on the disk SQLite cannot take its log into the file, and keeps
 * a lock on it until the driver's statements are collected, which nobody can ask for. Such a connection is kept and
 * used again by the next opening in this process. Others are told who holds the file; when this process ends, the
 * kernel gives the lock back.
 */
import { statSync } from "node:fs";
import type { Lock } from "./lock.ts";
import type { Database } from "./sqlite.ts";

export interface Parked {
  readonly db: Database;
  readonly lock: Lock;
}

const parked = new Map<string, Parked & { readonly inode: string }>();

export function park(path: string, one: Parked): void {
  parked.set(path, { ...one, inode: inodeOf(path) });
}

/** The connection kept for this very file; one whose file was replaced or removed is dropped. */
export function unpark(path: string): Parked | undefined {
  const one = parked.get(path);
  if (one === undefined) return undefined;
  parked.delete(path);
  if (one.inode !== "" && one.inode === inodeOf(path)) return one;
  one.db.close();
  one.lock.release();
  return undefined;
}

function inodeOf(path: string): string {
  const stat = statSync(path, { throwIfNoEntry: false, bigint: true });
  return stat === undefined ? "" : `${stat.dev}/${stat.ino}`;
}
