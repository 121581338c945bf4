import type { Command } from "commander";
import { isLosslessNumber, parse } from "lossless-json";
import { bytesOf, type WireLetter } from "../../http/index.ts";
import { Settings } from "../config.ts";
import { EXIT } from "../exit.ts";
import { colorsFor, type Io, write } from "../io.ts";
import { withOffice } from "../office.ts";
import { withData } from "../options.ts";
import { emitJson, isoTime } from "../output.ts";
import type { Act } from "../program.ts";
import { ago, bytes, escapeLine, escapeLines } from "../text.ts";

interface ShowOptions {
  json?: boolean;
  raw?: boolean;
  data?: string;
}

/** Prints JSON over several lines with every number as it was sent: 1.10 stays 1.10, 9007199254740993 too. */
export function prettyJson(value: unknown, indent = ""): string {
  if (isLosslessNumber(value)) return value.toString();
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}  `;
  const lines = Array.isArray(value)
    ? value.map((item) => `${inner}${prettyJson(item, inner)}`)
    : Object.entries(value).map(
        ([key, item]) => `${inner}${JSON.stringify(key)}: ${prettyJson(item, inner)}`,
      );
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return lines.length === 0 ? `${open}${close}` : `${open}\n${lines.join(",\n")}\n${indent}${close}`;
}

/** Sixteen bytes a line: offset, hex, and what is printable ASCII. */
export function hexLines(data: Uint8Array): string[] {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = data.subarray(at, at + 16);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...row].map((b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines;
}

function bodyLines(letter: WireLetter): string[] {
  const { body } = letter;
  if (body.encoding === "base64") return hexLines(bytesOf(body));
  try {
    const value = parse(body.data);
    if (value !== null && typeof value === "object") return escapeLines(prettyJson(value)).split("\n");
  } catch {
    // Not JSON: shown as the text it is.
  }
  return escapeLines(body.data).split("\n");
}

type Pairs = readonly (readonly [string, string])[];

function facts(letter: WireLetter, now: number): Pairs {
  const time = (at: number): string => `${isoTime(at)} (${ago(at, now)} ago)`;
  return [
    ["letter", letter.letterId],
    ["message", letter.id],
    ["state", letter.state],
    ["queue", letter.sourceQueue],
    ["dead letters", letter.deadLetters],
    ["reason", letter.reason],
    ["error", letter.error ?? "none: its death raised none"],
    ["attempts", String(letter.attempts)],
    ["first attempt", time(letter.firstAttemptAt)],
    ["died", time(letter.failedAt)],
    ["group", letter.fingerprint],
    ["generation", `${letter.generation} (replayed ${letter.replays} times before)`],
  ];
}

function history(letter: WireLetter): string[] {
  return letter.history.map((attempt) => {
    const took = attempt.endedAt === undefined ? "" : `, after ${attempt.endedAt - attempt.startedAt} ms`;
    const where =
      attempt.pid === undefined ? "" : `, pid ${attempt.pid}${attempt.host ? ` on ${attempt.host}` : ""}`;
    const company = attempt.company === undefined ? "" : `, ${attempt.company}`;
    const cause = attempt.cause === undefined ? "" : `: ${attempt.cause}`;
    return `${attempt.n}. ${isoTime(attempt.startedAt)} ${attempt.outcome}${took}${where}${company}${cause}`;
  });
}

const pairsOf = (record: Readonly<Record<string, unknown>>): Pairs =>
  Object.entries(record).map(([key, value]) => [
    key,
    typeof value === "string" ? value : JSON.stringify(value),
  ]);

function page(letter: WireLetter, now: number, bold: (text: string) => string): string {
  const out: string[] = [];
  const pairs = (all: Pairs): void => {
    const wide = Math.max(...all.map(([key]) => key.length));
    for (const [key, value] of all) out.push(`${escapeLine(key).padEnd(wide)}  ${escapeLine(value)}`);
  };
  const section = (title: string, lines: readonly string[]): void => {
    if (lines.length > 0) out.push("", bold(title), ...lines.map((line) => `  ${line}`));
  };
  pairs(facts(letter, now));
  section("attempts", history(letter).map(escapeLine));
  section(
    "earlier lives",
    letter.earlier.map((e) =>
      escapeLine(`${e.generation}. ${isoTime(e.failedAt)} ${e.reason}: ${e.error ?? "-"}`),
    ),
  );
  for (const [title, record] of [
    ["properties", letter.properties],
    ["headers", letter.headers],
  ] as const) {
    section(
      title,
      pairsOf(record).map(([key, value]) => escapeLine(`${key}: ${value}`)),
    );
  }
  section("stack", letter.stack === null ? [] : escapeLines(letter.stack).split("\n"));
  const kind = letter.body.encoding === "base64" ? ", not text: as hex" : "";
  section(`body (${bytes(letter.size)}${kind})`, bodyLines(letter));
  return `${out.join("\n")}\n`;
}

async function show(io: Io, id: string, options: ShowOptions): Promise<number> {
  const { data } = await Settings.read(io, { ...options });
  return withOffice(data, async (client) => {
    const letter = await client.letter(id);
    if (options.raw) await write(io.stdout, bytesOf(letter.body));
    else if (options.json) {
      const { body, ...rest } = letter;
      await emitJson(io, { ...rest, body: body.data, bodyEncoding: body.encoding });
    } else await write(io.stdout, page(letter, Date.now(), colorsFor(io, io.stdout).bold));
    return EXIT.done;
  });
}

export function define(command: Command, act: Act): void {
  withData(command)
    .argument("<id>", "letter id or message id (the latest life of the message)")
    .option("--json", "one JSON document; the body as text (or base64, see bodyEncoding)")
    .option("--raw", "the body's exact bytes and nothing else")
    .action(act(show));
}
