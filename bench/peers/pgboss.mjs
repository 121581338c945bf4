// pg-boss on PostgreSQL, fetched and settled in batches, as it is fastest.
export const pgboss = {
  name: "pg-boss",
  server: "postgres",
  durability: "PostgreSQL, fsync on; a failed job is copied to its dead letter queue",
  async open(server) {
    const { PgBoss } = await import("pg-boss");
    const boss = new PgBoss({ ...server.connection, supervise: false, schedule: false });
    boss.on("error", (error) => console.error(`pg-boss: ${error.message}`));
    await boss.start();
    const named = (row) => row.replaceAll(" ", "-");
    await boss.createQueue("dead");
    for (const row of ["many", "one at a time", "fail"]) {
      await boss.createQueue(
        named(row),
        row === "fail" ? { retryLimit: 0, deadLetter: "dead" } : { retryLimit: 0 },
      );
    }
    return {
      async load(row, bodies) {
        for (let at = 0; at < bodies.length; at += 1_000) {
          await boss.insert(
            named(row),
            bodies.slice(at, at + 1_000).map((data) => ({ data })),
          );
        }
      },
      async drain(row, watch) {
        const batchSize = row === "one at a time" ? 1 : 500;
        for (;;) {
          watch.started();
          const jobs = await boss.fetch(named(row), { batchSize });
          if (jobs.length === 0) return;
          const ids = jobs.map(({ id }) => id);
          if (row === "fail") await boss.fail(named(row), ids, { message: "price is negative" });
          else await boss.complete(named(row), ids);
          watch.ended(ids.length);
        }
      },
      close: () => boss.stop({ graceful: false }),
    };
  },
};
