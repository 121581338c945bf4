import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";

/**
 * Emulated power loss: a process runs with a preloaded library that records what was fsynced (see
 * power-loss/shim.c); `cutPower` then puts the folder into the state a disk would be in after the cut.
 */

let built: string | undefined;

/** Compiles the shim once a run; undefined where there is no Linux or no compiler (say so and skip). */
export function powerLossShim(): string | undefined {
  if (built) return built;
  if (process.platform !== "linux" || spawnSync("cc", ["--version"]).status !== 0) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "dlo-shim-"));
  const out = join(folder, "shim.so");
  const source = join(import.meta.dirname, "power-loss/shim.c");
  execFileSync("cc", ["-O1", "-shared", "-fPIC", "-o", out, source, "-ldl", "-lpthread"]);
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  built = out;
  return out;
}

/** The environment a child needs for its files under `dir` to be watched; `shadow` is made. */
export function forgetful(shim: string, dir: string, shadow: string): NodeJS.ProcessEnv {
  mkdirSync(shadow, { recursive: true });
  return { ...process.env, LD_PRELOAD: shim, DLO_POWER_DIR: dir, DLO_POWER_SHADOW: shadow };
}

const SECTOR = 512;

/**
 * After the child was killed: every file under `dir` becomes what the disk holds. `synced`: exactly what was
 * fsynced. `torn`: of what was written but not synced, each 512-byte sector is there or not by chance (`random`),
 * which is what real disks do.
 */
export function cutPower(
  dir: string,
  shadow: string,
  mode: "synced" | "torn" = "synced",
  random = Math.random,
): void {
  const files = existsSync(dir)
    ? readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
    : [];
  for (const entry of files) {
    const path = join(entry.parentPath, entry.name);
    const kept = join(shadow, relative(dir, path).replaceAll("/", "%"));
    if (path.endsWith("-shm") || !existsSync(kept)) {
      rmSync(path, { force: true });
      continue;
    }
    const durable = readFileSync(kept);
    writeFileSync(path, mode === "synced" ? durable : tear(durable, readFileSync(path), random));
  }
  for (const name of readdirSync(shadow)) {
    const path = join(dir, name.replaceAll("%", "/"));
    if (existsSync(path)) continue;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, readFileSync(join(shadow, name)));
  }
}

function tear(durable: Buffer, written: Buffer, random: () => number): Buffer {
  const out = Buffer.from(
    random() < 0.5 ? durable : Buffer.concat([durable, written.subarray(durable.length)]),
  );
  for (let at = 0; at < Math.min(out.length, written.length); at += SECTOR) {
    if (random() < 0.5) written.copy(out, at, at, Math.min(at + SECTOR, written.length, out.length));
  }
  return out;
}
