// Compiles src/ to dist/ with plain tsc and makes the command executable.
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const tsc = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));
rmSync(`${root}/dist`, { recursive: true, force: true });
try {
  execFileSync(process.execPath, [tsc, "-p", "tsconfig.json"], { cwd: root, stdio: "inherit" });
} catch {
  console.error("build: the TypeScript compiler reported errors (above)");
  process.exit(1);
}
if (existsSync(`${root}/dist/cli/main.js`)) chmodSync(`${root}/dist/cli/main.js`, 0o755);
