import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

// The README is always true: its programs are run as they stand, and what their comments say must be printed.

const root = join(import.meta.dirname, "../../..");
const readme = readFileSync(join(root, "README.md"), "utf8");
const programs = [...readme.matchAll(/```js\n([\s\S]*?)```/g)].map((match) => match[1]!);
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-readme-"));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules/dead-letter-office"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the README's programs", () => {
  it("are there", () => {
    expect(programs.length).toBe(2);
  });

  it.each(programs.map((program, index) => [index + 1, program] as const))(
    "number %i prints what it says",
    async (index, program) => {
      // Node 20 has no `await using`; the same program with a plain variable means the same here.
      writeFileSync(join(folder, `p${index}.mjs`), program.replace("await using", "const"));
      const { stdout } = await promisify(execFile)(process.execPath, [`p${index}.mjs`], {
        cwd: folder,
        timeout: 60_000,
      });
      const promised = [...program.matchAll(/console\.log\(.*\/\/ (.+)$/gm)].map((match) => match[1]!.trim());
      expect(promised.length).toBeGreaterThan(0);
      for (const line of promised) expect(stdout).toContain(line);
    },
  );
});
