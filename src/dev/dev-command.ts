import type { Writable } from "node:stream";
import type { UserOptions } from "../amqp/index.ts";
import type { Compat } from "../broker/index.ts";
import { DloError } from "../core/index.ts";
import type { Logger } from "../ports/index.ts";
import { type StartedBroker, type StartOptions, startBroker } from "./start-broker.ts";

/** Options of `dlo dev`, as given on the command line. */
export interface DevOptions {
  /** AMQP port; default 5673, since 5672 is RabbitMQ's. 0: any. */
  readonly amqp?: string | number;
  /** Management HTTP port; default 15673. false: none. */
  readonly management?: string | number | false;
  readonly host?: string;
  /** Data directory; absent: in memory. */
  readonly data?: string;
  readonly compat?: string;
  /** ms; default 30 minutes; 0: none. */
  readonly ackTimeoutMs?: number;
  /** Absent: those of the data file, and guest. */
  readonly users?: readonly UserOptions[];
  /** A broker that is open already. */
  readonly broker?: StartOptions["broker"];
}

/** The streams and the signal to stop. */
export interface DevIo {
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly signal: AbortSignal;
}

const AMQP_PORT = 5673;
const MANAGEMENT_PORT = 15673;

function portOf(name: string, given: string | number | undefined, otherwise: number): number {
  const port = given === undefined ? otherwise : Number(given);
  if (!Number.isInteger(port) || port < 0 || port > 65535 || given === "") {
    throw new DloError("BAD_ARGUMENT", `${name} is '${given}'; a port from 0 to 65535 was expected`);
  }
  return port;
}

function compatOf(given: string | undefined): Compat {
  if (given === undefined) return "4.x";
  if (given !== "3.x" && given !== "4.x") {
    throw new DloError("BAD_ARGUMENT", `--compat is '${given}'; 3.x or 4.x was expected`);
  }
  return given;
}

function stderrLogger(stderr: Writable): Logger {
  const line = (level: string) => (message: string, fields?: Readonly<Record<string, unknown>>) => {
    const more = Object.entries(fields ?? {}).map(([key, value]) => ` ${key}=${JSON.stringify(value)}`);
    stderr.write(`${level}: ${message}${more.join("")}\n`);
  };
  return { info: line("info"), warn: line("warn"), error: line("error") };
}

/**
 * `dlo dev`: a broker on AMQP until the signal aborts. Prints where it listens on standard output, one fact a
 * line, as soon as it serves. Answers the exit status.
 *
 * @throws DloError as {@link startBroker}; a port that is taken names its holder.
 */
export async function runDev(options: DevOptions, io: DevIo): Promise<number> {
  const server = await startBroker({
    port: portOf("--amqp", options.amqp, AMQP_PORT),
    compat: compatOf(options.compat),
    logger: stderrLogger(io.stderr),
    ...(options.ackTimeoutMs === undefined ? {} : { limits: { ackTimeoutMs: options.ackTimeoutMs } }),
    ...(options.host === undefined ? {} : { host: options.host }),
    ...(options.users === undefined ? {} : { users: options.users }),
    ...(options.broker === undefined ? {} : { broker: options.broker }),
    ...(options.broker !== undefined || options.data === undefined ? {} : { data: options.data }),
    ...(options.management === false
      ? {}
      : { management: { port: portOf("--management", options.management, MANAGEMENT_PORT) } }),
  });
  io.stdout.write(greeting(server, options));
  await new Promise<void>((stop) => {
    if (io.signal.aborted) stop();
    else io.signal.addEventListener("abort", () => stop(), { once: true });
  });
  await server.close();
  return 0;
}

function greeting(server: StartedBroker, options: DevOptions): string {
  const kept = options.data === undefined ? "in memory, gone when this process ends" : options.data;
  const lines = [`AMQP        ${server.url}`];
  if (server.managementUrl !== null) lines.push(`management  ${server.managementUrl}`);
  lines.push(`data        ${kept}`, "ready");
  return `${lines.join("\n")}\n`;
}
