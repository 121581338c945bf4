// A parent to be killed: one child in an endless loop, one idle.
import { fileURLToPath } from "node:url";
import { WorkerPool } from "../../dist/worker/index.js";

const pool = new WorkerPool({ file: fileURLToPath(new URL("handler.mjs", import.meta.url)) });
await pool.start();
void pool.run({ id: "m1", body: "loop", receiveCount: 1, firstReceivedAt: 0 });
while (pool.status().idle + pool.status().busy < 2) await new Promise((done) => setTimeout(done, 10));
console.log("up");
