import type { Readable } from "node:stream";

/**
 * Takes one line (without its newline, bytes as the child wrote them) of a child's stdout or stderr. Answers false
 * when it wants the child to be held back until `resume` is called.
 */
export type Output = (line: Uint8Array, from: OutputSource, resume: () => void) => boolean;

/** Where a line comes from. */
export interface OutputSource {
  readonly stream: "stdout" | "stderr";
  readonly pid: number;
}

/** A line longer than this is passed on in pieces, bytes: a child that never writes a newline fills no memory. */
const LINE_MAX = 65_536;
const NEWLINE = 10;

/** Passes lines on to the parent's own stdout and stderr, each with `[worker PID] ` before it. */
export const prefixed: Output = (line, from, resume) => {
  const target = from.stream === "stdout" ? process.stdout : process.stderr;
  const ready = target.write(Buffer.concat([Buffer.from(`[worker ${from.pid}] `), line, Buffer.of(NEWLINE)]));
  if (!ready) target.once("drain", resume);
  return ready;
};

/** Cuts a stream into lines for `output`, and the last line too when the stream ends without a newline. */
export function passLines(source: Readable, from: OutputSource, output: Output): void {
  let rest: Buffer = Buffer.alloc(0);
  const resume = (): void => {
    source.resume();
  };
  const emit = (line: Uint8Array): void => {
    if (!output(line, from, resume)) source.pause();
  };
  source.on("data", (chunk: Buffer) => {
    let data = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (let end = data.indexOf(NEWLINE); end >= 0; end = data.indexOf(NEWLINE)) {
      emit(data.subarray(0, end));
      data = data.subarray(end + 1);
    }
    for (; data.length > LINE_MAX; data = data.subarray(LINE_MAX)) emit(data.subarray(0, LINE_MAX));
    rest = data;
  });
  source.on("close", () => {
    if (rest.length > 0) emit(rest);
    rest = Buffer.alloc(0);
  });
  // A broken pipe to a child that died is told by its exit.
  source.on("error", () => {});
}
