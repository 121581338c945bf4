/** Opening a data directory's broker in this process, with the office that serves it to others. */
import { join } from "node:path";
import { DloError } from "../core/index.ts";
import type { OfficeApp, OfficeServer } from "../http/index.ts";

/** The file of a data directory that holds queues and letters. */
export const dataFile = (directory: string): string => join(directory, "dlo.db");

/** An engine that this process owns. */
export interface OpenedEngine {
  readonly app: OfficeApp;
  readonly server: OfficeServer;
  close(): Promise<void>;
}

export async function openEngine(directory: string, _options: { command: string }): Promise<OpenedEngine> {
  throw new DloError("NOT_CONNECTED", `nobody owns ${directory}`);
}
