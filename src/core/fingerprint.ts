/**
 * Two thousand failures are usually three errors. Letters share a fingerprint when the error's class, its message
 * with the varying parts taken out, and the top frame in the user's own code are the same.
 */
import type { DeadLetter } from "./message.ts";

/** What a group of letters is known by. */
export interface Fingerprint {
  /** 16 hex digits. */
  readonly fingerprint: string;
  /** The error text with places for the parts that vary. */
  readonly title: string;
}

/** A user's own grouping: a key, or undefined for the built-in rule. */
export type FingerprintBy = (letter: FailureFacts) => string | undefined;

/** What the built-in rule looks at. */
export type FailureFacts = Pick<DeadLetter, "reason" | "error" | "stack">;

/** A title is one line of a list. */
const MAX_TITLE = 200;
/** Beyond this a message is text of its own, not the name of a cause. */
const MAX_LOOKED_AT = 2_000;
/** Texts whose answer is kept. */
const MAX_REMEMBERED = 100;

/** In this order: what is found first is not looked at again. */
const VARYING: readonly (readonly [RegExp, string])[] = [
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, "<uuid>"],
  [/\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?/g, "<time>"],
  [/\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\b/g, "<time>"],
  [/[^\s"'`<>()[\],;]+@[^\s"'`<>()[\],;@]+\.[a-z]{2,}/gi, "<email>"],
  [/\b[a-z][a-z0-9+.-]*:\/\/[^\s"'`<>)\]]+/gi, "<url>"],
  [/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'(?![a-z])|`[^`\n]*`|“[^”\n]*”|‘[^’\n]*’|「[^」\n]*」/gi, "<text>"],
  [/(?:\b[A-Za-z]:)?(?:[\\/][\w.@+~-]+){2,}[\\/]?/g, "<path>"],
  [/\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b/g, "<address>"],
  [/\b0x[0-9a-f]+\b/gi, "<hex>"],
  // Made-up ids: long tokens that change between letters and digits more than once.
  [/\b(?=\w{8,}\b)(?:[a-z_]+\d+[a-z_]+\w*|\d+[a-z_]+\d+\w*)\b/gi, "<id>"],
  [/\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b/gi, "<hex>"],
  [/[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?/gi, "<n>"],
];

/** A message with places for what varies: `Order 17 not found` becomes `Order <n> not found`. */
export function template(text: string): string {
  let out = text.slice(0, MAX_LOOKED_AT);
  for (const [pattern, place] of VARYING) out = out.replace(pattern, place);
  return out.replace(/\s+/g, " ").trim();
}

/**
 * The top frame in the user's own code, as `function@folder/file`: not Node's, not an installed package's. Without
 * line and column, which every edit of the file moves.
 */
export function ownFrame(stack: string | undefined): string | undefined {
  for (const line of stack?.split("\n") ?? []) {
    const frame = /^\s*at (?:(.+?) \()?(?:file:\/\/)?([^()]+?):\d+:\d+\)?$/.exec(line);
    const file = frame?.[2];
    if (file === undefined || /node_modules|^node:|^internal\/|<anonymous>/.test(file)) continue;
    const where = file
      .replace(/[?#].*$/, "")
      .split(/[\\/]/)
      .slice(-2)
      .join("/");
    return `${frame?.[1] ?? ""}@${where}`;
  }
  return undefined;
}

/** FNV-1a, 64 bits in two halves of different seeds: short, stable, and not for security. */
function hash(text: string): string {
  let low = 0x811c9dc5;
  let high = 0xc9dc5118;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    low = Math.imul(low ^ code, 0x01000193);
    high = Math.imul(high ^ (code + i), 0x01000193);
  }
  const hex = (half: number): string => (half >>> 0).toString(16).padStart(8, "0");
  return hex(high) + hex(low);
}

/** Failures come in bursts of the same, and looking at a text takes longer than finding it again. */
function remembered<T>(work: (text: string) => T): (text: string) => T {
  const known = new Map<string, T>();
  return (text) => {
    let answer = known.get(text);
    if (answer !== undefined) return answer;
    answer = work(text);
    if (known.size >= MAX_REMEMBERED) known.clear();
    known.set(text, answer);
    return answer;
  };
}

const templateOf: (error: string) => string = remembered(template);
const frameOf: (stack: string) => string = remembered((stack) => ownFrame(stack) ?? "");

/**
 * The group a letter belongs to. Letters without an error (poison, and the broker's own reasons) are grouped by
 * reason.
 *
 * @example fingerprintOf({ reason: "exhausted", error: "Error: Order 17 not found" }).title // "Error: Order <n> not found"
 */
export function fingerprintOf(letter: FailureFacts, by?: FingerprintBy): Fingerprint {
  const title = letter.error === null ? letter.reason : templateOf(letter.error);
  let own: string | undefined;
  try {
    own = by?.(letter);
  } catch {
    // A user's grouping that fails must not keep a letter out of the groups.
  }
  const key = own === undefined ? `${title}\n${frameOf(letter.stack ?? "")}` : `own\n${own}`;
  const shown = title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE - 1)}…` : title;
  return { fingerprint: hash(key), title: shown };
}
