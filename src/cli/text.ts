/** Text for terminals and pipes: escaping what could act, measuring what is wide, cutting what is long. */
import stringWidth from "string-width";

// C0, DEL and C1 controls could drive the terminal; bidirectional and line separators could reorder what is read.
const ACTING = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g;
const NAMED: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeOne(char: string): string {
  const code = char.charCodeAt(0);
  return (
    NAMED[char] ??
    (code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`)
  );
}

/** Data as one line that does nothing to a terminal: ESC is shown as `\x1b`, a line break as `\n`. */
export const escapeLine = (text: string): string => text.replace(ACTING, escapeOne);

/** Data as lines that do nothing to a terminal: line breaks and tabs stay. */
export const escapeLines = (text: string): string =>
  text
    .replace(/\r\n/g, "\n")
    .replace(ACTING, (char) => (char === "\n" || char === "\t" ? char : escapeOne(char)));

/** A JSON text whose characters do nothing to a terminal: what JSON leaves as it is goes as its `\\u` escape, the same value. */
export const escapeJson = (text: string): string =>
  text.replace(ACTING, (char) =>
    char === "\n" ? char : `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** A field of tab-separated values: as {@link escapeLine}, and a backslash doubled so that it can be undone. */
export const escapeField = (text: string): string => escapeLine(text.replace(/\\/g, "\\\\"));

/** Columns of text on a terminal; east-Asian wide characters take two. */
export const widthOf = (text: string): number => stringWidth(text);

const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Cuts to a width, with a visible mark; never through a character. */
export function cutTo(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  if (width <= 1) return width === 1 ? "…" : "";
  let cut = "";
  let used = 0;
  for (const { segment } of segmenter.segment(text)) {
    const next = widthOf(segment);
    if (used + next > width - 1) break;
    cut += segment;
    used += next;
  }
  return `${cut}…`;
}

export const padEnd = (text: string, width: number): string =>
  text + " ".repeat(Math.max(0, width - widthOf(text)));
export const padStart = (text: string, width: number): string =>
  " ".repeat(Math.max(0, width - widthOf(text))) + text;

/** `1 letter`, `2 letters`. */
export const counted = (n: number, one: string, many: string = `${one}s`): string =>
  `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** How long ago, in the largest unit that says enough: `45s`, `12m`, `3h`, `5d`. */
export function ago(at: number, now: number): string {
  const seconds = Math.max(0, Math.floor((now - at) / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
}

/** Bytes as people read them. */
export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  return n < 1024 * 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1024 / 1024).toFixed(1)} MiB`;
}
