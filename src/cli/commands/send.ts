import type { Readable } from "node:stream";
import type { Command } from "commander";
import { parse } from "lossless-json";
import { DloError } from "../../core/index.ts";
import { type OfficeClient, type WireMessage, wireBody } from "../../http/index.ts";
import { Settings } from "../config.ts";
import { EXIT, exitOf } from "../exit.ts";
import { type Io, isBrokenPipe, ProgressLine, say, write } from "../io.ts";
import { withOffice } from "../office.ts";
import { withData } from "../options.ts";
import type { Act } from "../program.ts";
import { counted, escapeLine } from "../text.ts";

/** A batch goes at this many messages or bytes, whichever comes first. */
const BATCH_MESSAGES = 200;
const BATCH_BYTES = 1024 * 1024;

interface SendOptions {
  id?: string;
  idFrom?: string;
  raw?: boolean;
  type?: string;
  quiet?: boolean;
  data?: string;
}

/** A message and where it stood, for errors. */
interface Placed {
  readonly message: WireMessage;
  readonly where: string;
}

const bad = (code: "BAD_BODY" | "BAD_ARGUMENT", text: string): never => {
  throw new DloError(code, text);
};

/** Texts up to this are read a second time to find where they are wrong. */
const PLACED_LENGTH = 1024 * 1024;

/** Where a text stops being JSON. V8 says it only sometimes, and then with a piece of the text. */
function placeOf(textOf: string): string {
  if (textOf.trim() === "") return " (it is empty)";
  if (textOf.length > PLACED_LENGTH) return "";
  try {
    parse(textOf);
    return "";
  } catch (error) {
    const place = /position (\d+)/.exec(error instanceof Error ? error.message : "");
    return place ? `, at character ${Number(place[1]) + 1}` : "";
  }
}

/** The JSON value of a text. The error names the place and never the text. */
function readJson(textOf: string, where: string): unknown {
  try {
    return JSON.parse(textOf);
  } catch {
    const expected = "expected one JSON value (--raw sends bytes as they are)";
    return bad("BAD_BODY", `${where} is not JSON${placeOf(textOf)}; ${expected}`);
  }
}

function idAt(value: unknown, path: string, where: string): string {
  let found = value;
  for (const key of path.split(".")) {
    const inside = found !== null && typeof found === "object" && Object.hasOwn(found, key);
    found = inside ? (found as Record<string, unknown>)[key] : undefined;
  }
  if (typeof found === "string" && found !== "") return found;
  const shown =
    found === undefined
      ? "missing"
      : typeof found === "number"
        ? `the number ${found}`
        : found === ""
          ? "empty"
          : typeof found;
  return bad("BAD_BODY", `${where}: the id at "${path}" is ${shown}; expected a string that is not empty`);
}

function jsonMessage(textOf: string, where: string, options: SendOptions): WireMessage {
  const value = readJson(textOf, where);
  const id = options.id ?? (options.idFrom === undefined ? undefined : idAt(value, options.idFrom, where));
  const message = {
    encoding: "utf8" as const,
    data: textOf,
    contentType: options.type ?? "application/json",
  };
  return id === undefined ? message : { ...message, id };
}

/** The lines of a stream as bytes, without their line breaks. */
async function* linesOf(stream: Readable): AsyncGenerator<Buffer> {
  let rest: Buffer[] = [];
  for await (const piece of stream) {
    let chunk = Buffer.from(piece as Uint8Array | string);
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10)) {
      yield Buffer.concat([...rest, chunk.subarray(0, end)]);
      rest = [];
      chunk = chunk.subarray(end + 1);
    }
    if (chunk.length > 0) rest.push(chunk);
  }
  if (rest.length > 0) yield Buffer.concat(rest);
}

/** One message a line; blank lines are no messages. */
async function* fromLines(io: Io, options: SendOptions): AsyncGenerator<Placed> {
  let number = 0;
  for await (const line of linesOf(io.stdin)) {
    number += 1;
    const where = `standard input, line ${number}`;
    const body = wireBody(line);
    if (body.encoding !== "utf8") bad("BAD_BODY", `${where} is not UTF-8; expected one JSON value a line`);
    const textOf = body.data.replace(/\r$/, "");
    if (textOf.trim() !== "") yield { message: jsonMessage(textOf, where, options), where };
  }
}

async function* rawFrom(io: Io, body: string, options: SendOptions): AsyncGenerator<Placed> {
  const chunks: Buffer[] = [];
  if (body === "-") for await (const chunk of io.stdin) chunks.push(Buffer.from(chunk as Uint8Array));
  const bytes = body === "-" ? Buffer.concat(chunks) : Buffer.from(body, "utf8");
  const message = { ...wireBody(bytes), contentType: options.type ?? "application/octet-stream" };
  yield { message: options.id === undefined ? message : { ...message, id: options.id }, where: "the body" };
}

