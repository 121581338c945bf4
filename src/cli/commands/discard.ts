import type { Command } from "commander";
import { Settings } from "../config.ts";
import type { Io } from "../io.ts";
import { withOffice } from "../office.ts";
import { type OperationOptions, operate, selectionFrom, withSelection } from "../operation.ts";
import { withData } from "../options.ts";
import type { Act } from "../program.ts";

async function discard(io: Io, ids: readonly string[], options: OperationOptions): Promise<number> {
  const { data } = await Settings.read(io, { ...options });
  const selection = await selectionFrom(io, ids, options);
  return withOffice(data, (client) =>
    operate(
      io,
      client,
      selection,
      {
        name: "discard",
        verb: "Discard",
        past: "discarded",
        always: true,
        act: (_client, letterIds, said) => client.discard(letterIds, said),
      },
      options,
    ),
  );
}

export function define(command: Command, act: Act): void {
  withSelection(withData(command))
    .addHelpText(
      "after",
      "\nAlways asks; without a terminal it needs --yes. Discarded letters are kept as such, not erased.",
    )
    .action(act(discard));
}
