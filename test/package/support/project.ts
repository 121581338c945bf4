import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);

export const root: string = fileURLToPath(new URL("../../..", import.meta.url));

/** The manifest of the package under test. */
export const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  name: string;
  version: string;
  exports: Record<string, unknown>;
};

/** What code may import: `dead-letter-office`, `dead-letter-office/testing` ... */
export const subpaths: readonly string[] = Object.keys(manifest.exports)
  .filter((key) => key !== "./package.json")
  .map((key) => manifest.name + key.slice(1));

/** Answers what a command printed; on failure throws with all of it. */
export async function command(file: string, args: readonly string[], cwd: string): Promise<string> {
  try {
    // npm test sets npm_config_* for its children; a nested npm must behave as if called by hand.
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([key]) => !/^npm_(?!config_registry)/.test(key)),
    );
    const { stdout } = await run(file, [...args], { cwd, env, maxBuffer: 64 << 20 });
    return stdout;
  } catch (error) {
    const { stdout, stderr } = error as { stdout?: string; stderr?: string };
    throw new Error(
      `${file} ${args.join(" ")} failed in ${cwd}\n${stdout ?? ""}\n${stderr ?? String(error)}`,
    );
  }
}

/** True when a failed npm call failed for want of a network. */
export const offline = (error: unknown): boolean =>
  /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH/.test(String(error));

export interface Project {
  readonly directory: string;
  /** The packed tarball that is installed in it. */
  readonly tarball: string;
  /** Runs a module of this text in the project and answers what it printed. */
  node(source: string, options?: { binary?: string; extension?: "mjs" | "cjs" }): Promise<string>;
  remove(): void;
}

/** An empty project with the packed tarball installed: what a user has after `npm install`. */
export async function installedProject(): Promise<Project> {
  if (!existsSync(join(root, "dist/index.js")))
    throw new Error("dist/ is not built; run: node tools/build.mjs");
  const directory = mkdtempSync(join(tmpdir(), "dlo-package-"));
  try {
    await command("npm", ["pack", "--ignore-scripts", "--pack-destination", directory], root);
    const name = readdirSync(directory).find((file) => file.endsWith(".tgz"));
    if (name === undefined) throw new Error("npm pack left no tarball");
    const tarball = join(directory, name);
    writeFileSync(join(directory, "package.json"), JSON.stringify({ name: "empty", private: true }));
    await command("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", tarball], directory);
    let count = 0;
    return {
      directory,
      tarball,
      async node(source, { binary = process.execPath, extension = "mjs" } = {}) {
        const file = join(directory, `probe-${++count}.${extension}`);
        writeFileSync(file, source);
        return command(binary, [file], directory);
      },
      remove: () => rmSync(directory, { recursive: true, force: true }),
    };
  } catch (error) {
    rmSync(directory, { recursive: true, force: true });
    throw error;
  }
}

/**
 * The binary of a Node major release from the registry's platform packages, kept in the temporary directory between
 * runs. The packages are plain files: nothing of them is run at install.
 */
export async function nodeBinary(major: number): Promise<string> {
  const platform = process.platform === "win32" ? "win" : process.platform;
  const cached = join(tmpdir(), `dlo-node-${major}-${platform}-${process.arch}`);
  const binary = join(cached, `node_modules/node-${platform}-${process.arch}/bin/node`);
  if (existsSync(binary)) return binary;
  const fresh = mkdtempSync(join(dirname(cached), "dlo-node-"));
  writeFileSync(join(fresh, "package.json"), JSON.stringify({ name: "nodes", private: true }));
  const spec = `node-${platform}-${process.arch}@${major}`;
  await command("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", spec], fresh);
  mkdirSync(dirname(cached), { recursive: true });
  try {
    renameSync(fresh, cached);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    // Another run was quicker.
    if (!existsSync(binary)) throw error;
  }
  return binary;
}
