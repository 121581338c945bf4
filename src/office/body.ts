/** Looking at a letter's body without changing it: its exact bytes, its text, a value inside it. */
import { isLosslessNumber, parse } from "lossless-json";
import type { DeadLetter } from "../core/index.ts";

/** The body's bytes: those that were sent where the engine kept them, else the JSON of the value. */
export function bodyBytes(entry: DeadLetter): Uint8Array {
  if (entry.raw) return entry.raw;
  if (entry.body instanceof Uint8Array) return entry.body;
  const text = JSON.stringify(entry.body);
  return Buffer.from(text === undefined ? "" : text, "utf8");
}

/** The body as text; null when its bytes are not UTF-8, so that nobody sees replacement characters. */
export function bodyText(entry: DeadLetter): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bodyBytes(entry));
  } catch {
    return null;
  }
}

/** The value at a path of a JSON body, as text with numbers exactly as sent; null where there is none. */
export function valueAt(entry: DeadLetter, path: readonly string[]): string | null {
  const text = bodyText(entry);
  if (text === null) return null;
  let value: unknown;
  try {
    value = parse(text);
  } catch {
    return null;
  }
  for (const key of path) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, key)) return null;
    value = (value as Record<string, unknown>)[key];
  }
  if (isLosslessNumber(value)) return value.toString();
  return value !== null && typeof value === "object" ? null : String(value);
}
