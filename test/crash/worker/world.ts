import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import type { Message } from "../../../src/core/index.ts";
import { WorkerPool, type WorkerPoolOptions } from "../../../src/worker/index.ts";

export const handlerFile = (name: string): string =>
  fileURLToPath(new URL(`handlers/${name}`, import.meta.url));

/** A pool over `trouble.mjs`, closed when the test ends; `lines` is what handlers wrote, `log` what the pool said. */
export interface TestPool {
  readonly pool: WorkerPool;
  readonly lines: { stream: string; text: string }[];
  readonly log: string[];
}

export function newPool(options: Partial<WorkerPoolOptions> = {}): TestPool {
  const lines: { stream: string; text: string }[] = [];
  const log: string[] = [];
  const say = (message: string, fields?: object): void => {
    log.push(`${message} ${JSON.stringify(fields ?? {})}`);
  };
  const pool = new WorkerPool({
    file: handlerFile("trouble.mjs"),
    execArgv: [],
    graceMs: 300,
    logger: { info: say, warn: say, error: say },
    output: (line, from) => {
      lines.push({ stream: from.stream, text: Buffer.from(line).toString("latin1") });
      return true;
    },
    ...options,
  });
  onTestFinished(() => pool.close({ drainMs: 0 }));
  return { pool, lines, log };
}

let last = 0;

export function messageOf(body: unknown, more: Partial<Message> = {}): Message {
  last += 1;
  return { id: `m${last}`, body, receiveCount: 1, firstReceivedAt: 1_700_000_000_000, ...more };
}

/** Resolves once `holds` does; fails with `what` after a generous while. */
export async function until(what: string, holds: () => boolean, limitMs = 15_000): Promise<void> {
  const end = Date.now() + limitMs;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((done) => setTimeout(done, 5));
  }
}

export function tempDir(): string {
  const directory = mkdtempSync(join(tmpdir(), "dlo-test-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** True while a process with this pid exists and is not a zombie. */
export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return true;
  }
}

/** The pids of the direct children of a process (Linux). */
export function childrenOf(pid: number): number[] {
  const found = readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const fields = readFileSync(`/proc/${name}/stat`, "latin1").replace(/^.*\) /s, "");
      return Number(fields.split(" ")[1]) === pid;
    } catch {
      return false;
    }
  });
  return found.map(Number);
}
