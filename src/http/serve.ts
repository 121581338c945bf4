import { randomUUID } from "node:crypto";
import type { LetterStore, Maybe, Queue } from "../ports/index.ts";
import { type OfficeApp, type OfficeHost, type Outgoing, officeApp, type WorkersOf } from "./app.ts";
import { OfficeClient } from "./client.ts";
import { listenOffice } from "./socket.ts";

/** What the office needs of a broker: the embedded engine's, or any that offers the same two. */
export interface OfficeBroker {
  readonly letters: LetterStore;
  queue(name: string): Queue;
}

export interface ServeOptions {
  /** The data directory: the socket is made in it. */
  readonly directory: string;
  /** What this process is, for people who ask who owns the data. Default: `node` and the script's name. */
  readonly command?: string;
  /** The workers of this process, shown by `dlo status`. */
  readonly workers?: WorkersOf;
}

/** An office that is being served. */
export interface ServedOffice {
  /** The same app the socket answers with, for calls in this process. */
  readonly app: OfficeApp;
  readonly client: OfficeClient;
  /** The socket. */
  readonly path: string;
  /** Stops serving. The broker stays open. */
  close(): Promise<void>;
}

const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as { then?: unknown } | null)?.then === "function";

/** The office of a broker as the HTTP app wants it. */
export function officeHost(
  broker: OfficeBroker,
  options: { command?: string; workers?: WorkersOf } = {},
): OfficeHost {
  const queues = new Map<string, Queue>();
  const queueOf = (name: string): Queue => {
    const queue = queues.get(name) ?? broker.queue(name);
    queues.set(name, queue);
    return queue;
  };
  const send = (name: string, message: Outgoing): Maybe<string> => {
    const id = message.id ?? randomUUID();
    const { bytes, contentType } = message;
    const sent = queueOf(name).send({ id, body: bytes, raw: bytes, properties: { contentType } });
    return isThenable(sent) ? sent.then(() => id) : id;
  };
  return { letters: broker.letters, send, ...options };
}

/**
 * Serves the office of a broker that this process has open, on the socket of its data directory, so that `dlo ls`,
 * `dlo replay` and all other commands work beside it. Throws `DATA_UNWRITABLE` where the socket cannot be made.
 * Killed, it leaves a socket file behind that the next owner replaces.
 *
 * @example
 * const broker = await openBroker({ file: "data/dlo.db" });
 * const office = await serveOffice(broker, { directory: "data" });
 * // ... and at the end
 * await office.close();
 * await broker.close();
 */
export async function serveOffice(broker: OfficeBroker, options: ServeOptions): Promise<ServedOffice> {
  const { directory, command, workers } = options;
  const app = officeApp(
    officeHost(broker, {
      command: command ?? `node ${process.argv[1] ?? ""}`.trim(),
      ...(workers && { workers }),
    }),
  );
  const server = await listenOffice(app, directory);
  const client = new OfficeClient((request) => app.fetch(request));
  return { app, client, path: server.path, close: () => server.close() };
}
