/**
 * JSON text as a value, or the place where it stops being JSON. The engine's own messages are not used: they quote
 * the text, and no part of a body may stand in an error.
 */

/** A body that is no JSON: where, in words. */
export interface Undecodable {
  readonly undecodable: string;
}

/** Deeper nesting than this is not walked: the fault is then named without its place. */
const MAX_DEPTH = 1_000;

/** The value of a JSON text (no text at all: undefined), or where and why it is none. */
export function parseJson(text: string): { value: unknown } | Undecodable {
  if (text.trim() === "") return { value: undefined };
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { undecodable: faultOf(text) };
  }
}

class Fault extends Error {
  readonly at: number;
  readonly expected: string;
  constructor(at: number, expected: string) {
    super(expected);
    this.at = at;
    this.expected = expected;
  }
}

function faultOf(text: string): string {
  try {
    const end = space(text, value(text, space(text, 0), 0));
    if (end < text.length) throw new Fault(end, "the end of the text");
  } catch (error) {
    if (error instanceof Fault) {
      const before = text.slice(0, error.at);
      const line = before.split("\n").length;
      const column = error.at - before.lastIndexOf("\n");
      const ends = error.at >= text.length ? "; the text ends there" : "";
      const place = `position ${error.at} (line ${line}, column ${column})`;
      return `the body is not JSON: at ${place} expected ${error.expected}${ends}`;
    }
  }
  return "the body is not JSON";
}

function space(text: string, from: number): number {
  let at = from;
  while (at < text.length && " \t\n\r".includes(text.charAt(at))) at++;
  return at;
}

/** The position behind the value at `at`. */
function value(text: string, at: number, depth: number): number {
  if (depth > MAX_DEPTH) throw new Error("too deep to walk");
  const first = text.charAt(at);
  if (first === "{") return members(text, at, "}", depth);
  if (first === "[") return members(text, at, "]", depth);
  if (first === '"') return string(text, at);
  const scalar = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/y;
  scalar.lastIndex = at;
  const found = scalar.exec(text);
  if (!found) throw new Fault(at, "a value");
  return at + found[0].length;
}

function members(text: string, from: number, close: string, depth: number): number {
  let at = space(text, from + 1);
  if (text.charAt(at) === close) return at + 1;
  for (;;) {
    if (close === "}") {
      if (text.charAt(at) !== '"') throw new Fault(at, "a field name in quotes");
      at = space(text, string(text, at));
      if (text.charAt(at) !== ":") throw new Fault(at, "':'");
      at = space(text, at + 1);
    }
    at = space(text, value(text, at, depth + 1));
    const next = text.charAt(at);
    if (next === close) return at + 1;
    if (next !== ",") throw new Fault(at, `',' or '${close}'`);
    at = space(text, at + 1);
  }
}

function string(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '"') return at + 1;
    if (char < " ") throw new Fault(at, "no control character in a string");
    if (char !== "\\") continue;
    const legal = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
    legal.lastIndex = at;
    const found = legal.exec(text);
    if (!found) throw new Fault(at, "an escape that JSON knows");
    at += found[0].length - 1;
  }
  throw new Fault(text.length, "the end of the string");
}
