import { describe, expect, it } from "vitest";
import { args, dlx, quorum, text, World } from "./world.ts";

describe("TTL", () => {
  it("C1 is heard when two deadlines differ: case C1, both come at the slow one's time, in order", () => {
    const w = new World();
    w.queue("work");
    w.queue("wait", dlx("work"));
    w.publish("", "wait", "slow", { expiration: "1500" });
    w.publish("", "wait", "fast", { expiration: "200" });
    w.pass(1499);
    expect(w.waiting("work")).toEqual([]);
    w.pass(1);
    expect(w.waiting("work")).toEqual(["slow", "fast"]);
  });

  it("a policy set later does not touch what waits (rule C2)", () => {
    const w = new World();
    w.queue("q");
    w.send("q", "old");
    w.do({
      type: "policy-set",
      policy: {
        name: "p",
        pattern: "^q$",
        applyTo: "queues",
        priority: 0,
        definition: { "message-ttl": 10 },
      },
    });
    w.send("q", "new");
    w.pass(100);
    expect(w.broker.queueInfo("q")?.ready).toBe(2);
    w.get("q", 1, true);
    expect(w.broker.queueInfo("q")?.ready).toBe(0);
  });

  it("TTL 0: to a consumer with room, else dead at once; given back it dies (rules C5, C7)", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-message-ttl": 0 }));
    w.qos(1);
    w.consume("q");
    w.send("q", "m1", "m2");
    expect(w.bodies()).toEqual(["m1"]);
    expect(w.waiting("d")).toEqual(["m2"]);
    w.reject(1, true);
    expect(w.waiting("d")).toEqual(["m2", "m1"]);
  });

  it.each([25, 30, 365])("of %i days is exact, also over a restart: case J2", (days) => {
    const ms = days * 86_400_000;
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-message-ttl": ms }));
    w.send("q", "m");
    w.pass(1000);
    expect(w.waiting("d")).toEqual([]);
    w.pass(ms - 2000);
    w.restart();
    expect(w.waiting("d")).toEqual([]);
    w.pass(3000);
    expect(w.waiting("d")).toEqual(["m"]);
    w.pass(ms);
    expect(w.waiting("d")).toEqual(["m"]);
  });

  it("that passed while the broker was down ends at the start, in order: case C3", () => {
    const w = new World();
    w.queue("work");
    w.queue("wait", dlx("work", { "x-message-ttl": 8000 }));
    const bodies = Array.from({ length: 20 }, (_, i) => `m${i}`);
    w.send("wait", ...bodies);
    w.restart(60_000);
    expect(w.waiting("work")).toEqual(bodies);
    expect(w.broker.queueInfo("wait")?.ready).toBe(0);
  });

  it("a tick takes a bounded number and stays due until all are done", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-message-ttl": 100 }));
    for (let i = 0; i < 12_000; i++) w.send("q", String(i));
    w.now += 100;
    w.do({ type: "tick" });
    expect(w.broker.queueInfo("d")?.ready).toBe(200);
    expect(w.broker.nextWakeAt()).toBeLessThanOrEqual(w.now);
    w.pass(0);
    expect(w.broker.queueInfo("d")?.ready).toBe(12_000);
    expect(w.waiting("d").slice(-1)).toEqual(["11999"]);
  });
});

