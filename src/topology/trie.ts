/**
 * The bindings of one exchange by the words of their keys, so that a key, or a pattern, finds the bindings it meets
 * without looking at the others.
 */

interface Node {
  /** Literal words are stored as they are; wildcards apart from them, so that a literal "*" stays a word. */
  readonly words: Map<string, Node>;
  star: Node | undefined;
  hash: Node | undefined;
  readonly isHash: boolean;
  readonly id: number;
  /** Indices of the bindings that end here. */
  readonly ends: number[];
}

/** `key`: the words are plain. `overlap`: bindings sharing a key with the pattern. `cover`: bindings matching all its keys. */
export type Search = "key" | "overlap" | "cover";

export class Trie {
  #nodes = 0;
  readonly #root: Node = this.#node(false);

  #node(isHash: boolean): Node {
    this.#nodes += 1;
    return { words: new Map(), star: undefined, hash: undefined, isHash, id: this.#nodes, ends: [] };
  }

  /** Adds a binding; with `literal` its wildcards are plain characters (direct exchanges). */
  add(words: readonly string[], binding: number, literal: boolean): void {
    let node = this.#root;
    for (const word of words) {
      if (!literal && word === "*") node = node.star ??= this.#node(false);
      else if (!literal && word === "#") node = node.hash ??= this.#node(true);
      else {
        let next = node.words.get(word);
        if (!next) node.words.set(word, (next = this.#node(false)));
        node = next;
      }
    }
    node.ends.push(binding);
  }

  /** The bindings found, each once; stops after `limit`. Sound for `cover`, exact for `key` and `overlap`. */
  find(words: readonly string[], search: Search, limit: number): number[] {
    const found = new Set<number>();
    const seen = new Set<number>();
    const width = words.length + 1;
    const stack: [Node, number][] = [[this.#root, 0]];
    const visit = (node: Node | undefined, at: number): void => {
      if (!node || at > words.length) return;
      const id = node.id * width + at;
      if (seen.has(id)) return;
      seen.add(id);
      stack.push([node, at]);
    };
    for (let top = stack.pop(); top !== undefined && found.size < limit; top = stack.pop()) {
      const [node, at] = top;
      if (at === words.length) for (const binding of node.ends) found.add(binding);
      visit(node.hash, at); // # matching nothing
      if (node.isHash && at < words.length) visit(node, at + 1); // # taking one more
      if (at < words.length) follow(node, words[at]!, at, search, visit);
    }
    return [...found];
  }
}

function follow(
  node: Node,
  word: string,
  at: number,
  search: Search,
  visit: (node: Node | undefined, at: number) => void,
): void {
  if (search === "key" || (word !== "*" && word !== "#")) {
    visit(node.words.get(word), at + 1);
    visit(node.star, at + 1);
    return;
  }
  if (word === "*") {
    visit(node.star, at + 1);
    if (search === "overlap") for (const child of node.words.values()) visit(child, at + 1);
    return;
  }
  // A # of the pattern: in a cover only a # can take it (done above); in an overlap it takes none, or one and more.
  if (search === "cover") return;
  visit(node, at + 1);
  visit(node.star, at);
  for (const child of node.words.values()) visit(child, at);
}
