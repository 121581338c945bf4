import { describe, expect, it } from "vitest";
import { type DeadLetter, DLQConsumer, openBroker, PermanentError } from "../../../src/index.ts";

function letter(id: string, more: Partial<DeadLetter> = {}): DeadLetter {
  return {
    id,
    body: { of: id },
    reason: "exhausted",
    error: `TimeoutError: order ${id.length}7 timed out`,
    attempts: 3,
    firstAttemptAt: 1000,
    failedAt: 2000,
    generation: 1,
    sourceQueue: "orders",
    ...more,
  };
}

describe("letters in the file", () => {
  it("are grouped by cause, counted, paged in order of death, and found by either id", async () => {
    await using broker = openBroker(":memory:");
    const dead = broker.deadLetters("dlq");
    for (let i = 0; i < 25; i++)
      await dead.put(
        letter(`m${i}`, { error: i % 5 === 0 ? "TypeError: no" : `TimeoutError: after ${i} ms` }),
      );
    const { letters } = broker;
    expect(letters.groups().map(({ title, count }) => [title, count])).toEqual([
      ["TimeoutError: after <n> ms", 20],
      ["TypeError: no", 5],
    ]);
    const [group] = letters.groups();
    expect(letters.count({ fingerprint: group?.fingerprint as string })).toBe(20);
    const seen: string[] = [];
    let after: string | undefined;
    for (;;) {
      const page = letters.page({ deadLetters: "dlq" }, 10, after);
      if (page.length === 0) break;
      seen.push(...page.map((one) => one.id));
      after = page.at(-1)?.letterId;
    }
    expect(seen).toEqual(Array.from({ length: 25 }, (_, i) => `m${i}`));
    const found = letters.get("m7");
    expect(found?.entry).toMatchObject({ id: "m7", body: { of: "m7" }, error: "TimeoutError: after 7 ms" });
    expect(letters.get(found?.letterId as string)?.id).toBe("m7");
    expect(found?.letterId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(letters.count({ ids: ["m1", found?.letterId as string, "nobody"] })).toBe(2);
  });

  it("keep the same id with another body as a further version, and the same message once", async () => {
    await using broker = openBroker(":memory:");
    const dead = broker.deadLetters("dlq");
    for (const body of ["one", "two", "one"]) await dead.put(letter("a", { body }));
    expect(dead.list().map((entry) => entry.body)).toEqual(["one", "two"]);
    expect([dead.has("a", 1, "two"), dead.has("a", 1, "three"), dead.has("a", 2)]).toEqual([
      true,
      false,
      false,
    ]);
  });

  it("go to the trash and come back, and to a queue once, with their history", async () => {
    await using broker = openBroker(":memory:");
    const queue = broker.queue("orders");
    const dead = broker.deadLetters("dlq");
    await dead.put(letter("a"));
    await dead.put(letter("b", { sourceQueue: "nowhere" }));
    const [a, b] = broker.letters.page({}, 9).map((one) => one.letterId) as [string, string];
    expect(await broker.letters.discard([a, a, "x"])).toMatchObject({ done: [a], failed: [{ id: "x" }] });
    expect(await broker.letters.replay([a])).toMatchObject({
      done: [],
      failed: [{ why: "it is discarded already" }],
    });
    expect(await broker.letters.restore([a])).toEqual({ done: [a], failed: [] });
    expect(await broker.letters.replay([b, a])).toEqual({
      done: [a],
      failed: [{ id: b, why: "there is no queue 'nowhere'" }],
    });
    expect(await broker.letters.replay([b], { to: "orders" })).toEqual({ done: [b], failed: [] });
    const again = queue.receiveMany(9);
    expect(
      again.map(({ id, body, generation, receiveCount }) => [id, body, generation, receiveCount]),
    ).toEqual([
      ["a", { of: "a" }, 2, 1],
      ["b", { of: "b" }, 2, 1],
    ]);
    await dead.put(letter("a", { generation: 2, failedAt: 3000 }));
    expect(broker.letters.get("a")).toMatchObject({
      generation: 2,
      replays: 1,
      earlier: [{ generation: 1, state: "replayed" }],
      entry: { lives: 2 },
    });
    expect(broker.letters.count({ state: "replayed" })).toBe(2);
    expect(broker.letters.status()).toEqual([{ queue: "orders", waiting: 0, inFlight: 2, delayed: 0 }]);
  });

  it("keep a replayed AMQP message as it was: body, properties and headers, without the death's", async () => {
    await using broker = openBroker(":memory:");
    const channel = await broker.createConfirmChannel();
    const queue = broker.queue("orders");
    channel.sendToQueue("orders", Buffer.from([0, 255, 1]), {
      messageId: "raw",
      persistent: true,
      type: "picture",
      headers: { big: 2n ** 60n, "x-death": [{ count: 5 }] },
    });
    await channel.waitForConfirms();
    const message = queue.receive();
    if (message === null) throw new Error("nothing came");
    expect(message.raw).toEqual(Buffer.from([0, 255, 1]));
    await queue.begin(message.id, message.receipt);
    await queue.bury(
      message.id,
      message.receipt,
      letter("raw", { body: message.body }),
      broker.deadLetters("dlq"),
    );
    await broker.letters.replay(["raw"]);
    const back = await channel.get("orders");
    if (back === false) throw new Error("nothing came back");
    expect([...back.content]).toEqual([0, 255, 1]);
    expect(back.properties).toMatchObject({ type: "picture", messageId: "raw" });
    expect(back.properties.headers).toMatchObject({ big: 2n ** 60n });
    expect(back.properties.headers).not.toHaveProperty("x-death");
  });
});

describe("bad input", () => {
  it("is refused by name, and nothing is sent", async () => {
    await using broker = openBroker({ file: ":memory:", maxBodyBytes: 100 });
    const queue = broker.queue<unknown>("q");
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    for (const body of [undefined, () => {}, Symbol("s"), 1n, cycle])
      await expect(queue.send(body)).rejects.toMatchObject({ code: "BAD_BODY" });
    await expect(queue.send("x".repeat(101))).rejects.toMatchObject({ code: "BODY_TOO_LARGE" });
    await expect(queue.send("x", 5 as unknown as string)).rejects.toMatchObject({ code: "BAD_ARGUMENT" });
    await expect(queue.send("x", "")).rejects.toMatchObject({ code: "BAD_ARGUMENT" });
    await expect(queue.ack("nobody")).rejects.toMatchObject({ code: "STALE_DELIVERY" });
    expect(() => broker.queue("")).toThrow(/queue name is empty/);
    expect(() => broker.queue("x".repeat(256))).toThrow(/over 255 bytes/);
    expect(() => broker.queue("new", { create: false })).toThrow(/no queue 'new'/);
    expect(() => broker.queue("q", { maxLength: 3 })).toThrow(/inequivalent arg 'x-max-length'/);
    expect(() => openBroker({ file: ":memory:", durability: "none" as "full" })).toThrow(
      /durability is "none"/,
    );
    expect(queue.pending()).toBe(0);
  });

  it("after close is told that the broker is closed", async () => {
    const broker = openBroker(":memory:");
    const queue = broker.queue("q");
    await broker.close();
    await expect(queue.send("x")).rejects.toMatchObject({ code: "CLOSED" });
    expect(() => broker.letters.count()).toThrow(/is closed/);
  });

  it("does not stand in the way of an AMQP client that declares a queue of ours in plain words", async () => {
    await using broker = openBroker(":memory:");
    broker.queue("q");
    const channel = await broker.createChannel();
    expect((await channel.assertQueue("q")).queue).toBe("q");
  });
});

it("gives back bodies as they were sent", async () => {
  await using broker = openBroker(":memory:");
  const queue = broker.queue<unknown>("q");
  for (const body of [
    "text",
    "",
    "日本語",
    0,
    -1.5,
    null,
    true,
    [1, "x"],
    { a: { b: 1 } },
    Buffer.from([1, 2]),
  ]) {
    await queue.send(body, "id");
    const message = queue.receive();
    expect(message?.body).toEqual(body);
    await queue.ack("id", message?.receipt);
  }
});

describe("one store for two queues that one event went to", () => {
  const world = async () => {
    const broker = openBroker(":memory:");
    const channel = await broker.createConfirmChannel();
    await channel.assertExchange("events", "topic");
    for (const name of ["A", "B"]) {
      await channel.assertQueue(name);
      await channel.bindQueue(name, "events", "order.*");
    }
    channel.publish("events", "order.created", Buffer.from("x"), { messageId: "m", persistent: true });
    await channel.waitForConfirms();
    const store = broker.deadLetters("letters");
    const runs: string[] = [];
    const process = (name: string, fails: boolean) => {
      const consumer = new DLQConsumer(broker.queue(name), store, () => {
        runs.push(name);
        if (fails) throw new PermanentError("no");
      });
      return { consumer, outcome: consumer.processOne() };
    };
    return { broker, store, runs, process };
  };

  it("a letter of the first swallows nothing of the second (case D3)", async () => {
    const { broker, store, runs, process } = await world();
    expect(await process("A", true).outcome).toBe("dead");
    expect(await process("B", false).outcome).toBe("ok");
    expect(runs).toEqual(["A", "B"]);
    expect(store.list()).toMatchObject([{ id: "m", sourceQueue: "A" }]);
    await broker.close();
  });

  it("each is a letter, and each goes back to its own queue, once", async () => {
    const { broker, store, runs, process } = await world();
    for (const name of ["A", "B"]) expect(await process(name, true).outcome).toBe("dead");
    expect(store.list().map((one) => one.sourceQueue)).toEqual(["A", "B"]);
    const again = process("B", false);
    expect(await again.outcome).toBe(null);
    expect(await again.consumer.replay(["m"])).toEqual(["m"]);
    expect(await again.consumer.replay()).toEqual([]);
    expect([broker.queue("A").pending(), broker.queue("B").pending()]).toEqual([0, 1]);
    expect(store.list()).toMatchObject([{ sourceQueue: "A" }]);
    // The next life of B's message ends nothing of A's.
    expect(await process("B", true).outcome).toBe("dead");
    const [ofA, ofB] = store.list();
    expect([ofA?.sourceQueue, ofA?.lives, ofB?.sourceQueue, ofB?.lives]).toEqual(["A", undefined, "B", 2]);
    const ids = broker.letters.page({ state: "dead" }, 9).map((one) => one.letterId);
    expect(await broker.letters.replay(ids)).toMatchObject({ done: ids, failed: [] });
    for (const name of ["A", "B"]) expect(await process(name, false).outcome).toBe("ok");
    expect(runs).toEqual(["A", "B", "B", "A", "B"]);
    await broker.close();
  });
});
