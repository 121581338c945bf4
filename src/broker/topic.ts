/**
 * Topic bindings as a tree of words: `*` stands for exactly one word, `#` for any number of words, none included.
 * An empty key has no word at all, while `a.` has two, the second empty. Cost follows the words of the key and the
 * wildcards met on the way, not the number of bindings.
 */
export class TopicTree<T> {
  readonly #root: Node<T> = newNode();

  add(pattern: string, value: T): void {
    let node = this.#root;
    for (const word of wordsOf(pattern)) {
      let next = node.children.get(word);
      if (next === undefined) {
        next = newNode();
        node.children.set(word, next);
      }
      node = next;
    }
    node.values.add(value);
  }

  remove(pattern: string, value: T): void {
    const path: [Node<T>, string][] = [];
    let node = this.#root;
    for (const word of wordsOf(pattern)) {
      const next = node.children.get(word);
      if (next === undefined) return;
      path.push([node, word]);
      node = next;
    }
    node.values.delete(value);
    for (let i = path.length - 1; i >= 0; i--) {
      const [parent, word] = path[i] as [Node<T>, string];
      const child = parent.children.get(word) as Node<T>;
      if (child.values.size > 0 || child.children.size > 0) return;
      parent.children.delete(word);
    }
  }

  /** Every value whose pattern matches; a value bound twice comes once. */
  match(key: string, found: Set<T>): void {
    const words = wordsOf(key);
    // Each (node, place in the key) is looked at once: patterns with several # would be exponential otherwise.
    walk(this.#root, words, 0, found, new Map());
  }
}

interface Node<T> {
  readonly children: Map<string, Node<T>>;
  readonly values: Set<T>;
}

function newNode<T>(): Node<T> {
  return { children: new Map(), values: new Set() };
}

/** AMQP counts an empty key as no words. */
export function wordsOf(key: string): string[] {
  return key === "" ? [] : key.split(".");
}

function walk<T>(
  node: Node<T>,
  words: readonly string[],
  at: number,
  found: Set<T>,
  seen: Map<Node<T>, Set<number>>,
): void {
  const hash = node.children.get("#");
  if (hash !== undefined) {
    let places = seen.get(hash);
    if (places === undefined) seen.set(hash, (places = new Set()));
    for (let skip = at; skip <= words.length; skip++) {
      if (places.has(skip)) break;
      places.add(skip);
      walk(hash, words, skip, found, seen);
    }
  }
  if (at === words.length) {
    for (const value of node.values) found.add(value);
    return;
  }
  const star = node.children.get("*");
  if (star !== undefined) walk(star, words, at + 1, found, seen);
  const word = words[at] as string;
  // A key that contains the signs themselves is matched literally only by the wildcards above.
  if (word === "#" || word === "*") return;
  const exact = node.children.get(word);
  if (exact !== undefined) walk(exact, words, at + 1, found, seen);
}
