/** The letters of a store, whatever it calls its list. */
import { type DeadLetter, DloError, isPending } from "../core/index.ts";
import type { Maybe } from "../ports/index.ts";

type Listing = { list?: unknown; entries?: unknown };

const isLetter = (value: unknown): value is DeadLetter =>
  typeof value === "object" && value !== null && "id" in value;

/** An array, a set, a map, an iterator of either, or a plain object by id: the letters in it, in its order. */
function lettersIn(listing: unknown): DeadLetter[] | undefined {
  if (typeof listing !== "object" || listing === null) return undefined;
  const values: unknown[] =
    Symbol.iterator in listing ? [...(listing as Iterable<unknown>)] : Object.values(listing);
  return values
    .map((one) => (Array.isArray(one) && one.length === 2 && isLetter(one[1]) ? one[1] : one))
    .filter(isLetter);
}

function checked(listing: unknown, name: string): DeadLetter[] {
  const letters = lettersIn(listing);
  if (letters) return letters;
  throw new DloError("BAD_ARGUMENT", `${name} answered ${typeof listing}; expected the entries as an array`);
}

/**
 * All letters, in the store's order. `list()` where there is one; older stores show them as `entries`, a property
 * or a method. A store with neither cannot be replayed from (`UNSUPPORTED`).
 */
export function listLetters(store: object): Maybe<DeadLetter[]> {
  const { list, entries } = store as Listing;
  const name = typeof list === "function" ? "list" : "entries";
  const found: unknown = typeof list === "function" ? list.call(store) : entries;
  const listing: unknown = typeof found === "function" ? found.call(store) : found;
  if (listing === undefined && typeof list !== "function" && typeof entries !== "function") {
    throw new DloError(
      "UNSUPPORTED",
      "the dead-letter store has neither list() nor entries; replay needs one of them to read the letters",
    );
  }
  if (isPending(listing)) return listing.then((value) => checked(value, `deadLetters.${name}`));
  return checked(listing, `deadLetters.${name}`);
}
