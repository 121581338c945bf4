/**
 * A tolerant JSON reader for definition files. It takes what a RabbitMQ takes (a byte order mark, trailing
 * commas) and says so in notes; of duplicate keys the last one counts; everything else is refused with line and column and, where it can be told,
 * with what the text really is (comment lines, an unexpanded template).
 */

/** A number written with a fraction or an exponent: an integer to JavaScript, a float to the broker. */
export class JsonFloat {
  readonly text: string;
  readonly value: number;
  constructor(text: string) {
    this.text = text;
    this.value = Number(text);
  }
}

/** Where and why a text could not be read. Lines and columns count from 1. */
export class Unreadable extends Error {
  readonly line: number;
  readonly column: number;
  constructor(message: string, line: number, column: number) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

export interface ReadJson {
  readonly value: unknown;
  readonly notes: readonly string[];
}

/** Deeper than any definitions file; keeps a hostile text from exhausting the stack. */
const MAX_DEPTH = 256;

/** Reads a definitions text; throws {@link Unreadable}. Objects have no prototype, so no key is special. */
export function readJson(text: string): ReadJson {
  const plain = quick(text);
  if (plain) return plain;
  const reader = new Reader(text);
  return { value: reader.document(), notes: reader.notes() };
}

/** Strict JSON that holds no float needs no reader of ours. Undefined: look closer. */
function quick(text: string): ReadJson | undefined {
  if (/[:[,]\s*-?\d+[.eE]/.test(text)) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? { value, notes: [] }
      : undefined;
  } catch {
    return undefined;
  }
}

class Reader {
  readonly #text: string;
  #at = 0;
  #trailingCommas = 0;
  #firstTrailing = 0;
  #bom = false;

  constructor(text: string) {
    this.#text = text;
  }

