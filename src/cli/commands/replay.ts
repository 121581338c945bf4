import type { Command } from "commander";
import { DloError } from "../../core/index.ts";
import { parseRate } from "../../office/index.ts";
import { Settings } from "../config.ts";
import type { Io } from "../io.ts";
import { withOffice } from "../office.ts";
import { type OperationOptions, operate, selectionFrom, withSelection } from "../operation.ts";
import { withData } from "../options.ts";
import type { Act } from "../program.ts";

interface ReplayOptions extends OperationOptions {
  rate?: string;
  to?: string;
  force?: boolean;
  data?: string;
}

async function replay(io: Io, ids: readonly string[], options: ReplayOptions): Promise<number> {
  const settings = await Settings.read(io, { ...options });
  const rate = settings.parsed("rate", parseRate, "a rate above 0 such as 20/s or 100/m");
  if (options.force && !options.reason) {
    throw new DloError("BAD_ARGUMENT", "--force needs --reason: why should it work this time?");
  }
  const selection = await selectionFrom(io, ids, options);
  const { to } = options;
  return withOffice(settings.data, (client) =>
    operate(
      io,
      client,
      selection,
      {
        name: "replay",
        verb: "Replay",
        past: "replayed",
        always: false,
        act: (_client, letterIds, said) =>
          client.replay(letterIds, to === undefined ? said : { ...said, to }),
        ...(rate !== undefined && { ratePerSecond: rate }),
      },
      options,
    ),
  );
}

export function define(command: Command, act: Act): void {
  withSelection(withData(command))
    .option("--rate <n/s>", "at most so many a second, evenly (DLO_RATE; e.g. 20/s or 100/m)")
    .option("--to <queue>", "to this queue instead of the one each letter failed in")
    .option("--force", "also letters that were replayed three times already; needs --reason")
    .addHelpText(
      "after",
      "\nLetters go back in order of death, each once, with attempts starting afresh. Without a terminal, more than one\nletter needs --yes. A letter that cannot be sent stays where it is and is named (exit status 3 or 1).",
    )
    .action(act(replay));
}
