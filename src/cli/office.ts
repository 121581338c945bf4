/**
 * The way to a data directory's office, whoever owns it: the socket of its owner where there is one, else this process
 * opens it, becomes the owner for as long as the command runs, and serves the same socket to others meanwhile.
 */
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DloError } from "../core/index.ts";
import { type Fetch, findOwner, OfficeClient } from "../http/index.ts";
import { dataFile, type OpenedEngine, openEngine } from "./engine.ts";

/** How long to wait for an owner that is there but does not answer yet (it starts, or it ends). */
const PATIENCE_MS = 5000;
const STEP_MS = 50;

/** Answers through the owner of the moment, or becomes the owner. */
export class Office {
  readonly #directory: string;
  readonly #command: string;
  readonly #create: boolean;
  #opened: OpenedEngine | undefined;
  #remote: Fetch | undefined;

  constructor(directory: string, options: { command: string; create: boolean }) {
    this.#directory = directory;
    this.#command = options.command;
    this.#create = options.create;
  }

  /** True while this process owns the data. */
  get isOwner(): boolean {
    return this.#opened !== undefined;
  }

  readonly fetch: Fetch = async (request) => {
    if (this.#opened) return this.#opened.office.app.fetch(request);
    // A request whose owner went away before it was taken can be asked again; one that was cut in the middle cannot.
    for (let tries = 0; ; tries += 1) {
      const way = await this.#way();
      try {
        return await way(request.clone() as Request);
      } catch (error) {
        const code = ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code;
        if (tries > 3 || (code !== "ECONNREFUSED" && code !== "ENOENT")) throw error;
        this.#remote = undefined;
      }
    }
  };

  async #way(): Promise<Fetch> {
    const until = Date.now() + PATIENCE_MS;
    for (;;) {
      this.#remote ??= (await findOwner(this.#directory)) ?? undefined;
      if (this.#remote) return this.#remote;
      if (!this.#create && !existsSync(dataFile(this.#directory))) throw absent(this.#directory);
      try {
        this.#opened = await openEngine(this.#directory, { command: this.#command });
        return (request) => this.#opened!.office.app.fetch(request);
      } catch (error) {
        // In use without a socket: its owner is just starting or ending, or never serves one.
        const inUse = error instanceof DloError && error.code === "DATA_IN_USE";
        if (!inUse || Date.now() > until) throw error;
        await sleep(STEP_MS);
      }
    }
  }

  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await opened?.close();
  }
}

const absent = (directory: string): DloError =>
  new DloError(
    "NOT_FOUND",
    `there is no data in ${directory} (no ${basename(dataFile(directory))}); "dlo send" makes it, --data or DLO_DATA names another directory`,
  );

/**
 * Runs a command's work with the office of a data directory. Without `create`, a directory that holds no data is
 * `NOT_FOUND`, so that a mistyped path does not make an empty office.
 */
export async function withOffice<T>(
  directory: string,
  work: (client: OfficeClient) => Promise<T>,
  options: { create?: boolean } = {},
): Promise<T> {
  const office = new Office(directory, { command: "dlo", create: options.create === true });
  try {
    return await work(new OfficeClient(office.fetch));
  } finally {
    await office.close();
  }
}
