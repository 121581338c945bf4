// node test/crash/embedded/kill-torture.mjs [--kills=1000] [--seed=1]: SIGKILL at random times, on one data file.
// Exit 1 when anything was lost, doubled, blamed wrongly or started too often. Build first.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { live, verdict } from "./torture.mjs";

const option = (name, fallback) =>
  Number(process.argv.find((arg) => arg.startsWith(`--${name}=`))?.split("=")[1] ?? fallback);
const kills = option("kills", 1000);
let seed = option("seed", 1);
const random = () => {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return seed / 2147483648;
};

const folder = mkdtempSync(join(tmpdir(), "dlo-torture-"));
const [file, log] = [join(folder, "data.db"), join(folder, "log")];
let killed = 0;
for (let run = 1; killed < kills; run++) {
  const job = {
    run,
    send: 24,
    window: 1 + Math.floor(random() * 8),
    pills: run % 5 === 0 ? 9 : 0,
    slowMs: 1,
  };
  if ((await live(file, log, job, Math.floor(random() * 80))) === "SIGKILL") killed++;
  if (killed % 50 === 0) process.stderr.write(`\r${killed} kills`);
}
for (let run = 1_000_001; (await live(file, log, { run, send: 0, window: 4 })) !== null; run++);
const result = await verdict(file, log);
process.stderr.write("\n");
console.log(JSON.stringify({ kills: killed, ...result }));
rmSync(folder, { recursive: true, force: true });
process.exit(result.wrong.length === 0 && result.waiting === 0 ? 0 : 1);
