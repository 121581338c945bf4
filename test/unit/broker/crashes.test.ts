import { describe, expect, it } from "vitest";
import { dlx, quorum, text, World } from "./world.ts";

/**
 * A client whose process dies on every message named `pill*`, as any AMQP client would: it takes what its window
 * holds, handles in order and acks each. Comes back until nothing is left for it. Answers who was handled.
 */
function clientThatDies(w: World, queue: string, prefetch: number, crashesAtMost = 60): string[] {
  const handled: string[] = [];
  let connection = 100;
  for (let crashes = 0; crashes <= crashesAtMost; crashes++) {
    const channel = w.open(++connection);
    w.qos(prefetch, channel);
    let next = w.deliveries.length;
    w.consume(queue, channel);
    let died = false;
    for (; next < w.deliveries.length; next++) {
      const d = w.deliveries[next];
      if (d === undefined || d.channel !== channel) continue;
      if (text(d.content).startsWith("pill")) {
        w.crash(connection);
        died = true;
        break;
      }
      handled.push(text(d.content));
      w.ack(d.deliveryTag, channel);
    }
    if (!died) return handled;
  }
  return handled;
}

const hundred = (pills: number[]): string[] =>
  Array.from({ length: 100 }, (_, i) => (pills.includes(i) ? `pill${i}` : `m${i}`));

describe("a pill among a hundred messages (consumer-rules section 2)", () => {
  const run = (
    prefetch: number,
    pills: number[],
    isolate: boolean,
  ): { dead: string[]; handled: string[]; w: World } => {
    const w = new World();
    w.queue("d");
    const more = isolate ? { "x-dlo-isolate-suspects": true } : {};
    w.queue("q", quorum(dlx("d", { "x-delivery-limit": 2, ...more })));
    w.send("q", ...hundred(pills));
    const handled = clientThatDies(w, "q", prefetch);
    return { dead: w.waiting("d"), handled, w };
  };

  it.each([
    [1, [4]],
    [20, [4]],
    [20, [4, 5, 30, 99]],
    [1, [0, 1, 2, 3]],
    [0, [50]],
  ])(
    "prefetch %i, pills at %j: with isolation only the pills die, and every innocent is handled once",
    (prefetch, pills) => {
      const { dead, handled, w } = run(prefetch, pills, true);
      expect(dead.sort()).toEqual(pills.map((i) => `pill${i}`).sort());
      expect(handled.length).toBe(100 - pills.length);
      expect(new Set(handled).size).toBe(handled.length);
      expect(w.broker.queueInfo("q")).toMatchObject({ ready: 0, unacked: 0 });
      expect(w.deaths("d")).toEqual(["q delivery_limit 1"]);
    },
  );

  it("without it the neighbours die too, as on RabbitMQ (rule F5): the check above can fail", () => {
    const { dead } = run(20, [4], false);
    expect(dead.length).toBe(20);
  });
});

