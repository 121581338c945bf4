/**
 * The command line: which commands there are, and how one of them is run. A command's module is loaded only when it is
 * asked for, so that `dlo version` does not wait for a database.
 */
import { Command, CommanderError } from "commander";
import { DloError } from "../core/index.ts";
import { EXIT, exitOf } from "./exit.ts";
import { type Io, isBrokenPipe, say } from "./io.ts";
import { escapeLine, escapeLines } from "./text.ts";

/** What a command's module exports: its options on `command`, and an action that calls `run` with the exit status. */
export interface CommandModule {
  /** Adds arguments, options and help to the command and says what to do. The action answers the exit status. */
  define(command: Command, act: Act): void;
}

/** Wraps a command's work as a commander action: gives it the streams and keeps the exit status it answers. */
export type Act = <A extends unknown[]>(
  work: (io: Io, ...args: A) => Promise<number>,
) => (...args: A) => Promise<void>;

interface Entry {
  readonly name: string;
  readonly alias?: string;
  readonly about: string;
  /** Obeys the stop signal itself, at a point where nothing is half done; the others are cut off. */
  readonly graceful?: true;
  readonly load: () => Promise<CommandModule>;
}

const COMMANDS: readonly Entry[] = [
  {
    name: "send",
    about: "send messages to a queue",
    graceful: true,
    load: () => import("./commands/send.ts"),
  },
  {
    name: "work",
    about: "handle a queue's messages with a handler file",
    graceful: true,
    load: () => import("./commands/work.ts"),
  },
  {
    name: "status",
    about: "queues, letters and who works on them",
    load: () => import("./commands/status.ts"),
  },
  { name: "ls", about: "list dead letters", load: () => import("./commands/ls.ts") },
  {
    name: "show",
    about: "show one letter with its body and history",
    load: () => import("./commands/show.ts"),
  },
  { name: "groups", about: "dead letters by cause", load: () => import("./commands/groups.ts") },
  {
    name: "replay",
    alias: "redrive",
    about: "send letters back to the queue they failed in",
    graceful: true,
    load: () => import("./commands/replay.ts"),
  },
  {
    name: "discard",
    about: "move letters to the trash",
    graceful: true,
    load: () => import("./commands/discard.ts"),
  },
  {
    name: "dev",
    about: "run a broker that AMQP 0-9-1 clients of any language can use",
    graceful: true,
    load: () => import("./commands/dev.ts"),
  },
  {
    name: "hash-password",
    about: "make a password hash for a users file of dlo dev",
    load: () => import("./commands/hash-password.ts"),
  },
  {
    name: "doctor",
    about: "where do dead letters end? examine a RabbitMQ topology",
    load: () => import("./doctor.ts"),
  },
  { name: "version", about: "print the version", load: () => import("./commands/version.ts") },
];

/** Ends the command line with a status, from inside commander. */
const isCommander = (error: unknown): error is CommanderError => error instanceof CommanderError;

function base(io: Io): Command {
  return new Command()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
      outputError: (text, put) => put(escapeLines(text).replace(/^error: /, "dlo: ")),
    })
    .showSuggestionAfterError(true);
}

const wanted = (argv: readonly string[]): string | undefined => argv.find((arg) => !arg.startsWith("-"));

async function build(argv: readonly string[], io: Io, keep: (status: number) => void): Promise<Command> {
  const program = base(io)
    .name("dlo")
    .description("Dead Letter Office: send, handle, find out why, send back.")
    .helpCommand(true)
    .addHelpText(
      "after",
      "\nData lies in ./.dlo unless --data or DLO_DATA says otherwise.\nExit status: 0 done, 1 failed, 2 usage, 3 partly done, 4 not found, 5 not connected, 6 refused, 10 findings, 130 interrupted.",
    );
  const act: Act =
    (work) =>
    async (...args) =>
      keep(await work(io, ...args));
  const first = wanted(argv);
  // `dlo help send` needs the options of send too.
  const asked = first === "help" ? wanted(argv.slice(argv.indexOf("help") + 1)) : first;
  for (const entry of COMMANDS) {
    const command = program.command(entry.name).description(entry.about);
    if (entry.alias) command.alias(entry.alias);
    if (asked === entry.name || asked === entry.alias) (await entry.load()).define(command, act);
  }
  return program;
}

const aborted = (signal: AbortSignal): Promise<"aborted"> =>
  new Promise((done) => {
    if (signal.aborted) done("aborted");
    else signal.addEventListener("abort", () => done("aborted"), { once: true });
  });

async function report(io: Io, error: unknown): Promise<number> {
  if (isCommander(error)) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
  if (isBrokenPipe(error)) return EXIT.done;
  if (error instanceof DloError) {
    await say(io, `dlo: ${escapeLine(error.message)}`);
    return exitOf(error);
  }
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  await say(io, `dlo: a fault of dlo itself, please report it: ${stack}`);
  return EXIT.failed;
}

/**
 * Runs the command line and answers the exit status; never throws. A mistake of the user is one line on standard
 * error, `dlo: ...`, that names the thing, the value and what was expected.
 */
export async function runCli(argv: readonly string[], io: Io): Promise<number> {
  let status: number = EXIT.done;
  try {
    const program = await build(argv, io, (answer) => {
      status = answer;
    });
    if (argv.length === 0) {
      program.outputHelp();
      return EXIT.done;
    }
    const ran = program.parseAsync([...argv], { from: "user" });
    const name = wanted(argv);
    const entry = COMMANDS.find((one) => one.name === name || one.alias === name);
    if (entry?.graceful) await ran;
    else if ((await Promise.race([ran, aborted(io.signal)])) === "aborted") return EXIT.interrupted;
  } catch (error) {
    return report(io, error).catch(() => EXIT.failed);
  }
  return status;
}
