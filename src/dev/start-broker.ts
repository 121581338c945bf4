import { mkdirSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createAdaptorServer } from "@hono/node-server";
import {
  type AmqpOptions,
  type AmqpServer,
  ANNOUNCED_VERSION,
  type ConnectionInfo,
  serveAmqp,
  type Users,
} from "../amqp/index.ts";
import type { Compat } from "../broker/index.ts";
import { DloError } from "../core/index.ts";
import { type Durability, type EmbeddedBroker, openBroker } from "../engines/embedded/index.ts";
import { managementApp } from "../http/index.ts";
import { accountsOf } from "./accounts.ts";
import { watchDeclarations } from "./declare-check.ts";
import { whoListens } from "./port-holder.ts";
import { UserBook } from "./user-book.ts";

/** How {@link startBroker} starts. Everything has a default: a broker in memory on a port of its own. */
export interface StartOptions extends AmqpOptions {
  /** The data file. Absent, and no `data` either: in memory, gone with the process. */
  readonly file?: string;
  /** A data directory; its file is `dlo.db`. */
  readonly data?: string;
  /** A broker that is open already, instead of a file; it stays open when the server closes. */
  readonly broker?: EmbeddedBroker;
  /** Which RabbitMQ line it behaves like and announces; default "4.x". */
  readonly compat?: Compat;
  readonly durability?: Durability;
  /**
   * Tells the logger what the doctor finds in the queues being declared, once they have come to rest; default true.
   * Without a logger nothing is judged.
   */
  readonly checkDeclarations?: boolean;
  /** Serves the management HTTP API too; true: on any free port. */
  readonly management?: boolean | { readonly port?: number; readonly host?: string };
}

/** A started broker with its AMQP address. */
export interface StartedBroker extends AmqpServer {
  /** The broker itself, for use in this process at the same time. */
  readonly broker: EmbeddedBroker;
  /** `http://127.0.0.1:15673`; null without management. */
  readonly managementUrl: string | null;
}

/**
 * Opens a broker and serves it over AMQP 0-9-1: a RabbitMQ for a test suite, ready in milliseconds, with no
 * container and no Erlang. The default port is any free one.
 *
 * A crash in the middle leaves the file as its last commit did: the next start recovers it.
 *
 * @throws DloError PORT_IN_USE (names the holder where it can be known), REFUSED (an address others reach without
 * a user of your own), DATA_IN_USE and the other errors of `openBroker`.
 * @example
 * await using server = await startBroker();
 * const connection = await amqplib.connect(server.url);
 */
export async function startBroker(options: StartOptions = {}): Promise<StartedBroker> {
  const broker = options.broker ?? open(options);
  const started = new Started(broker, options.broker === undefined);
  const { logger, checkDeclarations = true } = options;
  if (logger && checkDeclarations) started.stopWatching = watchDeclarations(broker.host, { logger });
  try {
    const book = new UserBook(broker.meta, () => broker.host.vhosts(), options.users);
    started.amqp = await listening(options.port ?? 0, () =>
      serveAmqp(broker.host, { ...options, port: options.port ?? 0, users: book.users }),
    );
    if (options.management) await started.serveManagement(book, options);
  } catch (error) {
    await started.close();
    throw error;
  }
  return started;
}

function open(options: StartOptions): EmbeddedBroker {
  if (options.file !== undefined && options.data !== undefined) {
    throw new DloError("BAD_ARGUMENT", "give file or data, not both");
  }
  if (options.data !== undefined) mkdirSync(options.data, { recursive: true });
  const file = options.file ?? (options.data === undefined ? ":memory:" : join(options.data, "dlo.db"));
  return openBroker({
    file,
    ...(options.compat === undefined ? {} : { compat: options.compat }),
    ...(options.durability === undefined ? {} : { durability: options.durability }),
    ...(options.logger === undefined ? {} : { logger: options.logger }),
    ...(options.limits?.messageBytes === undefined ? {} : { maxBodyBytes: options.limits.messageBytes }),
  });
}

/** Adds to PORT_IN_USE who has it. */
async function listening<T>(port: number, listen: () => Promise<T>): Promise<T> {
  try {
    return await listen();
  } catch (error) {
    if (!(error instanceof DloError) || error.code !== "PORT_IN_USE") throw error;
    const holder = whoListens(port);
    if (holder === null) throw error;
    throw new DloError("PORT_IN_USE", error.message.replace("is taken", `is taken by ${holder}`), {
      cause: error,
    });
  }
}

class Started implements StartedBroker {
  readonly broker: EmbeddedBroker;
  amqp: AmqpServer | null = null;
  managementUrl: string | null = null;
  stopWatching: () => void = () => {};
  readonly #owned: boolean;
  #http: Server | null = null;
  #closed: Promise<void> | null = null;

  constructor(broker: EmbeddedBroker, owned: boolean) {
    this.broker = broker;
    this.#owned = owned;
  }

  get #server(): AmqpServer {
    return this.amqp as AmqpServer;
  }

  get host(): string {
    return this.#server.host;
  }

  get port(): number {
    return this.#server.port;
  }

  get url(): string {
    return this.#server.url;
  }

  get users(): Users {
    return this.#server.users;
  }

  connections(): readonly ConnectionInfo[] {
    return this.#server.connections();
  }

  async serveManagement(book: UserBook, options: StartOptions): Promise<void> {
    const where = typeof options.management === "object" ? options.management : {};
    const host = where.host ?? options.host ?? "127.0.0.1";
    const app = managementApp({
      host: this.broker.host,
      accounts: accountsOf(book, host),
      version: ANNOUNCED_VERSION[this.broker.host.compat],
      connections: () => this.connections().map(connectionView),
      listeners: () => [{ protocol: "amqp", host: this.host, port: this.port }],
    });
    const server = createAdaptorServer({ fetch: app.fetch }) as Server;
    this.#http = server;
    const port = where.port ?? 0;
    await listening(port, () => listen(server, host, port));
    const address = server.address() as AddressInfo;
    this.managementUrl = `http://${host.includes(":") ? `[${host}]` : host}:${address.port}`;
  }

  close(): Promise<void> {
    this.#closed ??= this.#shut();
    return this.#closed;
  }

  async #shut(): Promise<void> {
    this.stopWatching();
    if (this.#http?.listening) {
      const stopped = new Promise<void>((done) => this.#http?.close(() => done()));
      this.#http.closeAllConnections();
      await stopped;
    }
    await this.amqp?.close();
    if (this.#owned) await this.broker.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((done, failed) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const taken = error.code === "EADDRINUSE";
      const text = taken
        ? `port ${port} on ${host} is taken; choose another one, or 0 for any`
        : `cannot listen on ${host}:${port}: ${error.message}`;
      failed(new DloError(taken ? "PORT_IN_USE" : "BAD_ARGUMENT", text, { cause: error }));
    });
    server.listen({ host, port }, done);
  });
}

function connectionView(connection: ConnectionInfo): Record<string, unknown> {
  return {
    name: connection.name,
    user: connection.user,
    vhost: connection.vhost,
    state: connection.state,
    channels: connection.channels,
    channel_max: connection.channelMax,
    frame_max: connection.frameMax,
    timeout: connection.heartbeatSeconds,
    connected_at: connection.connectedAt,
    protocol: "AMQP 0-9-1",
    type: "network",
    client_properties: connection.clientProperties,
  };
}
