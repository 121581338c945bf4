/**
 * Syncs SQLite's log beside the event loop. What the log holds is durable once the system has written it out,
 * whoever asks for that, through whichever handle; a thread can, so nobody waits while the disk works.
 */
import { closeSync, fdatasync, fdatasyncSync, openSync } from "node:fs";

export class LogSync {
  readonly #fd: number;
  #running = false;
  #closed = false;

  /** The log of this data file, which must be open. */
  constructor(file: string) {
    // Opened now: what is at this path later may be another file. SQLite keeps no locks on it that closing could end.
    this.#fd = openSync(`${file}-wal`, "r+");
  }

  get isRunning(): boolean {
    return this.#running;
  }

  /** All that was committed before this call is on the disk when `done` is called without an error. One at a time. */
  start(done: (error: Error | null) => void): void {
    this.#running = true;
    fdatasync(this.#fd, (error) => {
      this.#running = false;
      if (this.#closed) closeSync(this.#fd);
      else done(error);
    });
  }

  /** The same, at once. @throws what the system reports */
  now(): void {
    fdatasyncSync(this.#fd);
  }

  /** Forgets what runs. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (!this.#running) closeSync(this.#fd);
  }
}
