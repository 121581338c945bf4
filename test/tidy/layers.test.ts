import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative, sep } from "node:path";
import { cruise, type ICruiseResult } from "dependency-cruiser";
import { afterAll, describe, expect, it } from "vitest";

const root = join(import.meta.dirname, "../..");
const rules = createRequire(import.meta.url)("../../.dependency-cruiser.cjs");

async function look(paths: string[]): Promise<ICruiseResult> {
  const result = await cruise(paths, { ruleSet: rules, validate: true, baseDir: root, ...rules.options });
  return result.output as ICruiseResult;
}

const sources = () =>
  readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .sort();

describe("the layers", () => {
  const planted: string[] = [];
  afterAll(() => {
    for (const folder of planted) rmSync(folder, { recursive: true, force: true });
  });

  it("are kept, by every file of src/", async () => {
    const result = await look(["src"]);
    expect(result.summary.violations.map((v) => `${v.rule.name}: ${v.from} -> ${v.to}`)).toEqual([]);
    const seen = result.modules
      .map((m) => m.source)
      .filter((s) => s.startsWith("src/"))
      .sort();
    expect(seen).toEqual(sources());
    expect(seen.length).toBeGreaterThan(10);
  });

  it.each([
    ["core", 'import "node:fs";', "core-no-builtins"],
    ["core", 'import type { Queue } from "../../ports/index.ts"; export type T = Queue;', "core-rooms"],
    ["broker", 'import "amqplib";', "broker-packages"],
    ["consumer", 'import "../../engines/embedded/index.ts";', "consumer-rooms"],
    ["amqp", 'import "node:net";', "sockets-in-server-only"],
    ["office", 'import "../../core/message.ts";', "enter-by-index"],
  ])("catch a planted violation in %s: %s", async (room, code, rule) => {
    const folder = mkdtempSync(join(root, "src", room, "planted-"));
    planted.push(folder);
    const file = join(folder, "planted.ts");
    writeFileSync(file, `${code}\n`);
    const result = await look([relative(root, file)]);
    rmSync(folder, { recursive: true, force: true });
    expect(result.summary.violations.map((v) => v.rule.name)).toContain(rule);
  });
});
