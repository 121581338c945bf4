import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Committer, SYNC_AFTER_MS, type Writer } from "../../../src/engines/embedded/committer.ts";
import type { LogSync } from "../../../src/engines/embedded/log-sync.ts";
import { type Database, openDatabase } from "../../../src/engines/embedded/sqlite.ts";

/** A log whose syncs end when the test says so. */
class SlowLog {
  isRunning = false;
  started = 0;
  atOnce = 0;
  end: (error: Error | null) => void = () => {};

  start(done: (error: Error | null) => void): void {
    this.started++;
    this.isRunning = true;
    this.end = (error) => {
      this.isRunning = false;
      done(error);
    };
  }

  now(): void {
    this.atOnce++;
  }
}

let db: Database;
let log: SlowLog;
let committer: Committer;
let pending = false;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  db = openDatabase(":memory:");
  log = new SlowLog();
  committer = new Committer(db, "data.db", "full", undefined, log as unknown as LogSync);
  const writer: Writer = {
    get isPending() {
      return pending;
    },
    size: 1,
    write: () => {},
    written: () => {
      pending = false;
    },
  };
  committer.writers.add(writer);
});
afterEach(() => {
  vi.useRealTimers();
  db.close();
});

function commit(sync: boolean): void {
  pending = true;
  committer.touch(sync);
  committer.flush();
}

it("syncs what was committed without it once its time has come, and one sync after the other", () => {
  commit(false);
  commit(false);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  expect(log.started).toBe(1);
  // The disk is slow: what is committed meanwhile has its time, too, and is synced once the first is through.
  commit(false);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  expect(log.started).toBe(1);
  log.end(null);
  expect(log.started).toBe(2);
  log.end(null);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  expect(log.started).toBe(2);
});

it("leaves what was committed during a sync its own time", () => {
  commit(false);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  commit(false);
  log.end(null);
  expect(log.started).toBe(1);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  expect(log.started).toBe(2);
});

it("has nothing to sync after a synced commit", () => {
  commit(false);
  commit(true);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  expect(log.started).toBe(0);
});

it("ends the broker when a sync fails: nobody knows what the disk holds then", () => {
  const failed: string[] = [];
  committer.onFailed = (error) => failed.push(`${error.code} ${error.message}`);
  commit(false);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  log.end(new Error("EIO: i/o error, fdatasync"));
  expect(failed).toEqual([
    "DATA_UNWRITABLE the disk under data.db reports an error (EIO: i/o error, fdatasync)",
  ]);
  expect(() => committer.check()).toThrow("reports an error");
});

it("syncs what is left before it closes, also what a sync is running for", () => {
  commit(false);
  vi.advanceTimersByTime(SYNC_AFTER_MS);
  expect(committer.close()).toBe(null);
  expect(log.atOnce).toBe(1);
});
