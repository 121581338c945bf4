// Runs every bench of this folder, one after another, and keeps their figures. Each bench prints JSON lines
// ({ bench, row, ratio ... }) besides its table; they go to reports/bench.jsonl with the machine they were measured on.
// Figures are ratios measured in one run: absolute speeds of a machine drift.
// usage: node bench/run.mjs [name ...]     e.g. node bench/run.mjs embedded amqp
import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const reports = fileURLToPath(new URL("../reports/", import.meta.url));
const all = readdirSync(here)
  .filter((name) => name.endsWith(".mjs") && name !== "run.mjs" && !name.startsWith("lib-"))
  .map((name) => name.slice(0, -4))
  .sort();
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !all.includes(name));
if (unknown.length > 0) {
  console.error(`bench: no bench named ${unknown.join(", ")}; there are: ${all.join(", ")}`);
  process.exit(2);
}

mkdirSync(reports, { recursive: true });
const out = `${reports}bench.jsonl`;
const machine = {
  cpu: cpus()[0]?.model,
  cores: cpus().length,
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  node: process.version,
  at: new Date().toISOString(),
};
writeFileSync(out, `${JSON.stringify({ machine })}\n`);
console.log(JSON.stringify({ machine }));

let failed = 0;
for (const name of wanted.length > 0 ? wanted : all) {
  console.log(`\n== ${name}`);
  const child = spawn(process.execPath, [`${here}${name}.mjs`], { stdio: ["ignore", "pipe", "inherit"] });
  let rest = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => {
    process.stdout.write(chunk);
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.startsWith("{")) appendFileSync(out, `${line}\n`);
  });
  const code = await new Promise((resolve) => child.on("close", resolve));
  if (code !== 0) failed += 1;
}
process.exit(failed > 0 ? 1 : 0);
