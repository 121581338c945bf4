// The automata against plain enumeration: all keys of up to four words over a small alphabet.
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { findKey, patternCovers, topicMatches } from "../../../src/topology/keys.ts";
import { Trie } from "../../../src/topology/trie.ts";

const word = fc.constantFrom("a", "b", "*", "#");
const pattern = fc.array(word, { maxLength: 4 }).map((words) => words.join("."));

/** The definition, word by word; slow and plain. */
function reference(p: readonly string[], k: readonly string[]): boolean {
  const [head, ...rest] = p;
  if (head === undefined) return k.length === 0;
  if (head === "#") return reference(rest, k) || (k.length > 0 && reference(p, k.slice(1)));
  return k.length > 0 && (head === "*" || head === k[0]) && reference(rest, k.slice(1));
}

const split = (key: string): string[] => (key === "" ? [] : key.split("."));

const keys: string[] = [""];
for (let from = 0, length = 1; length <= 6; length += 1) {
  const to = keys.length;
  for (const key of keys.slice(from, to)) {
    for (const w of ["a", "b", "other"]) keys.push(key === "" ? w : `${key}.${w}`);
  }
  from = to;
}

describe("sets of routing keys", () => {
  it("a pattern matches as its words say", () => {
    void fc.assert(
      fc.property(pattern, fc.constantFrom(...keys), (p, key) => {
        expect(topicMatches(p, key)).toBe(reference(split(p), split(key)));
      }),
      { seed: 1, numRuns: 3000 },
    );
  });

  it("a key is found exactly when there is one that no other pattern takes", () => {
    void fc.assert(
      fc.property(pattern, fc.array(pattern, { maxLength: 3 }), (p, others) => {
        const found = findKey(
          [p],
          others.map((o) => ({ all: [o], none: [] })),
        );
        const free = (key: string): boolean =>
          reference(split(p), split(key)) && !others.some((o) => reference(split(o), split(key)));
        if (typeof found === "string") expect(free(found)).toBe(true);
        else expect(keys.filter(free)).toEqual([]);
      }),
      { seed: 2, numRuns: 600 },
    );
  });

  it("a pattern covers another exactly when it takes every key of it", () => {
    void fc.assert(
      fc.property(pattern, pattern, (outer, inner) => {
        const every = keys.every(
          (k) => !reference(split(inner), split(k)) || reference(split(outer), split(k)),
        );
        expect(patternCovers(outer, inner)).toBe(every);
      }),
      { seed: 3, numRuns: 600 },
    );
  });

  it("the trie finds the bindings of a key, and all that overlap a pattern; what it says covers, covers", () => {
    void fc.assert(
      fc.property(
        fc.array(pattern, { maxLength: 6 }),
        pattern,
        fc.constantFrom(...keys.slice(0, 200)),
        (bound, p, key) => {
          const trie = new Trie();
          for (const [i, binding] of bound.entries()) trie.add(split(binding), i, false);
          const wanted = (test: (binding: string) => boolean): number[] =>
            bound.flatMap((binding, i) => (test(binding) ? [i] : []));
          const sorted = (list: number[]): number[] => list.sort((a, b) => a - b);
          expect(sorted(trie.find(split(key), "key", 99))).toEqual(wanted((o) => topicMatches(o, key)));
          const overlapping = wanted((o) => findKey([p, o], []) !== null);
          expect(sorted(trie.find(split(p), "overlap", 99))).toEqual(overlapping);
          for (const i of trie.find(split(p), "cover", 99)) expect(patternCovers(bound[i]!, p)).toBe(true);
        },
      ),
      { seed: 4, numRuns: 800 },
    );
  });
});