describe("length limits: case D5", () => {
  const run = (overflow: string): { confirms: boolean[]; w: World } => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-max-length": 2, "x-overflow": overflow }));
    w.do({ type: "confirm-select", channel: 1 });
    const confirms: boolean[] = [];
    for (const body of ["m1", "m2", "m3", "m4", "m5"]) {
      w.publish("", "q", body);
      for (const e of w.effects) if (e.type === "confirm") confirms.push(e.ok);
    }
    return { confirms, w };
  };

  it("drop-head", () => {
    const { confirms, w } = run("drop-head");
    expect(confirms).toEqual([true, true, true, true, true]);
    expect([w.waiting("q"), w.waiting("d")]).toEqual([
      ["m4", "m5"],
      ["m1", "m2", "m3"],
    ]);
  });

  it("reject-publish", () => {
    const { confirms, w } = run("reject-publish");
    expect(confirms).toEqual([true, true, false, false, false]);
    expect([w.waiting("q"), w.waiting("d")]).toEqual([["m1", "m2"], []]);
  });

  it("reject-publish-dlx", () => {
    const { confirms, w } = run("reject-publish-dlx");
    expect(confirms).toEqual([true, true, false, false, false]);
    expect([w.waiting("q"), w.waiting("d")]).toEqual([
      ["m1", "m2"],
      ["m3", "m4", "m5"],
    ]);
    expect(w.deaths("d")).toEqual(["q maxlen 1"]);
  });

  it("reject-publish stays over its limit by a requeue, and drops nothing", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-max-length": 2, "x-overflow": "reject-publish" }));
    w.send("q", "a", "b");
    const a = w.get("q").deliveryTag;
    const b = w.get("q").deliveryTag;
    w.send("q", "c", "e");
    w.nack(b, true);
    expect(a).toBeLessThan(b);
    expect([w.waiting("q"), w.waiting("d")]).toEqual([["a", "b", "c", "e"], []]);
  });

  it("quorum reject-publish overshoots by one and reopens at 80 % (rule D5)", () => {
    const w = new World();
    w.queue("q", quorum({ "x-max-length": 10, "x-overflow": "reject-publish" }));
    w.do({ type: "confirm-select", channel: 1 });
    const ok = (): boolean => {
      w.publish("", "q", "m");
      return w.effects.some((e) => e.type === "confirm" && e.ok);
    };
    expect(Array.from({ length: 12 }, ok).filter(Boolean)).toHaveLength(11);
    w.get("q", 1, true);
    w.get("q", 1, true);
    expect(ok()).toBe(false);
    w.get("q", 1, true);
    expect(ok()).toBe(true);
  });

  it("routed to two queues of which one refuses: nack, and the other has it", () => {
    const w = new World();
    w.queue("a", { "x-max-length": 0, "x-overflow": "reject-publish" });
    w.queue("b");
    w.bind("a", "amq.fanout");
    w.bind("b", "amq.fanout");
    w.do({ type: "confirm-select", channel: 1 });
    w.publish("amq.fanout", "", "m");
    expect(w.effects.at(-1)).toMatchObject({ type: "confirm", ok: false });
    expect([w.waiting("a"), w.waiting("b")]).toEqual([[], ["m"]]);
  });

  it("bytes count bodies only; several go, oldest first; quorum 3.x hands them on newest first (rule D4)", () => {
    for (const [type, compat, dead] of [
      [{}, "4.x", ["aa", "bb", "cc"]],
      [quorum(), "4.x", ["aa", "bb", "cc"]],
      [quorum(), "3.x", ["cc", "bb", "aa"]],
    ] as const) {
      const w = new World({ compat });
      w.queue("d");
      w.queue("q", { ...type, ...dlx("d"), "x-max-length-bytes": 6 });
      for (const body of ["aa", "bb", "cc", "dddddd"])
        w.publish("", "q", body, { headers: args({ k: "long header" }) });
      expect([w.waiting("q"), w.waiting("d")]).toEqual([["dddddd"], [...dead]]);
    }
  });

  it("a policy that sets a limit is enforced at once", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d"));
    w.send("q", "a", "b", "c");
    const policy = {
      name: "p",
      pattern: "^q$",
      applyTo: "all" as const,
      priority: 0,
      definition: { "max-length": 1 },
    };
    w.do({ type: "policy-set", policy });
    expect([w.waiting("q"), w.waiting("d")]).toEqual([["c"], ["a", "b"]]);
  });
});

describe("priorities", () => {
  it("higher first, first in first out among equals, over the maximum counts as the maximum", () => {
    const w = new World();
    w.queue("q", { "x-max-priority": 5 });
    for (const [body, priority] of [
      ["lo1", undefined],
      ["mid1", 3],
      ["hi1", 5],
      ["hi2", 200],
      ["lo2", 0],
      ["mid2", 3],
    ] as const) {
      w.publish("", "q", body, priority === undefined ? {} : { priority });
    }
    expect(w.waiting("q")).toEqual(["hi1", "hi2", "mid1", "mid2", "lo1", "lo2"]);
    const a = w.get("q").deliveryTag;
    w.get("q");
    w.reject(a, true);
    expect(w.waiting("q")).toEqual(["hi1", "mid1", "mid2", "lo1", "lo2"]);
  });

  it("an expired low one waits behind a live high one (rule C6); the head to drop is the highest (rule D8)", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-max-priority": 5, "x-max-length": 2 }));
    w.publish("", "q", "low", { priority: 1, expiration: "10" });
    w.publish("", "q", "high", { priority: 5 });
    w.pass(50);
    expect(w.broker.queueInfo("q")?.ready).toBe(2);
    w.publish("", "q", "mid", { priority: 3 });
    expect(w.waiting("d")).toEqual(["high"]);
    w.get("q", 1, true);
    expect(w.waiting("d")).toEqual(["high", "low"]);
  });

  it("come back after a restart in their order, and what was out is redelivered", () => {
    const w = new World();
    w.queue("q", { "x-max-priority": 5 });
    w.publish("", "q", "lo");
    w.publish("", "q", "hi", { priority: 5 });
    w.get("q");
    w.restart();
    expect(w.waiting("q")).toEqual(["hi", "lo"]);
    expect(w.get("q").redelivered).toBe(true);
    expect(w.get("q").redelivered).toBe(false);
  });
});

