import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, it } from "vitest";
import { DLO_ERROR_CODES, DloError } from "../../src/index.ts";

const root = join(import.meta.dirname, "../..");

function files(folder: string, ending: RegExp): string[] {
  const path = join(root, folder);
  if (!existsSync(path)) return [];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter(
      (entry) => entry.isFile() && ending.test(entry.name) && !entry.parentPath.includes("node_modules"),
    )
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}
const text = (file: string) => readFileSync(join(root, file), "utf8");

/** Rules of the house as small programs: each takes a file's text and answers what is wrong with it. */
const rules: Record<string, (content: string, file: string) => string[]> = {
  "a source file has at most 400 lines": (content) =>
    content.split("\n").length > 401 ? [`${content.split("\n").length - 1} lines`] : [],
  "nothing unfinished is left in the sources": (content) =>
    content.match(/\b(TODO|FIXME|XXX|not implemented|placeholder)\b/gi) ?? [],
  "no import reaches outside the project": (content) => content.match(/(\.\.\/)+shared\/[^"']*/g) ?? [],
};

describe("the house rules", () => {
  const sources = files("src", /\.ts$/).filter((file) => !text(file).startsWith("// Generated"));

  it.each(Object.keys(rules))("%s", (name) => {
    const broken = sources.flatMap((file) =>
      rules[name]!(text(file), file).map((what) => `${file}: ${what}`),
    );
    expect(broken).toEqual([]);
    expect(sources.length).toBeGreaterThan(10);
  });

  it("each find a planted violation", () => {
    expect(rules["a source file has at most 400 lines"]!("x\n".repeat(402), "f")).toHaveLength(1);
    expect(rules["nothing unfinished is left in the sources"]!("// TODO later", "f")).toHaveLength(1);
    expect(
      rules["no import reaches outside the project"]!(['import "..', "..", "shared", 'x.ts"'].join("/"), "f"),
    ).toHaveLength(1);
  });

  it("no test is switched off in its source", () => {
    const off = files("test", /\.test\.ts$/).flatMap((file) =>
      (text(file).match(/\b(it|test|describe)\.(skip|only|todo)\(/g) ?? []).map((what) => `${file}: ${what}`),
    );
    expect(off).toEqual([]);
  });
});

describe("the error codes", () => {
  it("are the documented ones, with the documented fault", () => {
    const rows = [...text("docs/reference/errors.md").matchAll(/^\| `([A-Z_]+)` \| (\w+) \|/gm)].map((m) => [
      m[1],
      m[2],
    ]);
    expect(rows).toEqual(DLO_ERROR_CODES.map((code) => [code, new DloError(code, "x").fault]));
  });

  it("that the sources throw are in the list", () => {
    const thrown = files("src", /\.ts$/).flatMap((file) =>
      [...text(file).matchAll(/new DloError\(\s*"([A-Z_]+)"/g)].map((m) => m[1]),
    );
    expect(thrown.filter((code) => !(DLO_ERROR_CODES as readonly string[]).includes(code!))).toEqual([]);
  });
});

describe("the documents", () => {
  it("link only to files that exist", () => {
    const pages = [
      "README.md",
      "CONTRIBUTING.md",
      "CHANGELOG.md",
      ...files("docs", /\.md$/),
      ...files("examples", /\.md$/),
    ];
    const dead = pages.flatMap((page) =>
      [...text(page).matchAll(/\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)/g)]
        .map((match) => match[1]!)
        .filter((target) => !existsSync(join(root, dirname(page), target)))
        .map((target) => `${page} -> ${target}`),
    );
    expect(dead).toEqual([]);
  });

  it("name the two commands", () => {
    expect(text("README.md")).toContain("npm start");
    expect(text("README.md")).toContain("npm test");
  });

  it("hold no path of a machine", () => {
    const pages = [
      "README.md",
      ...files("docs", /\.md$/),
      ...files("examples", /\.(md|mjs|ts|js)$/),
      ...files("src", /\.ts$/),
    ];
    expect(pages.filter((page) => /\/(work|root|home\/\w+)\//.test(text(page)))).toEqual([]);
  });
});
