// Runs the built command, dist/cli/main.js, as a process of its own.
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "../../..");
export const MAIN = join(root, "dist/cli/main.js");

export interface Ended {
  status: number | null;
  signal: NodeJS.Signals | null;
  out: string;
  err: string;
}

export class Running {
  out = "";
  err = "";
  readonly process: ChildProcess;
  readonly ended: Promise<Ended>;

  constructor(
    command: readonly string[],
    options: { cwd: string; env?: Record<string, string>; stdin?: string | Uint8Array },
  ) {
    const { NO_COLOR: _color, FORCE_COLOR: _force, ...env } = process.env;
    for (const name of Object.keys(env))
      if (name.startsWith("DLO_") || name.startsWith("VITEST")) delete env[name];
    this.process = spawn(process.execPath, command, {
      cwd: options.cwd,
      env: { ...env, ...options.env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.process.stdout?.on("data", (chunk: Buffer) => {
      this.out += chunk;
    });
    this.process.stderr?.on("data", (chunk: Buffer) => {
      this.err += chunk;
    });
    // A command that refuses early does not read its input.
    this.process.stdin?.on("error", () => {});
    this.process.stdin?.end(options.stdin ?? "");
    this.ended = new Promise((done, failed) => {
      this.process.once("error", failed);
      this.process.once("close", (status, signal) => done({ status, signal, out: this.out, err: this.err }));
    });
  }

  /** Waits until standard output and error together hold what is looked for. */
  async says(pattern: RegExp, withinMs = 30_000): Promise<void> {
    const until = Date.now() + withinMs;
    while (!pattern.test(this.out + this.err)) {
      if (Date.now() > until || this.process.exitCode !== null) {
        if (pattern.test(this.out + this.err)) return;
        throw new Error(`never said ${pattern}; said:\n${this.out}\n${this.err}`);
      }
      await new Promise((done) => setTimeout(done, 20));
    }
  }

  async kill(signal: NodeJS.Signals): Promise<Ended> {
    this.process.kill(signal);
    return this.ended;
  }
}

/** Waits for something to become true, with a generous limit. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  withinMs = 30_000,
): Promise<void> {
  const end = Date.now() + withinMs;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}
