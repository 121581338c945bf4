import type { Command } from "commander";
import { DloError } from "../../core/index.ts";
import { hashPassword } from "../../dev/index.ts";
import { EXIT } from "../exit.ts";
import { type Io, say, write } from "../io.ts";
import type { Act } from "../program.ts";

async function hash(io: Io): Promise<number> {
  if (io.stdin.isTTY === true) await say(io, "Type the password and a line break, then Ctrl-D:");
  const chunks: Uint8Array[] = [];
  for await (const chunk of io.stdin) chunks.push(typeof chunk === "string" ? Buffer.from(chunk) : chunk);
  const password = Buffer.concat(chunks)
    .toString("utf8")
    .replace(/\r?\n$/, "");
  if (password === "" || /[\r\n\0]/.test(password)) {
    throw new DloError("BAD_ARGUMENT", "expected one line on standard input, the password");
  }
  await write(io.stdout, `${await hashPassword(password)}\n`);
  return EXIT.done;
}

export function define(command: Command, act: Act): void {
  command
    .addHelpText(
      "after",
      "\nReads the password from standard input, never from the command line, where others could see it. The answer is a\npasswordHash of a users file (dlo dev --users FILE).",
    )
    .action(act(hash));
}
