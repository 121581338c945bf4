import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { EXIT } from "../exit.ts";
import { write } from "../io.ts";
import type { Act } from "../program.ts";

/** The version of this package. */
export function version(): string {
  // The same distance from src/cli/commands and from dist/cli/commands.
  const text = readFileSync(new URL("../../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

export function define(command: Command, act: Act): void {
  command.action(
    act(async (io) => {
      await write(io.stdout, `${version()}\n`);
      return EXIT.done;
    }),
  );
}