describe("where a requeued message goes (rule F3)", () => {
  it("classic: its old place, in any order of requeueing", () => {
    const w = new World();
    w.queue("q");
    w.send("q", "m1", "m2", "m3", "m4");
    const tags = [w.get("q"), w.get("q"), w.get("q")].map((g) => g.deliveryTag);
    for (const i of [2, 0, 1]) w.reject(tags[i] as number, true);
    expect(w.waiting("q")).toEqual(["m1", "m2", "m3", "m4"]);
  });

  it("quorum with a limit: the front, in the order of the returns; without one: the tail", () => {
    for (const [limit, order] of [
      [9, ["m3", "m1", "m2", "m4"]],
      [-1, ["m4", "m3", "m1", "m2"]],
    ] as const) {
      const w = new World();
      w.queue("q", quorum({ "x-delivery-limit": limit }));
      w.send("q", "m1", "m2", "m3", "m4");
      const tags = [w.get("q"), w.get("q"), w.get("q")].map((g) => g.deliveryTag);
      for (const i of [2, 0, 1]) w.reject(tags[i] as number, true);
      expect(w.waiting("q")).toEqual([...order]);
      w.restart();
      expect(w.waiting("q")).toEqual([...order]);
    }
  });

  it("recover is a requeue; a crash always goes to the front (rule F4)", () => {
    const w = new World();
    w.queue("q", quorum({ "x-delivery-limit": -1 }));
    w.send("q", "m1", "m2", "m3");
    w.get("q");
    w.do({ type: "recover", channel: 1, requeue: true });
    expect(w.waiting("q")).toEqual(["m2", "m3", "m1"]);
    w.open(2);
    w.get("q", 2);
    w.get("q", 2);
    w.crash(2);
    expect(w.waiting("q")).toEqual(["m2", "m3", "m1"]);
  });
});

describe("delivery limits (rules F1, F2)", () => {
  it("4.x has 20 by default, 3.x none, -1 none", () => {
    const deliveries = (compat: "3.x" | "4.x", more: Record<string, unknown>): number => {
      const w = new World({ compat });
      w.queue("d");
      w.queue("q", quorum(dlx("d", more)));
      w.send("q", "m");
      let n = 0;
      while (n < 40 && w.broker.queueInfo("q")?.ready) {
        w.reject(w.get("q").deliveryTag, true);
        n++;
      }
      if (n < 40) expect(w.deaths("d")).toEqual(["q delivery_limit 1"]);
      return n;
    };
    expect(deliveries("4.x", {})).toBe(21);
    expect(deliveries("3.x", {})).toBe(40);
    expect(deliveries("4.x", { "x-delivery-limit": -1 })).toBe(40);
    expect(deliveries("4.x", { "x-delivery-limit": 3 })).toBe(4);
    expect(deliveries("4.x", { "x-delivery-limit": 0 })).toBe(1);
  });

  it("a client's x-delivery-count is shown first and overwritten from the first redelivery on (rule F8)", () => {
    const w = new World();
    w.queue("q", quorum());
    w.publish("", "q", "m", { headers: args({ "x-delivery-count": 9 }) });
    const first = w.get("q");
    expect(first.content.properties.headers?.get("x-delivery-count")?.v).toBe(9);
    w.reject(first.deliveryTag, true);
    expect(w.get("q").content.properties.headers?.get("x-delivery-count")?.v).toBe(1n);
  });

  it("every message of a dead consumer's window counts, unless suspects are isolated (rule F5)", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", quorum(dlx("d", { "x-delivery-limit": 0 })));
    w.send("q", "a", "b", "c");
    w.open(2);
    w.qos(10, 2);
    w.consume("q", 2);
    w.crash(2);
    expect(w.waiting("d")).toEqual(["a", "b", "c"]);
  });
});

