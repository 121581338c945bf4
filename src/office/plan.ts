import { createHash } from "node:crypto";
import { DloError } from "../core/index.ts";
import type { LetterStore, LetterSummary } from "../ports/index.ts";
import { parseQuery } from "./query.ts";
import { groupsOf, walk } from "./select.ts";

/** Which letters an operation is about: exactly one of these. */
export interface Selection {
  /** Letter ids or message ids. */
  readonly ids?: readonly string[];
  /** A group's fingerprint, or the beginning of one as far as it is unique. */
  readonly group?: string;
  readonly where?: string;
  readonly all?: boolean;
}

/** Why one asked-for letter is not part of the plan. */
export interface LeftOut {
  readonly id: string;
  readonly why: string;
  /** `missing`: no such letter. `settled`: already replayed, on its way or discarded. `refused`: a rule forbids it. */
  readonly kind: "missing" | "settled" | "refused";
}

/** What an operation would do, over a set frozen when it was made: letters that die later are not in it. */
export interface Plan {
  readonly action: "replay" | "discard";
  /** In order of death. */
  readonly letterIds: readonly string[];
  /** Letter id -> the id it was asked for by; only of a selection by ids. */
  readonly askedAs: Readonly<Record<string, string>>;
  /** sha256 of the frozen set. */
  readonly hash: string;
  readonly byQueue: readonly { readonly queue: string; readonly count: number; readonly exists: boolean }[];
  readonly byReason: readonly { readonly reason: string; readonly count: number }[];
  /** How many of them were replayed before. */
  readonly replayedBefore: number;
  /** The first few. */
  readonly first: readonly LetterSummary[];
  readonly leftOut: readonly LeftOut[];
}

/** A letter replayed this often goes back only when somebody insists and says why. */
export const MAX_REPLAYS = 3;
const FIRST = 5;
/** How many summaries are asked of the store at a time. */
const PAGE = 500;

export interface PlanOptions {
  readonly action: "replay" | "discard";
  readonly now: number;
  /** Another queue than the one each letter failed in. */
  readonly to?: string;
  /** Also letters that were replayed {@link MAX_REPLAYS} times. */
  readonly force?: boolean;
}

interface Found {
  letters: LetterSummary[];
  leftOut: LeftOut[];
  askedAs: Record<string, string>;
}

/** What stands in the way of a letter that is not dead. */
function settledWhy(letter: LetterSummary): string {
  switch (letter.state) {
    case "replaying":
      return "in flight: another replay has it";
    case "replayed":
      return "already replayed";
    case "discarded":
      return "discarded";
    default:
      return "";
  }
}

/** Dead letters of a message: in several queues, or with several bodies, one id can have several. */
async function deadOf(store: LetterStore, id: string): Promise<readonly LetterSummary[]> {
  const filter = { ids: [id], state: "dead" } as const;
  const found: LetterSummary[] = [];
  for (let page = await store.page(filter, PAGE); page.length > 0; ) {
    found.push(...page);
    page = page.length < PAGE ? [] : await store.page(filter, PAGE, page.at(-1)?.letterId);
  }
  const named = found.filter((letter) => letter.letterId === id);
  return named.length > 0 ? named : found.filter((letter) => letter.id === id);
}

async function byIds(store: LetterStore, ids: readonly string[]): Promise<Found> {
  const letters = new Map<string, LetterSummary>();
  const leftOut: LeftOut[] = [];
  const askedAs: Record<string, string> = {};
  for (const id of new Set(ids)) {
    const dead = await deadOf(store, id);
    for (const letter of dead) {
      letters.set(letter.letterId, letter);
      askedAs[letter.letterId] = id;
    }
    if (dead.length > 0) continue;
    const letter = await store.get(id);
    if (letter) leftOut.push({ id, kind: "settled", why: settledWhy(letter) });
    else leftOut.push({ id, kind: "missing", why: "no such letter" });
  }
  // Letter ids are in order of death, also of letters that died in one millisecond.
  const order = (a: LetterSummary, b: LetterSummary): number => (a.letterId < b.letterId ? -1 : 1);
  return { letters: [...letters.values()].sort(order), leftOut, askedAs };
}

