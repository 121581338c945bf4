// Runs the command line in this process over streams of our own.
import { PassThrough, Readable } from "node:stream";
import { runCli } from "../../../src/cli/index.ts";

export interface Ran {
  status: number;
  out: string;
  err: string;
}

export interface Given {
  stdin?: string | Uint8Array;
  env?: Record<string, string>;
  cwd?: string;
  /** Standard output is a terminal of this width. */
  terminal?: number;
  /** Standard input and error are a terminal too: questions are asked. */
  asks?: boolean;
  signal?: AbortSignal;
}

const collect = (columns?: number): { stream: PassThrough & { isTTY?: boolean }; text: () => string } => {
  const chunks: Buffer[] = [];
  const stream = new PassThrough();
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  if (columns !== undefined) Object.assign(stream, { isTTY: true, columns });
  return { stream, text: () => Buffer.concat(chunks).toString("utf8") };
};

export async function dlo(args: readonly string[], given: Given = {}): Promise<Ran> {
  const out = collect(given.terminal);
  const err = collect(given.asks ? 80 : undefined);
  const stdin = Readable.from(given.stdin === undefined ? [] : [Buffer.from(given.stdin)]);
  if (given.asks) Object.assign(stdin, { isTTY: true });
  const status = await runCli(args, {
    stdin,
    stdout: out.stream,
    stderr: err.stream,
    env: { NO_COLOR: "1", ...given.env },
    cwd: given.cwd ?? "/nonexistent",
    signal: given.signal ?? new AbortController().signal,
  });
  return { status, out: out.text(), err: err.text() };
}
