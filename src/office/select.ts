import { DloError } from "../core/index.ts";
import type { Letter, LetterFilter, LetterGroup, LetterStore, LetterSummary } from "../ports/index.ts";
import { parseQuery, type Query } from "./query.ts";

/** How many summaries are asked of the store at a time. */
const PAGE = 500;

/** A page of letters, and where the next one begins. */
export interface LetterPage {
  readonly letters: readonly LetterSummary[];
  /** The letterId to go on behind; null when this was the last page. */
  readonly next: string | null;
}

/** The store filter of a query: where it says nothing of the state, only letters that are dead. */
export function filterFor(query: Query): LetterFilter {
  return query.namesState ? query.filter : { ...query.filter, state: "dead" };
}

/** All letters of a query in order of death. Looks only; memory holds one page. */
export async function* walk(
  store: LetterStore,
  query: Query,
  now: number,
  after?: string,
): AsyncGenerator<LetterSummary> {
  const filter = filterFor(query);
  let from = after;
  for (;;) {
    const page = await store.page(filter, PAGE, from);
    for (const summary of page) {
      const letter: Letter | null = query.needsLetter ? await store.get(summary.letterId) : null;
      if (query.matches(summary, letter, now)) yield summary;
    }
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    from = last.letterId;
  }
}

/** One page of a query, at most `limit` letters, in order of death. */
export async function pageOf(
  store: LetterStore,
  where: string,
  options: { limit: number; after?: string; now: number },
): Promise<LetterPage> {
  const letters: LetterSummary[] = [];
  for await (const summary of walk(store, parseQuery(where), options.now, options.after)) {
    if (letters.length === options.limit) return { letters, next: letters.at(-1)?.letterId ?? null };
    letters.push(summary);
  }
  return { letters, next: null };
}

/** The groups of a query, largest first. A query the store cannot look up is grouped here. */
export async function groupsOf(
  store: LetterStore,
  where: string,
  now: number,
): Promise<readonly LetterGroup[]> {
  const query = parseQuery(where);
  const groups = new Map((await store.groups(filterFor(query))).map((group) => [group.fingerprint, group]));
  if (query.text.trim() === "") return [...groups.values()].sort(largestFirst);
  const found = new Map<string, LetterSummary[]>();
  for await (const summary of walk(store, query, now)) {
    const group = found.get(summary.fingerprint);
    if (group) group.push(summary);
    else found.set(summary.fingerprint, [summary]);
  }
  return [...found]
    .map(([fingerprint, letters]) => regroup(groups.get(fingerprint), letters))
    .sort(largestFirst);
}

const largestFirst = (a: LetterGroup, b: LetterGroup): number =>
  b.count - a.count || (a.title < b.title ? -1 : a.title > b.title ? 1 : 0);

function regroup(known: LetterGroup | undefined, letters: readonly LetterSummary[]): LetterGroup {
  const first = letters[0] as LetterSummary;
  const times = letters.map((letter) => letter.failedAt);
  return {
    fingerprint: first.fingerprint,
    title: known?.title ?? first.error ?? first.reason,
    count: letters.length,
    firstSeenAt: times.reduce((a, b) => Math.min(a, b)),
    lastSeenAt: times.reduce((a, b) => Math.max(a, b)),
    queues: [...new Set(letters.map((letter) => letter.sourceQueue))],
    reasons: [...new Set(letters.map((letter) => letter.reason))],
    sample: first.letterId,
  };
}

/** One letter by letterId or message id; `NOT_FOUND` names it. */
export async function letterOf(store: LetterStore, id: string): Promise<Letter> {
  const letter = await store.get(id);
  if (letter) return letter;
  throw new DloError("NOT_FOUND", `no letter with the id "${id}" (a letter id or a message id was expected)`);
}