  notes(): string[] {
    const notes: string[] = [];
    const strict =
      "RabbitMQ 3.10 takes it (measured); brokers with a strict JSON reader and other tools refuse the file";
    if (this.#bom) notes.push(`the file begins with a byte order mark: ${strict}`);
    if (this.#trailingCommas > 0) {
      const { line, column } = this.#place(this.#firstTrailing);
      const count =
        this.#trailingCommas === 1 ? "a trailing comma" : `${this.#trailingCommas} trailing commas`;
      notes.push(`${count} (first at line ${line}, column ${column}): ${strict}`);
    }
    return notes;
  }

  document(): unknown {
    if (this.#text.charCodeAt(0) === 0xfeff) {
      this.#bom = true;
      this.#at = 1;
    }
    this.#space();
    if (this.#at >= this.#text.length) this.#fail("the file is empty; expected one JSON object");
    if (this.#text[this.#at] !== "{") {
      this.#guess();
      this.#fail("expected a JSON object at the top level; every RabbitMQ refuses this file");
    }
    const value = this.#value(0);
    this.#space();
    if (this.#at < this.#text.length) this.#unexpected("the end of the file");
    return value;
  }

  #place(at: number): { line: number; column: number } {
    let line = 1;
    let start = this.#bom ? 1 : 0; // editors do not show the mark
    for (let i = this.#text.indexOf("\n"); i !== -1 && i < at; i = this.#text.indexOf("\n", i + 1)) {
      line += 1;
      start = i + 1;
    }
    return { line, column: at - start + 1 };
  }

  #fail(message: string, at: number = this.#at): never {
    const { line, column } = this.#place(at);
    throw new Unreadable(message, line, column);
  }

  /** Says what the text is, where that is better than what was expected. */
  #guess(): void {
    const rest = this.#text.slice(this.#at, this.#at + 4);
    if (rest.startsWith("#"))
      this.#fail("a # comment line; JSON has no comments and every RabbitMQ refuses this file");
    if (rest.startsWith("//") || rest.startsWith("/*")) {
      this.#fail("a comment; JSON has no comments and every RabbitMQ refuses this file");
    }
    const lineStart = this.#text.lastIndexOf("\n", this.#at - 1) + 1;
    const lineEnd = this.#text.indexOf("\n", this.#at);
    const line = this.#text.slice(lineStart, lineEnd === -1 ? undefined : lineEnd);
    const before = this.#text.slice(lineStart, this.#at + 3);
    if (
      /\$\{|\{\{|\{%|<%/.test(before) ||
      (/^[\s]*(\{\{|\{%|<%)/.test(line) && this.#text[this.#at] !== '"')
    ) {
      this.#fail("an unexpanded template expression: render it first, then examine the result");
    }
  }

  #unexpected(expected: string): never {
    this.#guess();
    const found = this.#text[this.#at];
    const shown = found === undefined ? "the end of the file" : JSON.stringify(found);
    this.#fail(`expected ${expected}, found ${shown}; every RabbitMQ refuses this file`);
  }

  #space(): void {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return;
      this.#at += 1;
    }
  }

  #value(depth: number): unknown {
    if (depth > MAX_DEPTH) this.#fail(`nested deeper than ${MAX_DEPTH} levels`);
    this.#space();
    const char = this.#text[this.#at];
    if (char === "{") return this.#object(depth);
    if (char === "[") return this.#array(depth);
    if (char === '"') return this.#string();
    for (const [word, value] of [
      ["true", true],
      ["false", false],
      ["null", null],
    ] as const) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    return this.#number();
  }

  #number(): number | JsonFloat {
    const number = /-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
    number.lastIndex = this.#at;
    const match = number.exec(this.#text);
    if (!match) this.#unexpected("a value");
    this.#at += match[0].length;
    return match[2] || match[3] ? new JsonFloat(match[0]) : Number(match[0]);
  }

  #string(): string {
    const start = this.#at;
    const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
    string.lastIndex = start;
    const match = string.exec(this.#text);
    if (!match) this.#brokenString(start);
    this.#at += match[0].length;
    return JSON.parse(match[0]) as string;
  }

  #brokenString(start: number): never {
    for (let at = start + 1; at < this.#text.length; at += 1) {
      const char = this.#text[at]!;
      if (char === "\\" && /["\\/bfnrtu]/.test(this.#text[at + 1] ?? "")) at += 1;
      else if (char === "\\")
        this.#fail(`an unknown escape in a string; every RabbitMQ refuses this file`, at);
      else if (char < " ")
        this.#fail("a string runs over the end of the line or holds a control character", at);
    }
    return this.#fail("a string that is never closed", start);
  }

  #array(depth: number): unknown[] {
    const list: unknown[] = [];
    this.#at += 1;
    for (;;) {
      this.#space();
      if (this.#text[this.#at] === "]") break;
      list.push(this.#value(depth + 1));
      if (!this.#comma("]")) break;
    }
    this.#at += 1;
    return list;
  }

  #object(depth: number): Record<string, unknown> {
    const object: Record<string, unknown> = Object.create(null);
    this.#at += 1;
    for (;;) {
      this.#space();
      if (this.#text[this.#at] === "}") break;
      if (this.#text[this.#at] !== '"') this.#unexpected('a key in double quotes or "}"');
      const key = this.#string();
      this.#space();
      if (this.#text[this.#at] !== ":") this.#unexpected('":"');
      this.#at += 1;
      object[key] = this.#value(depth + 1);
      if (!this.#comma("}")) break;
    }
    this.#at += 1;
    return object;
  }

  /** After an element: true when another may follow. A comma before the end is counted, not refused. */
  #comma(end: string): boolean {
    this.#space();
    if (this.#text[this.#at] === end) return false;
    if (this.#text[this.#at] !== ",") this.#unexpected(`"," or "${end}"`);
    const comma = this.#at;
    this.#at += 1;
    this.#space();
    if (this.#text[this.#at] === end) {
      if (this.#trailingCommas === 0) this.#firstTrailing = comma;
      this.#trailingCommas += 1;
    }
    return true;
  }
}