async function fullFingerprint(store: LetterStore, group: string, now: number): Promise<string> {
  const matching = (await groupsOf(store, "", now)).filter((g) => g.fingerprint.startsWith(group));
  const exact = matching.find((g) => g.fingerprint === group) ?? matching[0];
  if (!exact) throw new DloError("NOT_FOUND", `no group of dead letters with the id "${group}"`);
  if (matching.length > 1 && exact.fingerprint !== group) {
    throw new DloError(
      "BAD_ARGUMENT",
      `group "${group}" could be any of ${matching.length}; give more of its id`,
    );
  }
  return exact.fingerprint;
}

async function select(store: LetterStore, selection: Selection, now: number): Promise<Found> {
  const given = [selection.ids, selection.group, selection.where, selection.all || undefined].filter(
    (way) => way !== undefined,
  );
  if (given.length !== 1) {
    throw new DloError(
      "BAD_ARGUMENT",
      `which letters? ${given.length} ways to select them were given; expected one of ids, a group, a query, or all`,
    );
  }
  if (selection.ids) return byIds(store, selection.ids);
  const query = parseQuery(selection.where ?? "");
  const fingerprint =
    selection.group === undefined ? undefined : await fullFingerprint(store, selection.group, now);
  const letters: LetterSummary[] = [];
  const wanted = fingerprint === undefined ? query : { ...query, filter: { fingerprint } };
  for await (const letter of walk(store, wanted, now)) {
    if (letter.state === "dead") letters.push(letter);
  }
  return { letters, leftOut: [], askedAs: {} };
}

const tally = (letters: readonly LetterSummary[], key: (l: LetterSummary) => string): [string, number][] => {
  const counts = new Map<string, number>();
  for (const letter of letters) counts.set(key(letter), (counts.get(key(letter)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
};

/**
 * Finds the letters of a selection and says what would happen to them. Changes nothing. Refuses an unclear
 * selection or query (`BAD_ARGUMENT`), a group that is not there (`NOT_FOUND`), a destination that does not exist
 * (`QUEUE_NOT_FOUND`).
 */
export async function makePlan(
  store: LetterStore,
  selection: Selection,
  options: PlanOptions,
): Promise<Plan> {
  const queues = new Set((await store.status()).map((status) => status.queue));
  if (options.to !== undefined && !queues.has(options.to)) {
    const known = [...queues].sort().join(", ") || "none";
    throw new DloError(
      "QUEUE_NOT_FOUND",
      `there is no queue "${options.to}" to send to (queues here: ${known})`,
    );
  }
  const found = await select(store, selection, options.now);
  const worn = (letter: LetterSummary): boolean =>
    options.action === "replay" && !options.force && letter.replays >= MAX_REPLAYS;
  const letters = found.letters.filter((letter) => !worn(letter));
  const leftOut = [
    ...found.leftOut,
    ...found.letters.filter(worn).map((letter) => ({
      id: letter.id,
      kind: "refused" as const,
      why: `replayed ${letter.replays} times already (once more needs force and a reason)`,
    })),
  ];
  const letterIds = letters.map((letter) => letter.letterId);
  return {
    action: options.action,
    letterIds,
    askedAs: found.askedAs,
    hash: createHash("sha256").update(letterIds.join("\n")).digest("hex"),
    byQueue: tally(letters, (letter) => options.to ?? letter.sourceQueue).map(([queue, count]) => ({
      queue,
      count,
      exists: queues.has(queue),
    })),
    byReason: tally(letters, (letter) => letter.reason).map(([reason, count]) => ({ reason, count })),
    replayedBefore: letters.filter((letter) => letter.replays > 0).length,
    first: letters.slice(0, FIRST),
    leftOut,
  };
}
