import { closeSync, mkdtempSync, openSync, readSync, rmdirSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Flight } from "./policy.ts";

/**
 * The flight recorder: one small unlinked file that the child writes and the parent reads after its death. What is
 * written is in the kernel at once, so it survives SIGKILL, costs about a microsecond, and wakes nobody up.
 *
 *     0  u32  run whose handler was entered last
 *     4  u32  1 + run in whose context process.exit was called; 0: not called; all ones: after a signal asked it to end
 *     8  f64  resident bytes when the memory guard struck; 0: it did not
 */
const SIZE = 16;
const ASKED = 0xffff_ffff;

/** The descriptor of the recorder in the child: stdin, stdout, stderr and the IPC channel come before it. */
export const RECORD_FD = 4;

/** The parent's side. */
export interface Recorder {
  readonly fd: number;
  read(): Flight;
  close(): void;
}

/** Opens a recorder; null when the temporary directory cannot be written (deaths are then judged without). */
export function openRecorder(): Recorder | null {
  let fd: number;
  try {
    const directory = mkdtempSync(join(tmpdir(), "dlo-worker-"));
    const file = join(directory, "flight");
    fd = openSync(file, "w+", 0o600);
    writeSync(fd, new Uint8Array(SIZE), 0, SIZE, 0);
    removeQuietly(file, directory);
  } catch {
    return null;
  }
  return {
    fd,
    read(): Flight {
      const bytes = new Uint8Array(SIZE);
      readSync(fd, bytes, 0, SIZE, 0);
      const view = new DataView(bytes.buffer);
      const exit = view.getUint32(4, true);
      const rss = view.getFloat64(8, true);
      return {
        started: view.getUint32(0, true),
        ...(exit === 0 ? {} : exit === ASKED ? { asked: true } : { exitRun: exit - 1 }),
        ...(rss === 0 ? {} : { rssBytes: rss }),
      };
    },
    close: () => closeSync(fd),
  };
}

/** An open file may refuse to be unlinked (Windows); it is then left to the system's clean-up of its temp files. */
function removeQuietly(file: string, directory: string): void {
  try {
    unlinkSync(file);
    rmdirSync(directory);
  } catch {}
}

/** The child's side: notes that the handler is about to be entered for `run`. */
export function noteStart(run: number): void {
  note32(0, run);
}

/** Notes that `process.exit` was called in the context of `run` (0: unknown). */
export function noteExit(run: number): void {
  note32(4, run + 1);
}

/** Notes that the process ends itself because a signal asked it to. */
export function noteAsked(): void {
  note32(4, ASKED);
}

/** Notes the resident size that made the guard strike. */
export function noteRss(bytes: number): void {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, bytes, true);
  write(new Uint8Array(view.buffer), 8);
}

const word = new DataView(new ArrayBuffer(4));
const wordBytes = new Uint8Array(word.buffer);

function note32(position: number, value: number): void {
  word.setUint32(0, value, true);
  write(wordBytes, position);
}

let usable = false;

/** Says that the parent gave this process a recorder. Until then nothing is written: the descriptor is not ours. */
export function useRecorder(): void {
  usable = true;
}

function write(bytes: Uint8Array, position: number): void {
  if (!usable) return;
  try {
    writeSync(RECORD_FD, bytes, 0, bytes.length, position);
  } catch {
    // The handler closed the descriptor: the death is judged without it.
    usable = false;
  }
}
