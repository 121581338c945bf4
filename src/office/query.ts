/**
 * The one query language of commands, API and console:
 * `queue:orders reason:poison error:"TimeoutError" attempts:>=3 age:>1h body.order.id:123 "free text"`.
 * Terms are joined by AND, a leading `-` negates, a comma means any of, `*` in a value stands for any text.
 */
import { DloError, LETTER_REASONS, type LetterReason } from "../core/index.ts";
import type { Letter, LetterFilter, LetterState, LetterSummary } from "../ports/index.ts";
import { bodyText, valueAt } from "./body.ts";
import { type Comparison, parseComparison, parseDuration } from "./units.ts";

/** Every state of a letter. */
export const LETTER_STATES: readonly LetterState[] = ["dead", "replaying", "replayed", "discarded"];

const FIELDS = [
  "queue",
  "dlq",
  "reason",
  "state",
  "error",
  "group",
  "id",
  "attempts",
  "replays",
  "size",
  "age",
  "header.NAME",
  "body.PATH",
];

/** A query as understood: the part a store can look up itself, and the test for the rest. */
export interface Query {
  readonly text: string;
  /** What the store can narrow by. Every letter that matches the query matches it. */
  readonly filter: LetterFilter;
  /** True when some term looks into the body or headers, so that the whole letter is needed. */
  readonly needsLetter: boolean;
  /** Whether the query says anything about the state; where it does not, lists show the dead. */
  readonly namesState: boolean;
  matches(summary: LetterSummary, letter: Letter | null, now: number): boolean;
}

type Test = (summary: LetterSummary, letter: Letter | null, now: number) => boolean;
interface Term {
  readonly field: string | null;
  readonly values: readonly string[];
  readonly negated: boolean;
  /** 1-based, for error messages. */
  readonly at: number;
}

const refuse = (at: number, what: string, expected: string): never => {
  throw new DloError("BAD_ARGUMENT", `query, at character ${at}: ${what}; expected ${expected}`);
};

const isSpace = (c: string | undefined): boolean => c === " " || c === "\t" || c === "\n" || c === "\r";

/** Reads one value, quoted or bare; bare ends at space or comma. Answers the text and where it ended. */
function readValue(text: string, start: number): { value: string; end: number } {
  if (text[start] !== '"') {
    let end = start;
    while (end < text.length && !isSpace(text[end]) && text[end] !== "," && text[end] !== '"') end += 1;
    return { value: text.slice(start, end), end };
  }
  let value = "";
  for (let i = start + 1; i < text.length; i += 1) {
    const c = text[i] as string;
    if (c === '"') return { value, end: i + 1 };
    if (c === "\\" && i + 1 < text.length) {
      i += 1;
      value += text[i];
    } else value += c;
  }
  return refuse(start + 1, "the quoted text never ends", 'a closing "');
}

/** Reads `value,value,...`. */
function readValues(text: string, start: number, what: string): { values: string[]; end: number } {
  const values: string[] = [];
  let i = start;
  for (;;) {
    const { value, end } = readValue(text, i);
    if (value === "" && text[i] !== '"') refuse(i + 1, `${what} has no value`, "a value");
    values.push(value);
    if (text[end] !== ",") {
      if (end < text.length && !isSpace(text[end])) {
        refuse(end + 1, `unexpected ${text[end]}`, "a space between terms");
      }
      return { values, end };
    }
    i = end + 1;
  }
}

