import { randomBytes } from "node:crypto";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";
import type { Alarm, BrokerHost } from "../broker/index.ts";
import { DloError } from "../core/index.ts";
import { stayAwake } from "../loop/index.ts";
import type { Logger } from "../ports/index.ts";
import { Connection } from "./connection.ts";
import type { ConnectionContext } from "./handshake.ts";
import { type AmqpLimits, limitsFor } from "./limits.ts";
import { TICK_MS } from "./pace.ts";
import { ReplyTo } from "./reply-to.ts";
import type { Shared } from "./session.ts";
import type { Transport } from "./transport.ts";
import { isLoopback, type UserOptions, Users } from "./users.ts";
import { Reader } from "./wire.ts";

/** How {@link serveAmqp} listens. */
export interface AmqpOptions {
  /** Default 127.0.0.1. Any other machine's view of this one needs a user besides guest. */
  readonly host?: string;
  /** 0: any free port. Default 5673 (5672 is RabbitMQ's own). */
  readonly port?: number;
  /** Serves AMQPS with these options of node:tls. */
  readonly tls?: TlsOptions;
  /** Default: guest/guest, from this machine only. */
  readonly users?: readonly UserOptions[] | Users;
  readonly limits?: Partial<AmqpLimits>;
  readonly logger?: Logger;
}

/** One open connection, for lists. */
export interface ConnectionInfo {
  readonly name: string;
  readonly user: string;
  readonly vhost: string;
  readonly state: string;
  readonly channels: number;
  readonly connectedAt: number;
  readonly heartbeatSeconds: number;
  readonly frameMax: number;
  readonly channelMax: number;
  readonly clientProperties: Readonly<Record<string, unknown>>;
}

/** A listening AMQP server. */
export interface AmqpServer {
  readonly host: string;
  readonly port: number;
  /** `amqp://guest:guest@127.0.0.1:5673`, without credentials where guest is not a user. */
  readonly url: string;
  readonly users: Users;
  connections(): readonly ConnectionInfo[];
  /** Says connection.close (320) to every client, waits for close-ok up to `closeMs`, then cuts. Idempotent. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const KEEPALIVE_MS = 30_000;
/** Sockets beyond the limit that may still shake hands, so as to be refused with a reason. */
const REFUSED_POLITELY = 256;

/**
 * Serves a running broker over AMQP 0-9-1. The broker stays open when the server closes.
 *
 * @throws DloError REFUSED for an address other machines reach without a user who may come from there;
 * PORT_IN_USE; BAD_ARGUMENT for users or an address that are none.
 * @example
 * await using server = await serveAmqp(broker.host, { port: 0 });
 * const connection = await amqplib.connect(server.url);
 */
export async function serveAmqp(broker: BrokerHost, options: AmqpOptions = {}): Promise<AmqpServer> {
  const users = options.users instanceof Users ? options.users : new Users(options.users);
  const host = options.host ?? "127.0.0.1";
  if (!isLoopback(host) && !users.anyRemote) {
    throw new DloError(
      "REFUSED",
      `will not listen on ${host}, which other machines can reach, with guest as the only user; give a user of your own, or listen on 127.0.0.1`,
    );
  }
  const running = new Running(broker, users, options);
  await running.listen(host, options.port ?? 5673);
  return running;
}

class Running implements AmqpServer {
  readonly users: Users;
  host = "";
  port = 0;
  readonly #secure: boolean;
  readonly #broker: BrokerHost;
  readonly #server: Server;
  readonly #context: ConnectionContext;
  readonly #open = new Map<Connection, Socket>();
  #timer: NodeJS.Timeout | null = null;
  #alarms: readonly Alarm[] = [];
  #closed: Promise<void> | null = null;

