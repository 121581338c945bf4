/**
 * Runs as a thread of the child process, so that it works while the handler's event loop is blocked. It ends the
 * process with SIGKILL when the parent is gone, or when the process has grown over its memory limit.
 */
import { workerData } from "node:worker_threads";
import type { ChildSetup } from "./ipc.ts";
import { noteRss, useRecorder } from "./record.ts";

const { parentPid, rssLimitBytes, recorded } = workerData as ChildSetup;
if (recorded) useRecorder();

/** A dead parent is noticed within this, ms; the promise is one second. */
const PARENT_EVERY_MS = 200;
/** The guard looks this often, ms: a handler that allocates a gigabyte a second overshoots by 50 MB. */
const MEMORY_EVERY_MS = 50;

const end = (): void => {
  process.kill(process.pid, "SIGKILL");
};

/** The parent pid changes when the parent dies on Unix; where it does not (Windows), asking for the pid fails. */
function parentGone(): boolean {
  if (process.ppid !== parentPid) return true;
  try {
    process.kill(parentPid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}

setInterval(() => {
  if (parentGone()) end();
}, PARENT_EVERY_MS);

if (rssLimitBytes > 0) {
  setInterval(() => {
    const bytes = process.memoryUsage.rss();
    if (bytes > rssLimitBytes) {
      noteRss(bytes);
      end();
    }
  }, MEMORY_EVERY_MS);
}
