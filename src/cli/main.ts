#!/usr/bin/env node
import { EXIT } from "./exit.ts";
import { isBrokenPipe } from "./io.ts";
import { runCli } from "./program.ts";

const stop = new AbortController();
let signals = 0;
for (const name of ["SIGINT", "SIGTERM"] as const) {
  process.on(name, () => {
    signals += 1;
    if (signals > 1) process.exit(EXIT.interrupted);
    stop.abort(new Error(name));
  });
}
// A reader that has gone (`dlo ls | head`) ends a list through the failed write itself; it is no failure.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error) => {
    if (!isBrokenPipe(error)) throw error;
  });
}

const { stdin, stdout, stderr, env } = process;
const status = await runCli(process.argv.slice(2), {
  stdin,
  stdout,
  stderr,
  env,
  cwd: process.cwd(),
  signal: stop.signal,
});
// What was cut off must not keep the process; everything else ends by itself, with its output written.
if (status === EXIT.interrupted) process.exit(status);
process.exitCode = status;
