/** Opening a data directory's broker in this process, with the office that serves it to others. */
import { chmodSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DloError } from "../core/index.ts";
import { type BrokerSettings, type EmbeddedBroker, openBroker } from "../engines/embedded/index.ts";
import {
  findOwner,
  OfficeClient,
  type ServedOffice,
  serveOffice,
  type WorkerInfo,
  type WorkersOf,
} from "../http/index.ts";

/** The file of a data directory that holds queues and letters. */
export const dataFile = (directory: string): string => join(directory, "dlo.db");

/** Name of the store that takes the letters of a queue. */
export const deadLettersOf = (queue: string): string => `${queue}.dead`;

/** An engine that this process owns. */
export interface OpenedEngine {
  readonly broker: EmbeddedBroker;
  readonly office: ServedOffice;
  close(): Promise<void>;
}

/** The directory, for its user only where it is made here. */
function makeDirectory(directory: string): void {
  if (existsSync(directory)) return;
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    chmodSync(directory, 0o700);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DloError("DATA_UNWRITABLE", `the data directory ${directory} cannot be made: ${why}`, {
      cause,
    });
  }
}

/** Opens the directory's broker and serves its office. `DATA_IN_USE` where another process owns it. */
export async function openEngine(
  directory: string,
  options: { command: string; workers?: WorkersOf; broker?: Omit<BrokerSettings, "file"> },
): Promise<OpenedEngine> {
  makeDirectory(directory);
  const { broker: settings, ...served } = options;
  const broker = openBroker({ ...settings, file: dataFile(directory) });
  try {
    const office = await serveOffice(broker, { directory, ...served });
    return {
      broker,
      office,
      close: async () => {
        await office.close();
        await broker.close();
      },
    };
  } catch (error) {
    await broker.close();
    throw error;
  }
}

/** How long a worker waits for a short command that has the data open. */
const PATIENCE_MS = 5000;
const STEP_MS = 100;

/** Why a second worker is not started: it names the first, and both numbers where they differ. */
function secondWorker(mine: WorkerInfo, theirs: WorkerInfo, directory: string): DloError {
  const who = `process ${theirs.pid}`;
  if (theirs.queue === mine.queue && theirs.maxAttempts !== mine.maxAttempts) {
    return new DloError(
      "CONFLICT",
      `queue "${mine.queue}" has a worker with max attempts ${theirs.maxAttempts} (${who}), this one asks for ${mine.maxAttempts}; expected the same number`,
    );
  }
  return new DloError(
    "DATA_IN_USE",
    `${directory} has a worker (${who}, on queue "${theirs.queue}"); expected one worker process for a data directory: --concurrency does more at a time, another --data is another office`,
  );
}

async function ownersWorkers(directory: string): Promise<readonly WorkerInfo[]> {
  const owner = await findOwner(directory);
  return owner === null ? [] : (await new OfficeClient(owner).status()).workers;
}

async function becomeOwner(directory: string, mine: WorkerInfo): Promise<OpenedEngine> {
  const until = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await openEngine(directory, { command: "dlo work", workers: () => [mine] });
    } catch (error) {
      if (!(error instanceof DloError) || error.code !== "DATA_IN_USE") throw error;
      const workers = await ownersWorkers(directory).catch(() => []);
      const theirs = workers.find((worker) => worker.queue === mine.queue) ?? workers[0];
      if (theirs) throw secondWorker(mine, theirs, directory);
      if (Date.now() > until) throw error;
      await sleep(STEP_MS);
    }
  }
}

/** The queue and letters of a data directory, for a worker that owns it as long as it runs. */
export async function openAsWorker(
  directory: string,
  mine: WorkerInfo,
): Promise<{
  queue: ReturnType<EmbeddedBroker["queue"]>;
  deadLetters: ReturnType<EmbeddedBroker["deadLetters"]>;
  where: string;
  checkLettersKept(): Promise<void>;
  close(): Promise<void>;
}> {
  const engine = await becomeOwner(directory, mine);
  return {
    queue: engine.broker.queue(mine.queue),
    deadLetters: engine.broker.deadLetters(deadLettersOf(mine.queue)),
    where: directory,
    checkLettersKept: async () => {
      const { checkLettersKept } = await import("../dev/index.ts");
      await checkLettersKept({ queue: mine.queue, broker: engine.broker });
    },
    close: () => engine.close(),
  };
}
