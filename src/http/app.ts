/**
 * The office's HTTP API: one `fetch(Request) -> Response` app, called in process by a command that owns the data, over
 * the socket by one that does not, and mountable in any host. GET changes nothing.
 */
import { Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { DloError } from "../core/index.ts";
import { bodyBytes, groupsOf, letterOf, makePlan, pageOf } from "../office/index.ts";
import type { Letter, LetterState, LetterStore, Maybe } from "../ports/index.ts";
import {
  actionOf,
  flagField,
  idsField,
  limitOf,
  messagesOf,
  readJson,
  selectionOf,
  textField,
} from "./input.ts";
import {
  API_VERSION,
  bytesOf,
  statusOf,
  type WireError,
  type WireLetter,
  type WireMessage,
  type WireSent,
  type WireStatus,
  type WorkerInfo,
  wireBody,
} from "./wire.ts";

/** Bytes of one request: the largest message with its base64 overhead stays below it. */
export const MAX_REQUEST_BYTES: number = 256 * 1024 * 1024;
/** Letters of one page. */
export const MAX_PAGE = 1000;

/** A message as a host sends it: its exact bytes. */
export interface Outgoing {
  readonly id?: string;
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Tells the workers of this process as they are now. */
export type WorkersOf = () => readonly WorkerInfo[];

/** What the app needs of whoever owns the data. */
export interface OfficeHost {
  readonly letters: LetterStore;
  /** Sends one message durably and answers its id. The queue comes into being where it is not there. */
  send(queue: string, message: Outgoing): Maybe<string>;
  /** The workers of this process. */
  readonly workers?: WorkersOf;
  /** What this process is, for people: `dlo work`, `node app.js`. */
  readonly command?: string;
}

/** A web-standard request handler. */
export interface OfficeApp {
  fetch(request: Request): Promise<Response>;
}

const STATES: readonly LetterState[] = ["dead", "replaying", "replayed", "discarded"];

async function statusFor(host: OfficeHost, startedAt: number): Promise<WireStatus> {
  const letters = host.letters;
  const queues = [];
  for (const queue of await letters.status()) {
    queues.push({ ...queue, dead: await letters.count({ sourceQueue: queue.queue, state: "dead" }) });
  }
  const counts = {} as Record<LetterState, number>;
  for (const state of STATES) counts[state] = await letters.count({ state });
  return {
    api: API_VERSION,
    owner: { pid: process.pid, startedAt, command: host.command ?? "dlo" },
    queues,
    letters: counts,
    workers: host.workers?.() ?? [],
  };
}

function wireLetter(letter: Letter): WireLetter {
  const { entry, earlier, ...summary } = letter;
  return {
    ...summary,
    body: wireBody(bodyBytes(entry)),
    stack: entry.stack ?? null,
    history: entry.history ?? [],
    headers: entry.headers ?? {},
    properties: entry.properties ?? {},
    earlier,
  };
}

/**
 * Sends in order and stops at the first refusal. All of a request share a commit where the engine groups them: what the
 * engine refuses at once is known a microtask later, before the next one is sent; what fails with the commit fails all.
 */
async function sendAll(host: OfficeHost, queue: string, messages: readonly WireMessage[]): Promise<WireSent> {
  const sent: Promise<string>[] = [];
  let refused = false;
  for (const message of messages) {
    const outgoing = { bytes: bytesOf(message), contentType: message.contentType ?? "application/json" };
    const one = (async () =>
      host.send(queue, message.id === undefined ? outgoing : { ...outgoing, id: message.id }))();
    one.catch(() => {
      refused = true;
    });
    sent.push(one);
    // An async function's rejection takes a few microtasks to arrive; none of them ends the turn.
    for (let tick = 0; tick < 8 && !refused; tick += 1) await undefined;
    if (refused) break;
  }
  const results = await Promise.allSettled(sent);
  const ids = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const index = results.findIndex((result) => result.status === "rejected");
  if (index < 0) return { ids, refused: null };
  const { reason } = results[index] as PromiseRejectedResult;
  if (!(reason instanceof DloError)) throw reason;
  return { ids, refused: { index, code: reason.code, message: reason.message } };
}

/** Header values can be bigints; as text they keep every digit. Bytes go as base64. */
const plain = (_key: string, value: unknown): unknown => {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  // A Buffer has turned itself into an object before we see it.
  const { type, data } = (value ?? {}) as { type?: unknown; data?: unknown };
  return type === "Buffer" && Array.isArray(data) ? Buffer.from(data as number[]).toString("base64") : value;
};
const HEADERS = {
  "content-type": "application/json",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
};
const answer = (value: unknown, status = 200): Response =>
  new Response(JSON.stringify(value, plain), { status, headers: HEADERS });

function problem(error: unknown): Response {
  const known =
    error instanceof DloError
      ? error
      : new DloError(
          "INTERNAL",
          `the office failed: ${error instanceof Error ? error.message : String(error)}`,
        );
  const body: WireError = { error: { code: known.code, message: known.message } };
  return answer(body, statusOf(known.code));
}

function reading(app: Hono, host: OfficeHost, now: () => number): void {
  const startedAt = now();
  app.get("/v1/ping", () => answer({ api: API_VERSION }));
  app.get("/v1/status", async () => answer(await statusFor(host, startedAt)));
  app.get("/v1/letters", async (c) => {
    const after = c.req.query("after");
    const options = { limit: limitOf(c.req.query("limit"), MAX_PAGE), now: now() };
    const where = c.req.query("where") ?? "";
    return answer(await pageOf(host.letters, where, after === undefined ? options : { ...options, after }));
  });
  app.get("/v1/letters/:id", async (c) =>
    answer(wireLetter(await letterOf(host.letters, c.req.param("id")))),
  );
  app.get("/v1/groups", async (c) =>
    answer({ groups: await groupsOf(host.letters, c.req.query("where") ?? "", now()) }),
  );
}

function changing(app: Hono, host: OfficeHost, now: () => number): void {
  app.post("/v1/plans", async (c) => {
    const fields = await readJson(c.req.raw);
    const to = textField(fields, "to");
    const options = { action: actionOf(fields), now: now(), force: flagField(fields, "force") };
    return answer(
      await makePlan(host.letters, selectionOf(fields), to === undefined ? options : { ...options, to }),
    );
  });
  for (const action of ["replay", "discard"] as const) {
    app.post(`/v1/${action}s`, async (c) => {
      const fields = await readJson(c.req.raw);
      const ids = idsField(fields, "letterIds");
      if (!ids) throw new DloError("BAD_ARGUMENT", "letterIds is missing; expected an array of letter ids");
      const options: { to?: string; actor?: string; reason?: string } = {};
      for (const name of action === "replay"
        ? (["to", "actor", "reason"] as const)
        : (["actor", "reason"] as const)) {
        const value = textField(fields, name);
        if (value !== undefined) options[name] = value;
      }
      return answer(await host.letters[action](ids, options));
    });
  }
  app.post("/v1/queues/:queue/messages", async (c) => {
    const messages = messagesOf(await readJson(c.req.raw));
    return answer(await sendAll(host, c.req.param("queue"), messages));
  });
}

/**
 * The app over a host. Every failure is `{ error: { code, message } }` with a status of its kind. A request that
 * changes something is one transaction of the store, or (sending) durable message by message in order.
 *
 * @example
 * const app = officeApp(host);
 * const response = await app.fetch(new Request("http://office/v1/letters?where=reason:poison"));
 */
export function officeApp(host: OfficeHost, options: { now?: () => number } = {}): OfficeApp {
  const now = options.now ?? Date.now;
  const app = new Hono();
  app.onError((error) => problem(error));
  app.notFound((c) =>
    problem(new DloError("NOT_FOUND", `the office has no ${c.req.method} ${new URL(c.req.url).pathname}`)),
  );
  app.use(
    bodyLimit({
      maxSize: MAX_REQUEST_BYTES,
      onError: () => problem(new DloError("BODY_TOO_LARGE", `a request may have ${MAX_REQUEST_BYTES} bytes`)),
    }),
  );
  reading(app, host, now);
  changing(app, host, now);
  return { fetch: async (request) => app.fetch(request) };
}