describe("isolation of suspects", () => {
  const isolating = (): World => {
    const w = new World();
    w.queue("q", { "x-dlo-isolate-suspects": true });
    w.send("q", "a", "b", "c", "d", "e");
    w.open(2);
    w.qos(3, 2);
    w.consume("q", 2);
    w.crash(2);
    return w;
  };

  it("one suspect is out at a time, and alone with its connection; others are served around it", () => {
    const w = isolating();
    w.open(3);
    w.qos(10, 3);
    w.consume("q", 3);
    expect(w.bodies(3)).toEqual(["a"]);
    w.open(4);
    w.qos(10, 4);
    w.consume("q", 4);
    expect(w.bodies(4)).toEqual(["d", "e"]);
    // Both channels of one connection are one process.
    w.open(5, 3);
    w.consume("q", 5);
    expect(w.bodies(5)).toEqual([]);
    w.ack(1, 3);
    expect([w.bodies(3), w.bodies(5)].flat().sort()).toEqual(["a", "b"]);
    expect(w.bodies(4)).toEqual(["d", "e"]);
  });

  it("a connection that holds others drains before it gets the next suspect", () => {
    const w = new World();
    w.queue("q", { "x-dlo-isolate-suspects": true });
    w.open(2);
    w.open(3);
    w.qos(2, 2);
    w.qos(2, 3);
    w.consume("q", 2);
    w.consume("q", 3);
    w.send("q", "a", "b", "c", "d");
    w.crash(3);
    expect(w.bodies(2)).toEqual(["a", "c"]);
    w.ack(1, 2);
    expect(w.bodies(2)).toEqual(["a", "c"]);
    w.ack(2, 2);
    expect(w.bodies(2)).toEqual(["a", "c", "b"]);
    w.ack(3, 2);
    expect(w.bodies(2)).toEqual(["a", "c", "b", "d"]);
  });

  it("giving a suspect back clears it; a clean goodbye makes none, a closed channel does", () => {
    const w = isolating();
    w.open(3);
    w.qos(10, 3);
    const tag = w.consume("q", 3);
    w.do({ type: "cancel", channel: 3, consumerTag: tag });
    w.reject(1, true, 3);
    expect(w.broker.peek("q", 9).map((m) => [text(m.content), m.state.suspect])).toEqual([
      ["b", true],
      ["c", true],
      ["a", false],
      ["d", false],
      ["e", false],
    ]);
    const clean = new World();
    clean.queue("q", { "x-dlo-isolate-suspects": true });
    clean.send("q", "a", "b");
    clean.open(2);
    clean.consume("q", 2);
    clean.do({ type: "close-connection", connection: 2, clean: true });
    expect(clean.broker.peek("q", 9).every((m) => !m.state.suspect && m.state.redelivered)).toBe(true);
    clean.open(3);
    clean.consume("q", 3);
    clean.do({ type: "close-channel", channel: 3 });
    expect(clean.broker.peek("q", 9).every((m) => m.state.suspect)).toBe(true);
  });

  it("after a polite channel.close nobody is suspect, but what it held alone is counted, so no failure goes round for ever", () => {
    const w = new World();
    w.queue("q", quorum({ "x-dlo-isolate-suspects": true }));
    w.send("q", "a", "b");
    const seen = (): [string, boolean, number][] =>
      w.broker.peek("q", 9).map(({ content, state }) => [text(content), state.suspect, state.deliveryCount]);
    w.open(2);
    w.consume("q", 2);
    w.do({ type: "close-channel", channel: 2, clean: true });
    expect(seen()).toEqual([
      ["a", false, 0],
      ["b", false, 0],
    ]);
    w.open(3);
    w.qos(1, 3);
    w.consume("q", 3);
    w.do({ type: "close-channel", channel: 3, clean: true });
    // A quorum queue hands out what came back in the order of its coming back.
    expect(seen()).toEqual([
      ["b", false, 0],
      ["a", false, 1],
    ]);
  });

  it("a suspect over its TTL dies like any other, and a purge takes suspects too", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-dlo-isolate-suspects": true, "x-message-ttl": 100 }));
    w.send("q", "a", "b");
    w.open(2);
    w.consume("q", 2);
    w.crash(2);
    w.pass(150);
    expect(w.waiting("d")).toEqual(["a", "b"]);
    const p = isolating();
    expect(p.do({ type: "queue-purge", channel: 1, queue: "q" })).toEqual({ type: "count", messageCount: 5 });
    expect([p.contents.map.size, p.journal.rows.size]).toEqual([0, 0]);
  });

  it("survives a restart: suspects are still tried alone", () => {
    const w = isolating();
    w.restart();
    w.open(3);
    w.qos(10, 3);
    w.consume("q", 3);
    expect(w.bodies(3)).toEqual(["a"]);
  });
});

describe("handler starts (begin)", () => {
  it("count durably, and a crash blames only what was started", () => {
    const w = new World();
    w.queue("q", quorum());
    w.send("q", "a", "b", "c");
    w.open(2);
    w.consume("q", 2);
    w.do({ type: "begin", channel: 2, deliveryTag: 2 });
    expect(w.effects).toMatchObject([{ type: "message-state", state: { starts: 1, hold: 2 } }]);
    w.do({ type: "begin", channel: 2, deliveryTag: 2 });
    w.crash(2);
    const states = w.broker
      .peek("q", 9)
      .map((m) => [text(m.content), m.state.starts, m.state.deliveryCount, m.state.suspect]);
    expect(states.sort()).toEqual([
      ["a", 0, 0, false],
      ["b", 1, 1, true],
      ["c", 0, 0, false],
    ]);
  });

  it("survive the broker's own end", () => {
    const w = new World();
    w.queue("q");
    w.send("q", "a", "b");
    const at = w.now;
    const got = w.get("q");
    w.do({ type: "begin", channel: 1, deliveryTag: got.deliveryTag });
    w.restart(1000);
    expect(w.get("q").state).toMatchObject({
      starts: 1,
      suspect: true,
      firstReceivedAt: at,
      redelivered: true,
    });
  });

  it("release gives the message back to its place and takes the start back", () => {
    const w = new World();
    w.queue("q", quorum({ "x-delivery-limit": 0 }));
    w.send("q", "a", "b");
    const { deliveryTag } = w.get("q");
    w.do({ type: "begin", channel: 1, deliveryTag });
    w.do({ type: "release", channel: 1, deliveryTag });
    expect(w.broker.peek("q", 1)[0]?.state).toMatchObject({
      starts: 0,
      deliveryCount: 0,
      suspect: false,
      hold: 0,
    });
    expect(w.waiting("q")).toEqual(["a", "b"]);
    w.restart();
    expect(w.broker.peek("q", 1)[0]?.state).toMatchObject({ starts: 0, deliveryCount: 0 });
  });
});

