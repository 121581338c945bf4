// graphile-worker on PostgreSQL with its local queue and batching, as its own page on performance advises.
import { EventEmitter } from "node:events";

export const graphile = {
  name: "graphile",
  server: "postgres",
  durability: "PostgreSQL, fsync on; a failed job is a row without attempts left",
  async open(server) {
    const worker = await import("graphile-worker");
    const { makeWorkerUtils, run, Logger } = worker.default ?? worker;
    const { default: pg } = await import("pg");
    const pgPool = new pg.Pool({ ...server.connection, max: 20 });
    pgPool.on("error", (error) => console.error(`graphile: ${error.message}`));
    pgPool.on("connect", (client) =>
      client.on("error", (error) => console.error(`graphile: ${error.message}`)),
    );
    const logger = new Logger(() => () => {});
    const utils = await makeWorkerUtils({ pgPool, logger });
    await utils.migrate();
    const named = (row) => row.replaceAll(" ", "-");
    return {
      async load(row, bodies) {
        const jobs = bodies.map((payload) => ({ identifier: named(row), payload, maxAttempts: 1 }));
        for (let at = 0; at < jobs.length; at += 1_000) await utils.addJobs(jobs.slice(at, at + 1_000));
      },
      async drain(row, watch) {
        const events = new EventEmitter();
        events.on("job:complete", () => watch.ended());
        const single = row === "one at a time";
        const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
        const runner = await run({
          pgPool,
          logger,
          events,
          noHandleSignals: true,
          concurrency: single ? 1 : 100,
          preset: { worker: { concurrentJobs: single ? 1 : 100, ...(single ? {} : batching) } },
          taskList: {
            [named(row)]: async () => {
              watch.started();
              if (row === "fail") throw new Error("price is negative");
            },
          },
        });
        await watch.rate();
        await runner.stop();
      },
      async close() {
        await utils.release();
        await pgPool.end();
      },
    };
  },
};
