/**
 * The owner's socket: HTTP over a Unix socket in the data directory, readable by its user only.
 *
 * A stale file (its owner was killed) answers with a refused connection and is replaced by the next owner, who is
 * the owner because the engine's lock says so: the socket is an address, never the lock.
 */
import { chmodSync, closeSync, constants, openSync, rmSync } from "node:fs";
import { type ClientRequest, request as httpRequest, type IncomingMessage, type Server } from "node:http";
import { join, resolve } from "node:path";
import { createAdaptorServer } from "@hono/node-server";
import { DloError } from "../core/index.ts";
import type { OfficeApp } from "./app.ts";
import type { Fetch } from "./client.ts";

/** Name of the socket in a data directory. */
export const SOCKET_NAME = "office.sock";
/** Bytes of a socket's path: 108 on Linux and 104 on macOS and the BSDs, with the closing zero. */
const MAX_PATH_BYTES = process.platform === "linux" ? 107 : 103;

/** Where the owner of a data directory listens. */
export const socketPath = (directory: string): string => resolve(directory, SOCKET_NAME);

/**
 * A path that fits into a socket address. Where the real one is too long, Linux reaches the directory through an open
 * descriptor of it, so any length works; elsewhere it is refused with the limit. Answers the path and how to let go.
 */
function addressOf(directory: string): { path: string; release: () => void } {
  const path = socketPath(directory);
  const bytes = Buffer.byteLength(path);
  if (bytes <= MAX_PATH_BYTES) return { path, release: () => {} };
  if (process.platform !== "linux") {
    throw new DloError(
      "BAD_ARGUMENT",
      `the path of the data directory's socket has ${bytes} bytes; this system allows ${MAX_PATH_BYTES}: choose a shorter data directory`,
    );
  }
  const descriptor = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  return {
    path: join("/proc/self/fd", String(descriptor), SOCKET_NAME),
    release: () => closeSync(descriptor),
  };
}

/** A running office. */
export interface OfficeServer {
  readonly path: string;
  /** Stops listening, lets running requests end, removes the socket. Safe to call twice. */
  close(): Promise<void>;
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((done, failed) => {
    server.once("error", failed);
    // The socket file is made inside listen(), synchronously: at no moment can another user open it.
    const mask = process.umask(0o177);
    try {
      server.listen(path, () => {
        server.off("error", failed);
        done();
      });
    } finally {
      process.umask(mask);
    }
  });
}

/**
 * Serves an app on the socket of a data directory. Call it only while you own the directory (its broker is open):
 * a socket file that is there is taken for a dead owner's and replaced. Killed, it leaves the file behind, which
 * the next owner replaces and clients recognise as stale.
 */
export async function listenOffice(app: OfficeApp, directory: string): Promise<OfficeServer> {
  const path = socketPath(directory);
  const address = addressOf(directory);
  const server = createAdaptorServer({ fetch: (request: Request) => app.fetch(request) }) as Server;
  rmSync(path, { force: true });
  try {
    await listen(server, address.path);
    chmodSync(path, 0o600);
  } catch (cause) {
    address.release();
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DloError("DATA_UNWRITABLE", `cannot listen on ${path}: ${why}`, { cause });
  }
  server.unref();
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= new Promise((done) => {
      rmSync(path, { force: true });
      server.close(() => {
        address.release();
        done();
      });
      server.closeIdleConnections();
    });
    return closing;
  };
  return { path, close };
}

function answered(message: IncomingMessage): Promise<Response> {
  return new Promise((done, failed) => {
    const chunks: Buffer[] = [];
    message.on("data", (chunk: Buffer) => chunks.push(chunk));
    message.once("error", failed);
    message.once("aborted", () => failed(new Error("the connection ended in the middle of the answer")));
    message.once("end", () => {
      const headers = new Headers();
      for (const [name, value] of Object.entries(message.headers)) {
        if (typeof value === "string") headers.set(name, value);
      }
      done(new Response(Buffer.concat(chunks), { status: message.statusCode ?? 500, headers }));
    });
  });
}

/** True when an error says that nobody listens: no file, or the file of a process that is gone. */
function nobodyListens(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code;
  return code === "ENOENT" || code === "ECONNREFUSED" || code === "ENOTDIR";
}

/** Asks over the socket of a data directory. Throws `NOT_CONNECTED` when nobody listens or the owner dies meanwhile. */
export function socketFetch(directory: string): Fetch {
  return async (request) => {
    const url = new URL(request.url);
    const body = request.body === null ? null : Buffer.from(await request.arrayBuffer());
    let release = (): void => {};
    try {
      const address = addressOf(directory);
      release = address.release;
      return await new Promise<Response>((done, failed) => {
        const asked: ClientRequest = httpRequest(
          {
            socketPath: address.path,
            method: request.method,
            path: `${url.pathname}${url.search}`,
            headers: { ...Object.fromEntries(request.headers), host: url.host },
            agent: false,
          },
          (message) => answered(message).then(done, failed),
        );
        asked.once("error", failed);
        asked.end(body ?? undefined);
      });
    } catch (cause) {
      if (cause instanceof DloError) throw cause;
      const why = cause instanceof Error ? cause.message : String(cause);
      const denied = (cause as NodeJS.ErrnoException).code === "EACCES";
      throw new DloError(denied ? "REFUSED" : "NOT_CONNECTED", `the owner of ${resolve(directory)}: ${why}`, {
        cause,
      });
    } finally {
      release();
    }
  };
}

/** The way to the owner of a data directory; null when nobody listens there. */
export async function findOwner(directory: string): Promise<Fetch | null> {
  const fetch = socketFetch(directory);
  try {
    await fetch(new Request("http://office/v1/ping"));
    return fetch;
  } catch (error) {
    if (error instanceof DloError && nobodyListens(error.cause)) return null;
    throw error;
  }
}
