// All the set-up there is: installs the packages of package-lock.json when they are missing or out of date,
// and builds dist/ when a source is newer than the last build. `npm start` and `npm test` run it first.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`Dead Letter Office needs Node.js 20.19 or newer; this is ${process.version}.`);
  process.exit(1);
}

const newest = (path) => {
  const stat = statSync(path);
  if (!stat.isDirectory()) return stat.mtimeMs;
  return Math.max(stat.mtimeMs, ...readdirSync(path).map((name) => newest(join(path, name))));
};

const stamp = join(root, "node_modules/.dlo-lock");
const lock = readFileSync(join(root, "package-lock.json"), "utf8");
if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== lock) {
  console.log("setup: installing packages (npm ci)");
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts"], { cwd: root, stdio: "inherit" });
  writeFileSync(stamp, lock);
}

// Beside the packages, not in dist/, which is published.
const built = join(root, "node_modules/.dlo-built");
const sources = Math.max(newest(join(root, "src")), newest(join(root, "tsconfig.json")));
if (!existsSync(built) || !existsSync(join(root, "dist/index.js")) || statSync(built).mtimeMs < sources) {
  console.log("setup: building dist/");
  execFileSync(process.execPath, [join(root, "tools/build.mjs")], { cwd: root, stdio: "inherit" });
  writeFileSync(built, "");
}