function readTerms(text: string): Term[] {
  const terms: Term[] = [];
  let i = 0;
  while (i < text.length) {
    if (isSpace(text[i])) {
      i += 1;
      continue;
    }
    const at = i + 1;
    const negated = text[i] === "-" && i + 1 < text.length && !isSpace(text[i + 1]);
    if (negated) i += 1;
    const name = /^([A-Za-z][A-Za-z0-9_]*(?:\.[^\s:",]+)?):/.exec(text.slice(i));
    const field = name ? (name[1] as string) : null;
    if (name) i += name[0].length;
    const read = readValues(text, i, field ?? "the term");
    terms.push({ field, values: read.values, negated, at });
    i = read.end;
  }
  return terms;
}

const escapeRegExp = (text: string): string => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&");
/** Whole-text match where `*` is any text; letter case counts, as names are exact. */
function glob(pattern: string): (text: string) => boolean {
  if (!pattern.includes("*")) return (text) => text === pattern;
  const expression = new RegExp(`^${escapeRegExp(pattern).replace(/\*/g, "[\\s\\S]*")}$`);
  return (text) => expression.test(text);
}
/** Substring match without regard to case; `*` is any text. */
function contains(pattern: string): (text: string) => boolean {
  if (!pattern.includes("*")) {
    const small = pattern.toLowerCase();
    return (text) => text.toLowerCase().includes(small);
  }
  const expression = new RegExp(escapeRegExp(pattern).replace(/\*/g, "[\\s\\S]*"), "i");
  return (text) => expression.test(text);
}
const anyOf =
  (values: readonly string[], make: (value: string) => (text: string) => boolean) =>
  (...texts: (string | null)[]): boolean =>
    values.some((value) => texts.some((text) => text !== null && make(value)(text)));

function oneOf(term: Term, allowed: readonly string[]): void {
  for (const value of term.values) {
    if (!allowed.includes(value)) {
      refuse(term.at, `${term.field} has no value "${value}"`, `one of ${allowed.join(", ")}`);
    }
  }
}

function numeric(term: Term, unit: (text: string) => number | null, expected: string): Comparison[] {
  return term.values.map(
    (value) =>
      parseComparison(value, unit) ?? refuse(term.at, `${term.field} cannot be "${value}"`, expected),
  );
}

const WHOLE = (text: string): number | null => (/^\d{1,15}$/.test(text) ? Number(text) : null);

/** Numbers about a letter, by the field's name; `age` counts from its death, in ms. */
const NUMBERS: Record<string, (s: LetterSummary, now: number) => number> = {
  attempts: (s) => s.attempts,
  replays: (s) => s.replays,
  size: (s) => s.size,
  age: (s, now) => now - s.failedAt,
};

function testOf(term: Term): Test {
  const { field, values } = term;
  const exact = anyOf(values, glob);
  const loose = anyOf(values, contains);
  if (field === null) {
    return (s, letter) =>
      loose(s.error, s.id, s.letterId, s.sourceQueue, s.reason) ||
      (letter !== null && loose(bodyText(letter.entry)));
  }
  switch (field) {
    case "queue":
      return (s) => exact(s.sourceQueue);
    case "dlq":
      return (s) => exact(s.deadLetters);
    case "reason":
      oneOf(term, LETTER_REASONS);
      return (s) => exact(s.reason);
    case "state":
      oneOf(term, [...LETTER_STATES, "any"]);
      return values.includes("any") ? () => true : (s) => exact(s.state);
    case "error":
      return (s) => loose(s.error);
    case "group":
      return (s) => exact(s.fingerprint);
    case "id":
      return (s) => exact(s.id, s.letterId);
    case "attempts":
    case "replays":
    case "size":
    case "age": {
      const [unit, expected] =
        field === "age"
          ? [parseDuration, "a comparison with a duration, as in age:>1h"]
          : [WHOLE, `a comparison with a whole number, as in ${field}:>=3`];
      const tests = numeric(term, unit as (text: string) => number | null, expected as string);
      const number = NUMBERS[field] as (s: LetterSummary, now: number) => number;
      return (s, _letter, now) => tests.some((test) => test(number(s, now)));
    }
    default:
      return deepTest(term, exact);
  }
}

function deepTest(term: Term, exact: (...texts: (string | null)[]) => boolean): Test {
  const [root, ...path] = (term.field as string).split(".");
  if (root === "header" && path.length > 0) {
    const name = path.join(".");
    return (_s, letter) => {
      const value = letter?.entry.headers?.[name];
      return value !== undefined && exact(String(value));
    };
  }
  if (root === "body" && path.length > 0) {
    return (_s, letter) => letter !== null && exact(valueAt(letter.entry, path));
  }
  return refuse(term.at, `there is no field "${term.field}"`, `one of ${FIELDS.join(", ")}, or free text`);
}

const isDeep = (term: Term): boolean => term.field === null || /^(body|header)\./.test(term.field);

/** What the store can look up by itself: one plain, unnegated value. */
function filterOf(terms: readonly Term[]): LetterFilter {
  const plain = (field: string): string | undefined => {
    const found = terms.find((t) => t.field === field && !t.negated && t.values.length === 1);
    const value = found?.values[0];
    return value?.includes("*") || value === "any" ? undefined : value;
  };
  const queue = plain("queue");
  const dlq = plain("dlq");
  const reason = plain("reason");
  const state = plain("state");
  const group = plain("group");
  const id = plain("id");
  return {
    ...(queue !== undefined && { sourceQueue: queue }),
    ...(dlq !== undefined && { deadLetters: dlq }),
    ...(reason !== undefined && { reason: reason as LetterReason }),
    ...(state !== undefined && { state: state as LetterState }),
    ...(group !== undefined && { fingerprint: group }),
    ...(id !== undefined && { ids: [id] }),
  };
}

/**
 * Reads a query. Empty text matches everything. A wrong one is refused (`BAD_ARGUMENT`) with the place and what
 * was expected there.
 *
 * @example
 * parseQuery('queue:orders reason:permanent,exhausted -error:timeout').matches(summary, null, Date.now())
 */
export function parseQuery(text: string): Query {
  const terms = readTerms(text);
  const tests = terms.map((term) => {
    const test = testOf(term);
    return term.negated ? (((s, l, n) => !test(s, l, n)) as Test) : test;
  });
  return {
    text,
    filter: filterOf(terms),
    needsLetter: terms.some(isDeep),
    namesState: terms.some((term) => term.field === "state"),
    matches: (summary, letter, now) => tests.every((test) => test(summary, letter, now)),
  };
}
