// This product: the embedded engine through Consumer, every start counted durably, every dead letter a row of the office.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openBroker } from "../../dist/engines/embedded/index.js";
import { Consumer, PermanentError } from "../../dist/index.js";

const BATCH = 1_000;

export const embedded = {
  name: "embedded",
  durability:
    "sends and dead letters are synced to disk; receipts and acks survive kill -9, synced within 50 ms",
  async open() {
    const folder = mkdtempSync(join(tmpdir(), "dlo-peers-"));
    const broker = openBroker({ file: join(folder, "data.db") });
    const queue = broker.queue("orders");
    const deadLetters = broker.deadLetters("orders.dead");
    return {
      async load(_row, bodies) {
        for (let at = 0; at < bodies.length; at += BATCH) {
          await queue.sendMany(bodies.slice(at, at + BATCH).map((body) => ({ body })));
        }
      },
      async drain(row, watch) {
        const consumer = new Consumer({
          queue,
          deadLetters,
          concurrency: row === "one at a time" ? 1 : 100,
          logger: null,
          handler: async () => {
            watch.started();
            if (row === "fail") throw new PermanentError("price is negative");
          },
        });
        consumer.on("handled", () => watch.ended());
        consumer.on("dead", () => watch.ended());
        await consumer.run({ until: "idle" });
      },
      async close() {
        await broker.close();
        rmSync(folder, { recursive: true, force: true });
      },
    };
  },
};
