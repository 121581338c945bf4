/**
 * Sets of routing keys. A queue bound with `parcel.*.eu` can hold letters of any such key, so whether they are all
 * routed is a question about sets of words: is every key that matches these patterns also matched by one of those?
 * Answered by walking the product of the patterns' automata; the walk also yields a lost key to show.
 *
 * Topic words are separated by dots; `*` is one word, `#` is any number; the empty key has no word at all.
 */

/** One key; all keys that match every pattern of `all` and none of `none`; or keys nothing is known of. */
export type Keys =
  | { readonly kind: "one"; readonly key: string }
  | { readonly kind: "some"; readonly all: readonly string[]; readonly none: readonly string[] }
  | { readonly kind: "unknown" };

export const UNKNOWN_KEYS: Keys = { kind: "unknown" };
export const ANY_KEY: Keys = { kind: "some", all: [], none: [] };

export const one = (key: string): Keys => ({ kind: "one", key });

/** The keys a topic binding accepts. */
export const patternKeys = (pattern: string): Keys =>
  isPattern(pattern) ? { kind: "some", all: [pattern], none: [] } : one(pattern);

export const wordsOf = (key: string): string[] => (key === "" ? [] : key.split("."));

/** True when a topic binding key holds a wildcard word. */
export const isPattern = (key: string): boolean => /(^|\.)[*#](\.|$)/.test(key);

/** A name for a set, equal for equal sets as far as they are written alike. */
export function idOf(keys: Keys): string {
  if (keys.kind === "one") return `=${keys.key}`;
  if (keys.kind === "unknown") return "?";
  return `~${keys.all.join("\u0001")}\u0002${keys.none.join("\u0001")}`;
}

/** For people: a key, a pattern, or what is known of a set. */
export function showKeys(keys: Keys): string {
  if (keys.kind === "one") return keys.key;
  if (keys.kind === "unknown") return "?";
  const all = keys.all.length === 0 ? "#" : keys.all.join(" and ");
  return keys.none.length === 0 ? all : `${all} except ${keys.none.slice(0, 3).join(", ")}`;
}

/** Whether a topic pattern matches a key. */
export function topicMatches(pattern: string, key: string): boolean {
  const p = wordsOf(pattern);
  const k = wordsOf(key);
  let i = 0;
  let j = 0;
  let hash = -1;
  let resume = 0;
  while (j < k.length) {
    if (p[i] === "#") {
      hash = i;
      resume = j;
      i += 1;
    } else if (i < p.length && (p[i] === "*" || p[i] === k[j])) {
      i += 1;
      j += 1;
    } else if (hash >= 0) {
      i = hash + 1;
      resume += 1;
      j = resume;
    } else return false;
  }
  while (p[i] === "#") i += 1;
  return i === p.length;
}

/** Whether a key belongs to a set; `undefined` when that is not known. */
export function contains(keys: Keys, key: string): boolean | undefined {
  if (keys.kind === "unknown") return undefined;
  if (keys.kind === "one") return keys.key === key;
  return keys.all.every((p) => topicMatches(p, key)) && !keys.none.some((p) => topicMatches(p, key));
}

/** The part of a set that a further topic pattern lets through. */
export function narrow(keys: Keys, pattern: string): Keys {
  if (keys.kind !== "some") return keys;
  if (!isPattern(pattern)) return one(pattern);
  if (keys.all.some((p) => p === pattern || patternCovers(pattern, p))) return keys;
  const all = [...keys.all.filter((p) => !patternCovers(p, pattern)), pattern].sort();
  return { kind: "some", all, none: keys.none };
}

/** The part of a set that no pattern of `patterns` matches (what goes to an alternate exchange). */
export function without(keys: Keys, patterns: readonly string[]): Keys {
  if (keys.kind !== "some") return keys;
  return { kind: "some", all: keys.all, none: [...new Set([...keys.none, ...patterns])].sort() };
}

/** True only when every key of `inner` matches `outer`. Exact for single patterns of moderate length. */
export function patternCovers(outer: string, inner: string): boolean {
  if (outer === inner || outer === "#") return true;
  return findKey([inner], [{ all: [outer], none: [] }]) === null;
}

/** Sets whose keys are taken away: a key of a set goes when it matches all of `all` and none of `none`. */
export interface Taken {
  readonly all: readonly string[];
  readonly none: readonly string[];
}

/** Work after which a question is given up as "cannot be known"; ordinary ones take a few hundred steps. */
const BUDGET = 400_000;

/**
 * A key that matches every pattern of `all` and belongs to none of the `taken` sets. Null when there is none;
 * undefined when that could not be found out with bounded work.
 */
export function findKey(all: readonly string[], taken: readonly Taken[]): string | null | undefined {
  const patterns = [...new Set([...all, ...taken.flatMap((t) => [...t.all, ...t.none])])];
  const machines = patterns.map((pattern) => wordsOf(pattern));
  if (machines.some((words) => words.length > 30)) return undefined;
  const index = new Map(patterns.map((pattern, i) => [pattern, i] as const));
  const must = all.map((pattern) => index.get(pattern)!);
  const sets = taken.map((t) => ({
    all: t.all.map((pattern) => index.get(pattern)!),
    none: t.none.map((pattern) => index.get(pattern)!),
  }));
  const alphabet = alphabetOf(machines);
  const start = machines.map((words) => closure(words, 1));
  const seen = new Set<string>([start.join()]);
  const queue: { states: number[]; words: string[] }[] = [{ states: start, words: [] }];
  let budget = BUDGET;
  for (const { states, words } of queue) {
    const accepts = (i: number): boolean => ((states[i]! >> machines[i]!.length) & 1) === 1;
    if (must.every(accepts)) {
      const gone = sets.some((set) => set.all.every(accepts) && !set.none.some(accepts));
      if (!gone) return words.join(".");
    }
    for (const word of alphabet) {
      budget -= machines.length;
      if (budget < 0) return undefined;
      const next = states.map((state, i) => step(machines[i]!, state, word));
      if (must.some((i) => next[i] === 0)) continue;
      const id = next.join();
      if (seen.has(id)) continue;
      seen.add(id);
      queue.push({ states: next, words: [...words, word] });
    }
  }
  return null;
}

/** Every literal word of the patterns, and one that none of them holds. */
function alphabetOf(machines: readonly (readonly string[])[]): string[] {
  const words = new Set(machines.flat().filter((word) => word !== "*" && word !== "#"));
  let fresh = "other";
  while (words.has(fresh)) fresh += "s";
  return [fresh, ...words];
}

/** Positions as bits: bit n is "the first n words are matched". A `#` may match nothing, so its next bit is on too. */
function closure(words: readonly string[], state: number): number {
  let closed = state;
  for (let i = 0; i < words.length; i += 1) {
    if (words[i] === "#" && (closed >> i) & 1) closed |= 1 << (i + 1);
  }
  return closed;
}

function step(words: readonly string[], state: number, word: string): number {
  let next = 0;
  for (let i = 0; i < words.length; i += 1) {
    if (((state >> i) & 1) === 0) continue;
    if (words[i] === "#") next |= 1 << i;
    else if (words[i] === "*" || words[i] === word) next |= 1 << (i + 1);
  }
  return closure(words, next);
}
