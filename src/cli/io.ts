import { createInterface } from "node:readline/promises";
import type { Readable, Writable } from "node:stream";
import pc from "picocolors";

/** What a command sees of the world: its streams, environment and folder. Tests pass their own. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & { readonly isTTY?: boolean; readonly columns?: number };
  readonly stderr: Writable & { readonly isTTY?: boolean; readonly columns?: number };
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Aborts when the user wants to stop (Ctrl-C, SIGTERM). */
  readonly signal: AbortSignal;
}

/** Writes and waits while the reader is slow, so that a long list does not pile up in memory. */
export function write(stream: Writable, chunk: string | Uint8Array): Promise<void> {
  return new Promise((done, failed) => {
    stream.write(chunk, (error) => (error ? failed(error) : done()));
  });
}

/** True when the reader of a pipe has gone, as `head` does: a reason to end, not to complain. */
export const isBrokenPipe = (error: unknown): boolean =>
  (error as NodeJS.ErrnoException | null)?.code === "EPIPE" ||
  (error as NodeJS.ErrnoException | null)?.code === "ERR_STREAM_DESTROYED";

/** Colours for a stream: only on a terminal, and not under NO_COLOR. */
export function colorsFor(io: Io, stream: { readonly isTTY?: boolean }): ReturnType<typeof pc.createColors> {
  const wanted = stream.isTTY === true && !io.env["NO_COLOR"] && io.env["TERM"] !== "dumb";
  return pc.createColors(wanted);
}

/** A line to people: standard error. */
export const say = (io: Io, line: string): Promise<void> => write(io.stderr, `${line}\n`);

/** Whether somebody is there to answer a question. */
export const canAsk = (io: Io): boolean => io.stdin.isTTY === true && io.stderr.isTTY === true;

/** Asks a yes/no question on the terminal; anything but y or yes is a no. */
export async function confirm(io: Io, question: string): Promise<boolean> {
  const lines = createInterface({ input: io.stdin, output: io.stderr, terminal: false });
  // The end of the input (Ctrl-D) leaves a question unanswered for ever: that is a no.
  const ended = new Promise<string>((done) => lines.once("close", () => done("")));
  try {
    const reply = await Promise.race([lines.question(`${question} [y/N] `, { signal: io.signal }), ended]);
    return /^y(es)?$/i.test(reply.trim());
  } catch (error) {
    if (io.signal.aborted) return false;
    throw error;
  } finally {
    lines.close();
  }
}

/** One line of progress that rewrites itself on a terminal; nothing anywhere else. */
export class ProgressLine {
  readonly #io: Io;
  readonly #live: boolean;
  #shown = false;

  constructor(io: Io) {
    this.#io = io;
    this.#live = io.stderr.isTTY === true && io.env["TERM"] !== "dumb";
  }

  show(text: string): void {
    if (!this.#live) return;
    const width = (this.#io.stderr.columns ?? 80) - 1;
    this.#io.stderr.write(`\r\x1b[K${text.slice(0, width)}`);
    this.#shown = true;
  }

  clear(): void {
    if (this.#shown) this.#io.stderr.write("\r\x1b[K");
    this.#shown = false;
  }
}
