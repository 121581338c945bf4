// BullMQ on a Redis that syncs every write.
const BATCH = 1_000;

export const bullmq = {
  name: "bullmq",
  server: "redis",
  durability: "Redis, appendfsync always; a failed job stays in the failed set",
  async open(server) {
    const { Queue, Worker } = await import("bullmq");
    const { default: Redis } = await import("ioredis");
    const clients = [];
    const connection = () => {
      const client = new Redis({ path: server.socket, maxRetriesPerRequest: null });
      clients.push(client);
      return client;
    };
    const queues = {};
    const named = (row) => row.replaceAll(" ", "-");
    return {
      async load(row, bodies) {
        queues[row] ??= new Queue(named(row), { connection: connection() });
        const jobs = bodies.map((data) => ({
          name: "job",
          data,
          opts: { removeOnComplete: true, removeOnFail: false, attempts: 1 },
        }));
        for (let at = 0; at < jobs.length; at += BATCH) await queues[row].addBulk(jobs.slice(at, at + BATCH));
      },
      async drain(row, watch) {
        const worker = new Worker(
          named(row),
          async () => {
            watch.started();
            if (row === "fail") throw new Error("price is negative");
          },
          { connection: connection(), concurrency: row === "one at a time" ? 1 : 100 },
        );
        worker.on("completed", () => watch.ended());
        worker.on("failed", () => watch.ended());
        await watch.rate();
        await worker.close();
      },
      async close() {
        for (const queue of Object.values(queues)) await queue.close();
        for (const client of clients) client.disconnect();
      },
    };
  },
};
