// plainjob: SQLite in process. Its worker takes one job after another whatever is asked of it.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const silent = { error() {}, warn() {}, info() {}, debug() {} };

export const plainjob = {
  name: "plainjob",
  durability: "no sync to disk (synchronous=NORMAL); a failed job is a marked row",
  async open() {
    const { default: Database } = await import("better-sqlite3");
    const { better, defineQueue, defineWorker } = await import("plainjob");
    const folder = mkdtempSync(join(tmpdir(), "dlo-plainjob-"));
    const queue = defineQueue({ connection: better(new Database(join(folder, "data.db"))), logger: silent });
    return {
      async load(row, bodies) {
        queue.addMany(row, bodies);
      },
      async drain(row, watch) {
        const worker = defineWorker(
          row,
          async () => {
            watch.started();
            if (row === "fail") throw new Error("price is negative");
          },
          { queue, logger: silent, onCompleted: () => watch.ended(), onFailed: () => watch.ended() },
        );
        const stopped = worker.start();
        await watch.rate();
        await worker.stop();
        await stopped;
      },
      async close() {
        queue.close();
        rmSync(folder, { recursive: true, force: true });
      },
    };
  },
};
