/** Durations, sizes and comparisons as people write them. */

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/**
 * `250ms`, `30s`, `1h30m`, `2d` in ms; null for anything else. A unit is required: whether a bare 30 means
 * seconds or milliseconds is a mistake waiting to happen.
 */
export function parseDuration(text: string): number | null {
  if (text === "0") return 0;
  if (!/^(\d+(\.\d+)?(ms|min|s|m|h|d|w))+$/.test(text)) return null;
  let total = 0;
  for (const part of text.matchAll(/(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w)/g)) {
    total += Number(part[1]) * (UNIT_MS[part[2] as string] as number);
  }
  return Number.isSafeInteger(Math.round(total)) ? Math.round(total) : null;
}

/** How a number compares. */
export type Comparison = (value: number) => boolean;

/** `>=3`, `<1h`, `=2` or `2`, with the value read by `unit`; null when it is none of these. */
export function parseComparison(text: string, unit: (text: string) => number | null): Comparison | null {
  const match = /^(>=|<=|>|<|=)?(.+)$/.exec(text);
  const limit = match ? unit(match[2] as string) : null;
  if (!match || limit === null) return null;
  switch (match[1]) {
    case ">=":
      return (value) => value >= limit;
    case "<=":
      return (value) => value <= limit;
    case ">":
      return (value) => value > limit;
    case "<":
      return (value) => value < limit;
    default:
      return (value) => value === limit;
  }
}

/** `20/s`, `100/m`, `5/h` or a bare number (a second) as messages a second; null for anything else. */
export function parseRate(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)(?:\/(s|m|min|h))?$/.exec(text);
  if (!match) return null;
  const perSecond = (Number(match[1]) * 1000) / (UNIT_MS[match[2] ?? "s"] as number);
  return perSecond > 0 && Number.isFinite(perSecond) ? perSecond : null;
}
