import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { cutPower, forgetful, powerLossShim } from "../../support/power-loss.ts";

// The shim is a checker: it must lose what was not synced and keep what was, or the tests built on it prove nothing.

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const DRIVER = `
const { DatabaseSync } = await import("node:sqlite").catch(() => import("@photostructure/sqlite"));
`;

/** Inserts rows one transaction each, saying each number after its commit, until it is killed. */
const WRITER = `${DRIVER}
const db = new DatabaseSync(process.argv[1] + "/t.db");
db.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=" + process.argv[2] + "; CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY)");
const insert = db.prepare("INSERT INTO t VALUES (?)");
for (let n = 1; ; n++) { insert.run(n); process.stdout.write(n + "\\n"); await new Promise(setImmediate); }
`;

const READER = `${DRIVER}
const db = new DatabaseSync(process.argv[1] + "/t.db");
let n = 0; try { n = db.prepare("SELECT count(*) AS n FROM t").get().n } catch (error) { if (!/no such table/.test(error.message)) throw error }
console.log(JSON.stringify({ n, check: db.prepare("PRAGMA integrity_check").get().integrity_check }));
`;

async function run(synchronous: string, mode: "synced" | "torn", shim: string) {
  const base = mkdtempSync(join(tmpdir(), "dlo-power-"));
  folders.push(base);
  const [dir, shadow] = [join(base, "data"), join(base, "shadow")];
  mkdirSync(dir);
  const cwd = join(import.meta.dirname, "../../..");
  const writer = spawn(process.execPath, ["--input-type=module", "-e", WRITER, dir, synchronous], {
    cwd,
    env: forgetful(shim, dir, shadow),
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  writer.stdout.on("data", (chunk) => {
    said += chunk;
    if (said.split("\n").length > 200) writer.kill("SIGKILL");
  });
  await once(writer, "close");
  const confirmed = said.trim().split("\n").length;
  cutPower(dir, shadow, mode);
  const reader = spawn(process.execPath, ["--input-type=module", "-e", READER, dir], {
    cwd,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let out = "";
  reader.stdout.on("data", (chunk) => (out += chunk));
  await once(reader, "close");
  return { confirmed, ...(JSON.parse(out) as { n: number; check: string }) };
}

it.for(["synced", "torn"] as const)(
  "keeps every row that a FULL commit confirmed (%s)",
  async (mode, context) => {
    const shim = powerLossShim();
    if (!shim) return context.skip("needs Linux and a C compiler");
    const { confirmed, n, check } = await run("FULL", mode, shim);
    expect(check).toBe("ok");
    expect(confirmed).toBeGreaterThanOrEqual(200);
    expect(n).toBeGreaterThanOrEqual(confirmed);
  },
);

it("loses confirmed rows when commits are not synced: the checker can fail", async (context) => {
  const shim = powerLossShim();
  if (!shim) return context.skip("needs Linux and a C compiler");
  const { confirmed, n, check } = await run("NORMAL", "synced", shim);
  expect(check).toBe("ok");
  expect(n).toBeLessThan(confirmed);
});
