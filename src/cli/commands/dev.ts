import type { Command } from "commander";
import { DloError } from "../../core/index.ts";
import { type DevOptions, readUsersFile, runDev, usersOf } from "../../dev/index.ts";
import { parseDuration } from "../../office/index.ts";
import { Settings } from "../config.ts";
import { openEngine } from "../engine.ts";
import type { Io } from "../io.ts";
import { loggerTo } from "../log.ts";
import { withData } from "../options.ts";
import type { Act } from "../program.ts";

interface Options {
  amqp?: string;
  management?: string | false;
  host?: string;
  data?: string;
  compat?: string;
  memory?: boolean;
  ackTimeout?: string;
  users?: string;
}

/** From `--users FILE`, DLO_USERS, or the configuration, which may hold the path or the users themselves. */
function usersIn(settings: Settings): Pick<DevOptions, "users"> {
  const found = settings.path("users");
  if (found === undefined) return {};
  return { users: found.list === undefined ? readUsersFile(found.value) : usersOf(found.list, found.from) };
}

/** Reads `--ack-timeout`: 0 is none. */
function ackTimeoutOf(text: string | undefined): { ackTimeoutMs?: number } {
  if (text === undefined) return {};
  const ms = text === "0" ? 0 : parseDuration(text);
  if (ms === null) {
    throw new DloError("BAD_ARGUMENT", `--ack-timeout is '${text}'; expected a duration such as 30m, or 0`);
  }
  return { ackTimeoutMs: ms };
}

async function dev(io: Io, options: Options): Promise<number> {
  const { memory, data: _, users: __, ackTimeout, ...given } = options;
  const settings = await Settings.read(io, { ...options });
  const rest = { ...given, ...ackTimeoutOf(ackTimeout), ...usersIn(settings) };
  const { data } = settings;
  if (memory) return runDev(rest, io);
  // The owner serves its office too, so that ls, show and replay work beside it.
  const broker = { logger: loggerTo(io), ...(isCompat(rest.compat) && { compat: rest.compat }) };
  const engine = await openEngine(data, { command: "dlo dev", broker });
  try {
    return await runDev({ ...rest, data, broker: engine.broker }, io);
  } finally {
    await engine.close();
  }
}

const isCompat = (text: string | undefined): text is "3.x" | "4.x" => text === "3.x" || text === "4.x";

export function define(command: Command, act: Act): void {
  withData(command)
    .option("--amqp <port>", "AMQP port (default 5673; 5672 to stand in for a RabbitMQ; 0: any)")
    .option("--management <port>", "management HTTP port (default 15673; 0: any)")
    .option("--no-management", "no management HTTP API")
    .option("--host <address>", "address to listen on (default 127.0.0.1)")
    .option("--compat <line>", "behave like and announce RabbitMQ 3.x or 4.x (default 4.x)")
    .option("--ack-timeout <duration>", "longest a delivery may go without ack (default 30m; 0: for ever)")
    .option("--users <file>", "users as JSON (DLO_USERS; default: guest, from this machine only)")
    .option("--memory", "keep nothing: no data directory")
    .addHelpText(
      "after",
      "\nPrints its addresses and then 'ready' on standard output. Ctrl-C ends it; what was confirmed is kept.",
    )
    .action(act(dev));
}