describe("queues that end by themselves (rule A6)", () => {
  it("x-expires: a consumer keeps it; get, redeclare and a passive declare renew a classic lease, only get a quorum one", () => {
    const lives = (type: Record<string, unknown>, touch: (w: World) => void): boolean => {
      const w = new World();
      w.queue("q", { ...type, "x-expires": 1000 });
      w.pass(600);
      touch(w);
      w.pass(600);
      return w.broker.queueInfo("q") !== undefined;
    };
    const nothing = (): void => undefined;
    const again = (w: World): void =>
      void w.do({ type: "queue-declare", channel: 1, queue: "q", passive: true });
    const get = (w: World): void => void w.do({ type: "get", channel: 1, queue: "q" });
    const consume = (w: World): void => void w.consume("q");
    const publish = (w: World): void => w.send("q", "m");
    expect([nothing, again, get, consume, publish].map((t) => lives({}, t))).toEqual([
      false,
      true,
      true,
      true,
      false,
    ]);
    expect([nothing, again, get, consume].map((t) => lives(quorum(), t))).toEqual([false, false, true, true]);
  });

  it("the lease runs anew when the last consumer leaves and when the broker starts", () => {
    const w = new World();
    w.queue("q", { "x-expires": 1000 });
    const tag = w.consume("q");
    w.pass(5000);
    w.do({ type: "cancel", channel: 1, consumerTag: tag });
    w.pass(900);
    w.restart(5000);
    expect(w.broker.queueInfo("q")).toBeDefined();
    w.pass(1000);
    expect(w.broker.queueInfo("q")).toBeUndefined();
    expect(w.journal.queues.size).toBe(0);
  });

  it("auto-delete goes with the last consumer, not before the first", () => {
    const w = new World();
    w.queue("q", {}, { autoDelete: true });
    w.pass(100_000);
    const a = w.consume("q");
    const b = w.consume("q");
    w.do({ type: "cancel", channel: 1, consumerTag: a });
    expect(w.broker.queueInfo("q")).toBeDefined();
    w.do({ type: "cancel", channel: 1, consumerTag: b });
    expect(w.broker.queueInfo("q")).toBeUndefined();
  });

  it("a queue that is deleted tells its consumers; what they hold can still be settled", () => {
    const w = new World();
    w.queue("q");
    w.consume("q", 1, { consumerTag: "me" });
    w.send("q", "a", "b");
    w.do({ type: "queue-delete", channel: 1, queue: "q" });
    expect(w.effects).toContainEqual({ type: "consumer-cancelled", channel: 1, consumerTag: "me" });
    w.ack(1);
    w.reject(2, false);
    expect([w.contents.map.size, w.lost]).toEqual([0, []]);
  });
});

describe("looking in", () => {
  it("changes nothing: order, counts, flags and limits stay (case H1)", () => {
    const w = new World();
    w.queue("q", quorum({ "x-delivery-limit": 2 }));
    w.send("q", "a", "b", "c");
    for (let i = 0; i < 10; i++)
      expect(w.broker.peek("q", 2).map((m) => text(m.content))).toEqual(["a", "b"]);
    const got = w.get("q");
    expect([text(got.content), got.redelivered, got.state.deliveryCount, got.messageCount]).toEqual([
      "a",
      false,
      0,
      2,
    ]);
    expect(w.broker.queueInfo("q")).toMatchObject({
      ready: 2,
      readyBytes: 2,
      unacked: 1,
      unackedBytes: 1,
      consumers: 0,
    });
    expect([w.broker.peek("none", 5), w.broker.delayed("none"), w.broker.queueInfo("none")]).toEqual([
      [],
      [],
      undefined,
    ]);
  });
});

describe("case D3", () => {
  it("two queues with one dead-letter exchange and the original key: a death in one shows in both", () => {
    const w = new World();
    w.exchange("dlx", "topic");
    for (const name of ["A", "B"]) {
      w.queue(name, { "x-dead-letter-exchange": "dlx" });
      w.bind(name, "amq.topic", "order.created");
      w.queue(`D${name}`);
      w.bind(`D${name}`, "dlx", "order.created");
    }
    w.publish("amq.topic", "order.created", "m");
    w.reject(w.get("A").deliveryTag, false);
    w.ack(w.get("B").deliveryTag);
    expect([w.waiting("DA"), w.waiting("DB")]).toEqual([["m"], ["m"]]);
  });
});

describe("case J5", () => {
  it("the age of a dead letter counts from its arrival in the dead letter queue (rule C3)", () => {
    const day = 86_400_000;
    const w = new World();
    w.queue("d", { "x-message-ttl": 4 * day });
    w.queue("q", dlx("d", { "x-message-ttl": 4 * day }));
    w.send("q", "m");
    w.pass(3 * day);
    w.reject(w.get("q").deliveryTag, false);
    w.pass(1.5 * day);
    expect(w.waiting("d")).toEqual(["m"]);
    w.pass(2.4 * day);
    expect(w.waiting("d")).toEqual(["m"]);
    w.pass(0.2 * day);
    expect(w.waiting("d")).toEqual([]);
    expect(w.broker.lost()).toEqual([{ queue: "d", reason: "expired", why: "no-dlx", count: 1 }]);
  });
});
