/** Where the doctor gets a topology from: a file, standard input, or a live broker's management API. */
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { DloError } from "../core/index.ts";
import { type LiveTopology, readLiveTopology, withoutCredentials } from "../engines/rabbitmq/index.ts";
import { type AllowRule, DOCTOR_CODES, type DoctorCode } from "../topology/index.ts";
import { type Io, say } from "./io.ts";
import { escapeLine } from "./text.ts";

/** A definitions file larger than this is refused; the largest seen in the wild has 72 kB. */
const MAX_BYTES = 256 * 1024 * 1024;

export const isUrl = (target: string): boolean => /^[a-z][a-z0-9+.-]*:\/\//i.test(target);

export interface Source {
  readonly name: string;
  readonly definitions: string | object;
  readonly live: boolean;
  readonly notes: readonly string[];
}

/** Reads what the user pointed at. */
export async function readSource(io: Io, target: string, vhost: string | undefined): Promise<Source> {
  if (isUrl(target)) {
    const { definitions, notes } = await readLive(io, target, vhost);
    return { name: withoutCredentials(target), definitions, live: true, notes };
  }
  if (target === "-")
    return { name: "standard input", definitions: await readInput(io), live: false, notes: [] };
  return {
    name: target,
    definitions: await readText(resolve(io.cwd, target), target),
    live: false,
    notes: [],
  };
}

async function readText(path: string, shown: string): Promise<string> {
  try {
    const content = await readFile(path);
    if (content.length > MAX_BYTES) {
      throw new DloError(
        "BAD_ARGUMENT",
        `'${shown}' has ${content.length} bytes; expected at most ${MAX_BYTES}`,
      );
    }
    return decode(content, shown);
  } catch (error) {
    if (error instanceof DloError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    const why =
      code === "ENOENT" ? "no such file" : code === "EISDIR" ? "it is a folder" : (code ?? "unreadable");
    throw new DloError("BAD_ARGUMENT", `cannot read '${shown}': ${why}`, { cause: error });
  }
}

/** UTF-8, or UTF-16 with its mark, as some exports from Windows are. */
function decode(content: Uint8Array, shown: string): string {
  const utf16 = (content[0] === 0xff && content[1] === 0xfe) || (content[0] === 0xfe && content[1] === 0xff);
  const label = utf16 ? (content[0] === 0xff ? "utf-16le" : "utf-16be") : "utf-8";
  try {
    return new TextDecoder(label, { fatal: true, ignoreBOM: !utf16 }).decode(content);
  } catch (cause) {
    throw new DloError("BAD_ARGUMENT", `'${shown}' is not text in UTF-8`, { cause });
  }
}

async function readInput(io: Io): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of io.stdin) {
    const part = typeof chunk === "string" ? Buffer.from(chunk) : (chunk as Buffer);
    size += part.length;
    if (size > MAX_BYTES) throw new DloError("BAD_ARGUMENT", `standard input has over ${MAX_BYTES} bytes`);
    chunks.push(part);
  }
  return decode(Buffer.concat(chunks), "standard input");
}

/** Asks a live broker; an AMQP address is turned into the management address it most likely has. */
export async function readLive(io: Io, url: string, vhost: string | undefined): Promise<LiveTopology> {
  const guess = managementOf(url);
  if (guess.guessed) {
    const shown = escapeLine(withoutCredentials(guess.url));
    await say(
      io,
      `asking the management API at ${shown}, guessed from the AMQP address; name it if it is elsewhere`,
    );
  }
  const only = vhost ?? guess.vhost;
  return readLiveTopology({
    url: guess.url,
    signal: io.signal,
    ...(only === undefined ? {} : { vhost: only }),
  });
}

/** The management address an AMQP one most likely has, and its virtual host. */
export function managementOf(url: string): { url: string; vhost?: string; guessed: boolean } {
  let at: URL;
  try {
    at = new URL(url);
  } catch {
    throw new DloError(
      "BAD_ARGUMENT",
      `'${withoutCredentials(url)}' is no address; expected http:// or amqp://`,
    );
  }
  if (at.protocol === "http:" || at.protocol === "https:") return { url, guessed: false };
  if (at.protocol !== "amqp:" && at.protocol !== "amqps:") {
    const shown = withoutCredentials(url);
    throw new DloError("BAD_ARGUMENT", `'${shown}': expected http://, https://, amqp:// or amqps://`);
  }
  const secure = at.protocol === "amqps:";
  const port = Number(at.port || (secure ? 5671 : 5672)) + 10_000;
  const user = at.username ? `${at.username}:${at.password}@` : "";
  const path = at.pathname.replace(/^\//, "");
  return {
    url: `${secure ? "https" : "http"}://${user}${at.hostname}:${port > 65_535 ? 15_672 : port}`,
    // amqp://host/ and amqp://host both mean the virtual host "/" to most clients.
    vhost: path === "" ? "/" : decodeURIComponent(path),
    guessed: true,
  };
}

/** The allow-list: given, or `<definitions>.allow.json` beside the file. */
export async function readAllowList(io: Io, target: string, given: string | undefined): Promise<AllowRule[]> {
  if (given !== undefined) return parseAllow(await readText(resolve(io.cwd, given), given), given);
  if (isUrl(target) || target === "-") return [];
  const beside = `${target.replace(/\.json$/i, "")}.allow.json`;
  const content = await readFile(join(resolve(io.cwd), beside), "utf8").catch(() => undefined);
  if (content === undefined) return [];
  await say(io, `with the allow-list ${escapeLine(beside)}`);
  return parseAllow(content, beside);
}

function parseAllow(content: string, name: string): AllowRule[] {
  const fail = (why: string): never => {
    throw new DloError(
      "BAD_ARGUMENT",
      `allow-list '${name}': ${why}; expected [{ "queue": "orders.*", "code": "expiry-without-dlx", "reason": "..." }]`,
    );
  };
  let value: unknown;
  try {
    value = JSON.parse(content.replace(/^\ufeff/, ""));
  } catch (error) {
    return fail(`not JSON (${(error as Error).message})`);
  }
  const list = Array.isArray(value) ? value : (value as { allow?: unknown } | null)?.allow;
  if (!Array.isArray(list)) return fail("no list");
  return list.map((entry: unknown, i) => {
    const { queue, code, reason, vhost } = (entry ?? {}) as Record<string, unknown>;
    const at = `entry ${i + 1}`;
    if (typeof queue !== "string" || queue === "") return fail(`${at} has no "queue"`);
    if (typeof code !== "string" || (code !== "*" && !DOCTOR_CODES.includes(code as DoctorCode))) {
      return fail(`${at} has code ${JSON.stringify(code)}, which the doctor does not have`);
    }
    if (typeof reason !== "string" || reason.trim() === "") return fail(`${at} has no "reason"`);
    if (vhost !== undefined && typeof vhost !== "string") return fail(`${at} has a "vhost" that is no text`);
    return { queue, code: code as DoctorCode | "*", reason, ...(vhost === undefined ? {} : { vhost }) };
  });
}
