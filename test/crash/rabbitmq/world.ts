import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { connectRabbitMQ, type RabbitMQ } from "../../../src/engines/rabbitmq/index.ts";

export interface Job {
  readonly url: string;
  readonly queue: string;
  readonly type?: "quorum" | "classic";
  readonly prefetch: number;
  readonly concurrency: number;
  readonly delays: readonly number[];
  readonly maxAttempts?: number;
  readonly isolate?: boolean;
  readonly timeoutMs?: number;
  readonly ledger?: string;
  readonly until?: "idle" | "stopped";
}

/** What the handlers noted. */
export interface Notes {
  readonly starts: ReadonlyMap<string, number>;
  readonly ends: ReadonlyMap<string, number>;
}

export interface CrashWorld {
  readonly rabbit: RabbitMQ;
  readonly dir: string;
  /** Starts a consumer process; resolves when it is connected. */
  consumer(job: Job): Promise<ChildProcess>;
  /** Runs consumers one after another until one ends well; answers how many died. */
  untilIdle(job: Job, most: number): Promise<number>;
  notes(): Notes;
}

export async function crashWorld(url: string): Promise<CrashWorld> {
  const rabbit = await connectRabbitMQ({ url });
  const dir = mkdtempSync(join(tmpdir(), "dlo-rabbit-crash-"));
  const log = join(dir, "log");
  const children = new Set<ChildProcess>();
  onTestFinished(async () => {
    for (const child of children) child.kill("SIGKILL");
    await rabbit.close();
    rmSync(dir, { recursive: true, force: true });
  });
  const consumer = async (job: Job): Promise<ChildProcess> => {
    const child = fork(join(import.meta.dirname, "handlers/child.mjs"), {
      env: { ...process.env, NODE_OPTIONS: "", DLO_TEST_JOB: JSON.stringify({ ...job, log }) },
      execArgv: [],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    children.add(child);
    child.once("exit", () => children.delete(child));
    await Promise.race([once(child, "message"), once(child, "exit")]);
    return child;
  };
  return {
    rabbit,
    dir,
    consumer,
    async untilIdle(job, most) {
      for (let died = 0; died <= most; died++) {
        const child = await consumer(job);
        if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
        if (child.exitCode === 0) return died;
      }
      throw new Error(`${most} consumers died and the queue is not empty`);
    },
    notes() {
      const starts = new Map<string, number>();
      const ends = new Map<string, number>();
      let text = "";
      try {
        text = readFileSync(log, "utf8");
      } catch {} // nothing was started
      for (const line of text.split("\n")) {
        const [what, id] = line.split(" ");
        const map = what === "start" ? starts : what === "end" ? ends : null;
        if (map && id) map.set(id, (map.get(id) ?? 0) + 1);
      }
      return { starts, ends };
    },
  };
}
