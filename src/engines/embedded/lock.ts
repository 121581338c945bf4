/**
 * One file, one owner. SQLite's exclusive lock (kept by the kernel, gone with the process) is what keeps a second
 * process out; this lock file beside the data names the holder, so that the second one can say who it is.
 *
 * free -> held (created) ; stale -> held (its process is dead, or another one lives under its pid) ;
 * held by a living process -> refused ; held -> free (released, or its process died: then it is stale).
 */
import { linkSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { DloError } from "../../core/index.ts";

/** Who holds a data file. */
export interface Holder {
  readonly pid: number;
  /** When the process started, in the system's own words; null where the system does not tell. */
  readonly started: string | null;
  readonly host: string;
  /** When the file was opened, epoch ms. */
  readonly openedAt: number;
}

/** A held lock. */
export interface Lock {
  /** Writes the holder anew: called once the kernel's lock is held too, so the name is right after a race. */
  claim(): void;
  release(): void;
}

/** When a process started: boot id and start tick on Linux (a pid used again differs), null elsewhere. */
export function processStart(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field is the command in brackets and may hold anything; fields are counted behind it.
    const ticks = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
    return ticks === undefined ? null : `${boot}/${ticks}`;
  } catch {
    return null;
  }
}

function isAlive(holder: Holder): boolean {
  // Pids of another host (a shared volume, a container) say nothing here: the kernel's lock decides alone.
  if (holder.host !== hostname()) return false;
  try {
    process.kill(holder.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EPERM") return false;
  }
  const started = processStart(holder.pid);
  return started === null || holder.started === null || started === holder.started;
}

/** The holder written in a lock file; null when there is none or it is unreadable. */
export function readHolder(path: string): Holder | null {
  try {
    const holder = JSON.parse(readFileSync(path, "utf8")) as Partial<Holder>;
    if (typeof holder.pid !== "number" || typeof holder.host !== "string") return null;
    return {
      pid: holder.pid,
      host: holder.host,
      started: typeof holder.started === "string" ? holder.started : null,
      openedAt: typeof holder.openedAt === "number" ? holder.openedAt : 0,
    };
  } catch {
    return null;
  }
}

/** The error a second opener gets. */
export function inUse(file: string, holder: Holder | null): DloError {
  if (holder === null) return new DloError("DATA_IN_USE", `${file} is in use by another process`);
  const who =
    holder.pid === process.pid && holder.host === hostname()
      ? `this very process (pid ${holder.pid})`
      : `process ${holder.pid} on ${holder.host}`;
  const since = new Date(holder.openedAt).toISOString();
  return new DloError("DATA_IN_USE", `${file} is in use by ${who} since ${since}; a data file has one owner`);
}

/**
 * Takes the lock file or throws `DATA_IN_USE` naming the holder. A crash between this and `claim` leaves a stale
 * file, which the next opener takes over.
 */
export function takeLock(file: string, now: number): Lock {
  const path = `${file}.lock`;
  const me: Holder = {
    pid: process.pid,
    started: processStart(process.pid),
    host: hostname(),
    openedAt: now,
  };
  const text = `${JSON.stringify(me)}\n`;
  const own = `${path}.${process.pid}`;
  writeFileSync(own, text, { mode: 0o600 });
  try {
    linkSync(own, path);
    unlinkSync(own);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") {
      const holder = readHolder(path);
      if (holder !== null && isAlive(holder)) {
        unlinkSync(own);
        throw inUse(file, holder);
      }
    }
    renameSync(own, path);
  }
  return {
    claim: () => writeFileSync(path, text, { mode: 0o600 }),
    release: () => {
      if (readHolder(path)?.pid === process.pid) rmSync(path, { force: true });
    },
  };
}
