import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  command,
  installedProject,
  manifest,
  nodeBinary,
  offline,
  type Project,
  root,
  subpaths,
} from "./support/project.ts";

let project: Project | null = null;
let noNetwork: unknown;

beforeAll(async () => {
  try {
    project = await installedProject();
  } catch (error) {
    if (!offline(error)) throw error;
    noNetwork = error;
  }
}, 240_000);

afterAll(() => project?.remove());

/** The installed project, or a skip that says why there is none. */
function installed(ctx: { skip(reason: string): never }): Project {
  return project ?? ctx.skip(`the package registry cannot be reached: ${String(noNetwork).split("\n")[0]}`);
}

const importAll = `
  for (const path of ${JSON.stringify(subpaths)}) {
    const names = Object.keys(await import(path));
    if (names.length === 0) throw new Error(path + " exports nothing");
    console.log(path, names.length);
  }`;
const smoke = readFileSync(join(root, "test/package/support/smoke.mjs.txt"), "utf8");

describe("the packed package, installed into an empty project", () => {
  test("can import every subpath", async (ctx) => {
    const out = await installed(ctx).node(importAll);
    expect(
      out
        .trim()
        .split("\n")
        .map((line) => line.split(" ")[0]),
    ).toEqual(subpaths);
  });

  test("can be required, every subpath", async (ctx) => {
    const source = `for (const path of ${JSON.stringify(subpaths)}) console.log(path, Object.keys(require(path)).length);`;
    const out = await installed(ctx).node(source, { extension: "cjs" });
    expect(out.trim().split("\n")).toHaveLength(subpaths.length);
  });

  test("runs `dlo version`", async (ctx) => {
    const { directory } = installed(ctx);
    const out = await command(join(directory, "node_modules/.bin/dlo"), ["version"], directory);
    expect(out).toContain(manifest.version);
  });

  test("handles, dead-letters and survives a killed handler", async (ctx) => {
    expect(await installed(ctx).node(smoke)).toContain(`fine on ${process.version}`);
  });

  test("compiles in a strict TypeScript project", async (ctx) => {
    const { directory } = installed(ctx);
    const lines = subpaths.map((path, n) => `import * as part${n} from "${path}";\nvoid part${n};`);
    writeFileSync(join(directory, "use.mts"), lines.join("\n"));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const types = join(root, "node_modules/@types");
    const args = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2023", "--skipLibCheck"];
    await command(
      process.execPath,
      [tsc, ...args, "--typeRoots", types, "--types", "node", "use.mts"],
      directory,
    );
  });

  test("holds what it shall and nothing else", async (ctx) => {
    const { tarball, directory } = installed(ctx);
    const files = (await command("tar", ["tzf", tarball], directory)).trim().split("\n");
    const strangers = files.filter(
      (file) =>
        !/^package\/(package\.json|README\.md|CHANGELOG\.md|LICENSE|dist\/.+\.(js|d\.ts|html|css|svg|map))$/.test(
          file,
        ),
    );
    expect(strangers).toEqual([]);
    expect(files).toContain("package/LICENSE");
    expect(files).toContain("package/dist/worker/child.js");
    expect(files).toContain("package/dist/worker/watchdog.js");
  });
});

describe.each([22, 24])("the same package under Node %i", (major) => {
  test("imports every subpath and passes the smoke test", async (ctx) => {
    const here = installed(ctx);
    let binary: string;
    try {
      binary = await nodeBinary(major);
    } catch (error) {
      if (!offline(error)) throw error;
      return ctx.skip(`Node ${major} cannot be fetched: ${String(error).split("\n")[0]}`);
    }
    expect((await here.node(importAll, { binary })).trim().split("\n")).toHaveLength(subpaths.length);
    expect(await here.node(smoke, { binary })).toMatch(new RegExp(`fine on v${major}\\.`));
  });
});

const publint = join(root, "node_modules/publint/src/cli.js");
const attw = join(root, "node_modules/@arethetypeswrong/cli/dist/index.js");

describe("the package checkers", () => {
  test("find a subpath whose file is not in the package", async () => {
    const directory = mkdtempSync(join(tmpdir(), "dlo-broken-"));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const broken = { types: "./gone.d.ts", default: "./gone.js" };
    const fine = { name: "broken", version: "1.0.0", type: "module", files: ["index.js", "index.d.ts"] };
    writeFileSync(join(directory, "package.json"), JSON.stringify({ ...fine, exports: { ".": broken } }));
    writeFileSync(join(directory, "index.js"), "export const here = true;");
    writeFileSync(join(directory, "index.d.ts"), "export declare const here: true;");
    await command("npm", ["pack", "--ignore-scripts"], directory);
    const tarball = join(directory, "broken-1.0.0.tgz");
    await expect(command(process.execPath, [publint, tarball, "--strict"], root)).rejects.toThrow(/gone\.js/);
    await expect(
      command(process.execPath, [attw, tarball, "--profile", "esm-only", "--no-color"], root),
    ).rejects.toThrow(/Resolution failed/);
  });

  test("publint finds nothing", async (ctx) => {
    const { tarball } = installed(ctx);
    await command(process.execPath, [publint, tarball, "--strict"], root);
  });

  test("attw finds nothing for an ESM-only package", async (ctx) => {
    const { tarball } = installed(ctx);
    const args = [attw, tarball, "--profile", "esm-only", "--no-color", "--format", "ascii"];
    const out = await command(process.execPath, args, root);
    // It is also content with a package that has no types at all: each subpath must be spoken of.
    for (const path of subpaths) expect(out).toContain(`"${path}"`);
  });
});
