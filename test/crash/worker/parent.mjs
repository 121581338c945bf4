// A parent process of its own: runs a pool over the built package, tells its children's pids, then waits to be killed.
// argv: handler file, body, mode ("wait" | "term")
import { WorkerPool } from "../../../dist/worker/index.js";

const [file, body, mode] = process.argv.slice(2);
const told = { info() {}, warn() {}, error() {} };
const pool = new WorkerPool({ file, concurrency: 2, spare: 1, graceMs: 200, logger: told });
const result = body === "none" ? null : pool.run({ id: "m1", body, receiveCount: 1, firstReceivedAt: 0 });
if (mode === "loading") {
  pool.start().catch(() => {});
  await new Promise((done) => setTimeout(done, 500));
} else {
  await pool.start();
  while (pool.status().idle + pool.status().busy < 3) await new Promise((done) => setTimeout(done, 10));
}
process.on("SIGTERM", () => {
  void pool.close({ drainMs: 100 }).then(async () => {
    console.log(JSON.stringify(await result));
  });
});
console.log("up");