function source(io: Io, body: string, options: SendOptions): AsyncIterable<Placed> | Iterable<Placed> {
  if (options.raw) return rawFrom(io, body, options);
  if (body === "-") return fromLines(io, options);
  return [{ message: jsonMessage(body, "the body", options), where: "the body" }];
}

/** Sends batches as they fill; keeps count, so that whatever ends it the user knows how many went. */
class Sender {
  sent = 0;
  readonly #client: OfficeClient;
  readonly #queue: string;
  readonly #told: (ids: readonly string[]) => Promise<void>;
  #batch: Placed[] = [];
  #bytes = 0;

  constructor(client: OfficeClient, queue: string, told: (ids: readonly string[]) => Promise<void>) {
    this.#client = client;
    this.#queue = queue;
    this.#told = told;
  }

  async add(placed: Placed): Promise<void> {
    this.#batch.push(placed);
    this.#bytes += placed.message.data.length;
    if (this.#batch.length >= BATCH_MESSAGES || this.#bytes >= BATCH_BYTES) await this.flush();
  }

  async flush(): Promise<void> {
    const batch = this.#batch;
    this.#batch = [];
    this.#bytes = 0;
    if (batch.length === 0) return;
    const { ids, refused } = await this.#client.send(
      this.#queue,
      batch.map((placed) => placed.message),
    );
    this.sent += ids.length;
    await this.#told(ids);
    if (refused) throw new DloError(refused.code, `${batch[refused.index]?.where}: ${refused.message}`);
  }
}

function check(queue: string, body: string, options: SendOptions): void {
  if (queue === "") bad("BAD_ARGUMENT", 'the queue is ""; expected a name');
  if (options.id === "") bad("BAD_ARGUMENT", '--id is ""; expected a string that is not empty');
  if (options.id !== undefined && options.idFrom !== undefined) {
    bad("BAD_ARGUMENT", "--id and --id-from exclude each other");
  }
  if (options.id !== undefined && body === "-" && !options.raw) {
    bad("BAD_ARGUMENT", "--id names one message, and - sends one for each line; use --id-from FIELD");
  }
  if (options.idFrom !== undefined && options.raw) {
    bad("BAD_ARGUMENT", "--id-from reads JSON, and --raw does not; use --id");
  }
}

async function send(io: Io, queue: string, body: string, options: SendOptions): Promise<number> {
  check(queue, body, options);
  const { data } = await Settings.read(io, { ...options });
  // A single body is looked at before anything is opened, so that a mistake makes no data directory.
  const messages = source(io, body, options);
  return withOffice(
    data,
    async (client) => {
      const progress = new ProgressLine(io);
      let quiet = options.quiet === true;
      // Nobody reads the ids any more: the messages still have to go.
      const deaf = (error: unknown): void => {
        if (!isBrokenPipe(error)) throw error;
        quiet = true;
      };
      const sender = new Sender(client, queue, async (ids) => {
        if (!quiet) await write(io.stdout, ids.map((id) => `${escapeLine(id)}\n`).join("")).catch(deaf);
        progress.show(`sent ${sender.sent}`);
      });
      let problem: unknown;
      try {
        for await (const placed of messages) {
          if (io.signal.aborted) break;
          await sender.add(placed);
        }
        await sender.flush();
      } catch (error) {
        problem = error;
        // What stood before a bad line is whole and wanted: it goes, and the count says so.
        await sender.flush().catch((later: unknown) => {
          problem = later;
        });
      }
      progress.clear();
      return conclude(io, queue, sender.sent, problem);
    },
    { create: true },
  );
}

async function conclude(io: Io, queue: string, sent: number, problem: unknown): Promise<number> {
  if (problem !== undefined && !(problem instanceof DloError)) throw problem;
  if (problem instanceof DloError) await say(io, `dlo: ${escapeLine(problem.message)}`);
  await say(
    io,
    `sent ${counted(sent, "message")} to ${escapeLine(queue)}${problem ? ", none from there on" : ""}`,
  );
  if (problem !== undefined) return sent > 0 ? EXIT.partly : exitOf(problem);
  return io.signal.aborted ? EXIT.interrupted : EXIT.done;
}

export function define(command: Command, act: Act): void {
  withData(command)
    .argument("<queue>", "made where it is not there yet")
    .argument("<body>", "a JSON value; - reads standard input, one JSON value a line")
    .option("--id <id>", "the message's id (default: a new one)")
    .option("--id-from <field>", "take each id from this field of the body, e.g. order.id")
    .option("--raw", "send the body (or all of standard input) as one message, byte for byte")
    .option("--type <type>", "content type; default application/json, with --raw application/octet-stream")
    .option("-q, --quiet", "do not print the ids")
    .addHelpText(
      "after",
      "\nPrints the id of each message sent. JSON is sent exactly as given, never reformatted.",
    )
    .action(act(send));
}