describe("a restart", () => {
  it("gives back every persistent message of durable queues in order, what was out redelivered, and nothing else", () => {
    const w = new World();
    w.queue("q");
    w.queue("transient", {}, { durable: false });
    w.send("q", "1", "2", "3", "4", "5");
    w.publish("", "q", "lost", { deliveryMode: 1 });
    w.send("transient", "x");
    w.ack(w.get("q").deliveryTag);
    w.get("q");
    const back = w.get("q").deliveryTag;
    w.reject(back, true);
    w.restart();
    expect(w.waiting("q")).toEqual(["2", "3", "4", "5"]);
    expect(w.broker.queueInfo("transient")).toBeUndefined();
    expect(["q", "q", "q"].map((q) => w.get(q).redelivered)).toEqual([true, true, false]);
  });

  it("quorum queues keep every message and count the crash once, also over two restarts", () => {
    const w = new World();
    w.queue("q", quorum());
    w.publish("", "q", "m", { deliveryMode: 1 });
    w.get("q");
    w.restart();
    w.restart();
    expect(w.broker.peek("q", 1)[0]?.state.deliveryCount).toBe(1);
    w.get("q");
    w.restart();
    w.restart();
    expect(w.broker.peek("q", 1)[0]?.state.deliveryCount).toBe(2);
    const got = w.get("q");
    expect(got.content.properties.headers?.get("x-delivery-count")?.v).toBe(2n);
    expect(got.content.properties.deliveryMode).toBe(1);
  });

  it("at the delivery limit the message dies at the start", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", quorum(dlx("d", { "x-delivery-limit": 0 })));
    w.send("q", "m");
    w.get("q");
    w.restart();
    expect(w.waiting("d")).toEqual(["m"]);
    expect(w.deaths("d")).toEqual(["q delivery_limit 1"]);
  });

  it("topology comes back as far as it is durable, with numbers that were never used", () => {
    const w = new World();
    w.queue("q", { "x-max-length": 5 });
    w.queue("excl", {}, { exclusive: true });
    w.exchange("e", "topic");
    w.exchange("t", "topic", { durable: false } as object);
    w.bind("q", "e", "a.#", { k: 1 });
    w.bind("q", "t", "a.#");
    w.bind("excl", "e", "a.#");
    w.publish("e", "a.b", "m");
    const seq = w.broker.peek("q", 1)[0]?.state.seq ?? 0;
    w.restart();
    expect(w.broker.queues().map((q) => q.record.name)).toEqual(["q"]);
    expect(w.broker.bindings().map((b) => [b.source, b.routingKey])).toEqual([["e", "a.#"]]);
    w.publish("e", "a.c", "n");
    expect(w.broker.peek("q", 9)[1]?.state.seq).toBeGreaterThan(seq);
    expect(w.broker.queueInfo("q")?.options.maxLength).toBe(5);
  });

  it("what the machine says it holds is what the journal holds", () => {
    const w = new World();
    w.queue("q", quorum());
    w.send("q", "1", "2", "3");
    w.get("q");
    w.reject(w.get("q").deliveryTag, true);
    const snap = w.broker.snapshot();
    const rows = [...snap.messages].map(({ state }) => state.seq).sort();
    expect(rows).toEqual([...w.journal.rows.keys()].sort());
    expect([...snap.queues]).toEqual([...w.journal.queues.values()]);
  });
});

describe("a crash of the connection", () => {
  it("loses no message even when the queue goes to somebody else at once", () => {
    const w = new World();
    w.queue("q");
    w.open(2);
    w.open(3);
    w.qos(2, 2);
    w.qos(5, 3);
    w.consume("q", 2);
    w.send("q", "a", "b", "c");
    w.consume("q", 3);
    w.crash(2);
    expect(w.bodies(3)).toEqual(["c", "a", "b"]);
    expect(w.deliveries.filter((d) => d.channel === 3).map((d) => d.redelivered)).toEqual([
      false,
      true,
      true,
    ]);
  });
});

describe("what came back before a restart and after it", () => {
  it("keeps the order of the returns (found by the simulation, seed 45)", () => {
    const w = new World();
    w.queue("q", quorum());
    w.send("q", "a", "b", "c", "d");
    const tags = ["a", "b", "c"].map(() => w.get("q").deliveryTag);
    w.reject(tags[2] as number, true);
    w.reject(tags[1] as number, true);
    w.ack(tags[0] as number);
    w.restart();
    expect(w.waiting("q")).toEqual(["c", "b", "d"]);
    const c = w.get("q").deliveryTag;
    w.reject(c, true);
    expect(w.waiting("q")).toEqual(["b", "c", "d"]);
    w.restart();
    expect(w.waiting("q")).toEqual(["b", "c", "d"]);
  });
});
