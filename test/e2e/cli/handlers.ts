// Handler files for the tests, written into their own folder.
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** Appends a line per start and per end to `seen.log`; the body says how it goes. */
const OBEDIENT = `
import { appendFileSync, existsSync } from "node:fs";
import { join } from "node:path";
const here = import.meta.dirname;
class PermanentError extends Error { name = "PermanentError"; }
const note = (line) => appendFileSync(join(here, "seen.log"), line + "\\n");
export default async function handle(message) {
  const { body, id, receiveCount } = message;
  note("start " + id + " " + receiveCount);
  const fixed = existsSync(join(here, "fixed"));
  if (body.do === "wait") await new Promise((done) => setTimeout(done, body.ms));
  if (!fixed && body.do === "permanent") throw new PermanentError("negative price " + body.price);
  if (!fixed && body.do === "fail") throw new Error("no answer from " + body.host);
  if (!fixed && body.do === "once" && receiveCount === 1) throw new Error("busy");
  if (!fixed && body.do === "kill") process.kill(process.pid, "SIGKILL");
  if (!fixed && body.do === "hang") for (;;) {}
  note("end " + id);
}
`;

export function writeHandler(folder: string): string {
  const file = join(folder, "handler.mjs");
  writeFileSync(file, OBEDIENT);
  return file;
}
