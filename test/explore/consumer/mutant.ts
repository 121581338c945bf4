/**
 * A rule switched off: a source file of the product with one place changed, run in place of the real one. What is
 * not changed stays the production code, and a place that no longer exists fails the test that names it.
 */
import { readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import ts from "typescript";
import * as core from "../../../src/core/index.ts";
import * as letters from "../../../src/engines/memory/letters.ts";
import * as queue from "../../../src/engines/memory/queue.ts";
import * as same from "../../../src/engines/memory/same.ts";
import * as state from "../../../src/engines/memory/state.ts";

const src = join(import.meta.dirname, "../../../src");

/** What the changed file may import: the real modules. */
const REAL: Record<string, object> = {
  "engines/memory/letters.ts": letters,
  "engines/memory/queue.ts": queue,
  "engines/memory/same.ts": same,
  "engines/memory/state.ts": state,
};

/** One place and what stands there instead. */
export type Change = readonly [from: string, to: string];

/** `file` (below src/) with the changes made, each in a place that is there exactly once; answers its exports. */
export function mutant<T>(
  file: string,
  changes: readonly Change[],
  others: Readonly<Record<string, object>> = {},
): T {
  let text = readFileSync(join(src, file), "utf8");
  for (const [from, to] of changes) {
    const places = text.split(from).length - 1;
    if (places !== 1) throw new Error(`${file} has ${places} places like ${from}; expected one`);
    text = text.replace(from, () => to);
  }
  const code = ts.transpileModule(text, {
    compilerOptions: { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022 },
  }).outputText;
  const exports = {};
  const load = (name: string): object => {
    const path = posix.join(dirname(file), name);
    if (path.startsWith("core/")) return core;
    const found = others[path] ?? REAL[path];
    if (found === undefined) throw new Error(`${file} imports ${path}, which the mutant does not know`);
    return found;
  };
  new Function("exports", "require", code)(exports, load);
  return exports as T;
}
