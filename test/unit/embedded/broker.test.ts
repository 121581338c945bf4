import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openBroker } from "../../../src/engines/embedded/index.ts";
import { DLQConsumer, PermanentError } from "../../../src/index.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-embedded-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});
const data = (): string => join(folder, "data.db");

describe("a broker on a file", () => {
  it("keeps what was sent over a restart, in order, and not what was acked", async () => {
    const first = openBroker({ file: data() });
    const queue = first.queue("orders");
    for (const id of ["a", "b", "c"]) await queue.send({ of: id }, id);
    const a = queue.receive();
    await queue.ack("a", a?.receipt);
    await first.close();
    await using second = openBroker({ file: data() });
    const again = second.queue("orders");
    expect(again.receiveMany(9).map(({ id, body, receiveCount }) => ({ id, body, receiveCount }))).toEqual([
      { id: "b", body: { of: "b" }, receiveCount: 1 },
      { id: "c", body: { of: "c" }, receiveCount: 1 },
    ]);
  });

  it("dead-letters through the consumer and replays", async () => {
    await using broker = openBroker({ file: data() });
    const queue = broker.queue("orders");
    const dead = broker.deadLetters("orders.dlq");
    let fail = true;
    const consumer = new DLQConsumer(
      queue,
      dead,
      () => {
        if (fail) throw new PermanentError("no");
      },
      { now: () => 5 },
    );
    await queue.send({ n: 1 }, "x");
    expect(await consumer.processOne()).toBe("dead");
    expect(dead.list()).toMatchObject([
      { id: "x", body: { n: 1 }, reason: "permanent", sourceQueue: "orders" },
    ]);
    expect(broker.letters.count()).toBe(1);
    expect(broker.letters.groups()).toMatchObject([{ count: 1, queues: ["orders"] }]);
    fail = false;
    expect(await consumer.replay()).toEqual(["x"]);
    expect(dead.list()).toEqual([]);
    expect(await consumer.processOne()).toBe("ok");
    expect(await consumer.processOne()).toBe(null);
    expect(queue.pending()).toBe(0);
  });
});
