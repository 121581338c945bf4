import { AmqpError } from "./errors.ts";
import type { FieldValue, HeaderTable } from "./table.ts";
import { canonicalValue, typeName } from "./values.ts";

/** A headers binding, made ready for matching: what must be there, and whether all or any of it. */
export interface HeadersPattern {
  readonly any: boolean;
  /** Key and canonical value; a void value asks only for the key. */
  readonly wanted: readonly (readonly [string, string | null])[];
}

const MODES = ["all", "any", "all-with-x", "any-with-x"];

/**
 * Reads a headers binding. Keys starting with `x-` count only in the `-with-x` modes (rule B6).
 * @throws AmqpError 406 for an x-match that is none of the four
 */
export function headersPattern(table: HeaderTable | undefined): HeadersPattern {
  const mode = matchMode(table?.get("x-match"));
  const wanted: [string, string | null][] = [];
  for (const key of table?.keys() ?? []) {
    if (key === "x-match" || (key.startsWith("x-") && !mode.endsWith("-with-x"))) continue;
    const value = table?.get(key) as FieldValue;
    wanted.push([key, value.t === "V" ? null : canonicalValue(value)]);
  }
  return { any: mode.startsWith("any"), wanted };
}

function matchMode(value: FieldValue | undefined): string {
  if (value === undefined) return "all";
  if (value.t !== "S") {
    const shown = "v" in value ? String(value.v) : "";
    throw new AmqpError(
      406,
      `Invalid x-match field type ${typeName(value)} (value ${shown}); expected longstr`,
    );
  }
  if (!MODES.includes(value.v)) {
    throw new AmqpError(
      406,
      `Invalid x-match field value '${value.v}'; expected all, any, all-with-x, or any-with-x`,
    );
  }
  return value.v;
}

export function headersMatch(pattern: HeadersPattern, headers: HeaderTable | undefined): boolean {
  for (const [key, wanted] of pattern.wanted) {
    const value = headers?.get(key);
    const matches = value !== undefined && (wanted === null || canonicalValue(value) === wanted);
    if (matches && pattern.any) return true;
    if (!matches && !pattern.any) return false;
  }
  // Nothing to ask: `all` is content with it, `any` is not.
  return !pattern.any;
}