  constructor(broker: BrokerHost, users: Users, options: AmqpOptions) {
    this.users = users;
    this.#broker = broker;
    this.#secure = options.tls !== undefined;
    const limits = limitsFor(broker.compat, options.limits);
    const shared: Shared = {
      compat: broker.compat,
      limits,
      reader: new Reader(),
      replyTo: new ReplyTo(),
      unfinished: 0,
      randomName: () => randomBytes(16).toString("base64url"),
    };
    this.#context = {
      host: this.#withAlarms(broker),
      users,
      shared,
      now: Date.now,
      refusal: () =>
        this.#open.size > limits.connections ? `connection limit (${limits.connections}) is reached` : null,
      log: (text, fields) => options.logger?.warn(`amqp: ${text}`, fields),
    };
    const accept = (socket: Socket) => this.#accept(socket);
    this.#server = options.tls
      ? createTlsServer({ handshakeTimeout: limits.handshakeMs, noDelay: true, ...options.tls }, accept)
      : createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS }, accept);
  }

  get url(): string {
    const name = this.users.get("guest") === undefined ? "" : "guest:guest@";
    const host = this.host.includes(":") ? `[${this.host}]` : this.host;
    return `${this.#secure ? "amqps" : "amqp"}://${name}${host}:${this.port}`;
  }

  /** The broker as connections see it: its alarms, and the server's own about the process's memory. */
  #withAlarms(broker: BrokerHost): BrokerHost {
    return {
      compat: broker.compat,
      vhosts: () => broker.vhosts(),
      vhost: (name) => broker.vhost(name),
      alarms: () => this.#alarms,
    };
  }

  async listen(host: string, port: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const failed = (error: NodeJS.ErrnoException) => reject(listenError(error, host, port));
      this.#server.once("error", failed);
      this.#server.listen({ host, port, backlog: 511 }, () => {
        this.#server.off("error", failed);
        resolve();
      });
    });
    const address = this.#server.address() as AddressInfo;
    this.host = host;
    this.port = address.port;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#timer.unref();
  }

  #accept(socket: Socket): void {
    const { limits } = this.#context.shared;
    if (this.#closed !== null || this.#open.size >= limits.connections + REFUSED_POLITELY) {
      socket.destroy();
      return;
    }
    const connection = new Connection(this.#context, transportOf(socket, limits.closeMs));
    this.#open.set(connection, socket);
    socket.on("data", (chunk: Buffer) => {
      connection.receive(chunk);
      // Who is answered one message at a time sends the next at once.
      if (connection.state === "open") stayAwake();
    });
    socket.on("drain", () => connection.drained());
    socket.on("end", () => connection.peerEnded());
    socket.on("error", () => socket.destroy());
    socket.on("close", () => {
      this.#open.delete(connection);
      connection.gone();
    });
  }

  #tick(): void {
    const now = this.#context.now();
    const alarms = [...(this.#broker.alarms?.() ?? [])];
    const { memoryBytes } = this.#context.shared.limits;
    // A tenth of slack on the way down, so that the alarm does not flutter.
    const raised = this.#alarms.includes("memory");
    if (process.memoryUsage.rss() > (raised ? memoryBytes * 0.9 : memoryBytes)) alarms.push("memory");
    if (alarms.join() !== this.#alarms.join()) {
      this.#alarms = [...new Set(alarms)];
      for (const connection of this.#open.keys()) connection.alarm(this.#alarms);
    }
    for (const connection of this.#open.keys()) connection.tick(now);
  }

  connections(): readonly ConnectionInfo[] {
    return [...this.#open].map(([connection, socket]) => ({
      name: `${socket.remoteAddress}:${socket.remotePort} -> ${socket.localAddress}:${socket.localPort}`,
      user: connection.handshake?.user?.name ?? "",
      vhost: connection.vhost,
      state: shownState(connection),
      channels: connection.channelCount,
      connectedAt: connection.openedAt,
      heartbeatSeconds: connection.handshake?.heartbeatSeconds ?? 0,
      frameMax: connection.handshake?.frameMax ?? 0,
      channelMax: connection.handshake?.channelMax ?? 0,
      clientProperties: connection.handshake?.clientProperties ?? {},
    }));
  }

  close(): Promise<void> {
    this.#closed ??= this.#shut();
    return this.#closed;
  }

  async #shut(): Promise<void> {
    const stopped = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const connection of this.#open.keys()) connection.shutdown();
    const cut = setTimeout(() => {
      for (const socket of this.#open.values()) socket.destroy();
    }, this.#context.shared.limits.closeMs);
    await stopped;
    clearTimeout(cut);
    if (this.#timer) clearInterval(this.#timer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function shownState(connection: Connection): string {
  if (connection.state !== "open") return connection.state;
  return connection.blocked ? "blocked" : "running";
}

function transportOf(socket: Socket, closeMs: number): Transport {
  return {
    remoteAddress: socket.remoteAddress,
    get waiting(): number {
      return socket.writableLength;
    },
    write: (pieces) => {
      if (!socket.writable) return;
      if (pieces.length === 1) socket.write(pieces[0] as Uint8Array);
      else {
        socket.cork();
        for (const piece of pieces) socket.write(piece);
        socket.uncork();
      }
      stayAwake();
    },
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
    // The peer may have more to send before it reads our last word, and must not be met with a reset: what comes
    // is dropped until it closes too.
    end: () => {
      socket.end();
      socket.resume();
      const timer = setTimeout(() => socket.destroy(), closeMs);
      socket.once("close", () => clearTimeout(timer));
    },
    destroy: () => void socket.destroy(),
  };
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number): DloError {
  const cause = error;
  if (error.code === "EADDRINUSE") {
    return new DloError("PORT_IN_USE", `port ${port} on ${host} is taken; choose another one, or 0 for any`, {
      cause,
    });
  }
  if (error.code === "EACCES") {
    return new DloError("REFUSED", `may not listen on port ${port} of ${host}: permission denied`, { cause });
  }
  return new DloError("BAD_ARGUMENT", `cannot listen on ${host}:${port}: ${error.message}`, { cause });
}
