import { describe, expect, it } from "vitest";
import { args, dlx, quorum, text, World } from "./world.ts";

describe("consumers", () => {
  it("take turns; a full one is passed over and comes back in line when it has room", () => {
    const w = new World();
    w.queue("q");
    w.open(2);
    w.open(3);
    w.qos(1, 2);
    w.qos(2, 3);
    w.consume("q", 2);
    w.consume("q", 3);
    w.send("q", "1", "2", "3", "4", "5");
    expect([w.bodies(2), w.bodies(3)]).toEqual([["1"], ["2", "3"]]);
    w.ack(1, 2);
    expect(w.bodies(2)).toEqual(["1", "4"]);
    w.ack(2, 3);
    w.ack(1, 3);
    expect(w.bodies(3)).toEqual(["2", "3", "5"]);
  });

  it("of higher priority come first while they have room", () => {
    const w = new World();
    w.queue("q");
    w.open(2);
    w.open(3);
    w.qos(2, 2);
    w.consume("q", 3);
    w.consume("q", 2, { arguments: args({ "x-priority": 10 }) });
    w.send("q", "1", "2", "3");
    expect([w.bodies(2), w.bodies(3)]).toEqual([["1", "2"], ["3"]]);
    w.ack(1, 2);
    w.send("q", "4");
    expect(w.bodies(2)).toEqual(["1", "2", "4"]);
    expect(
      w.refusal({
        type: "consume",
        channel: 3,
        queue: "q",
        consumerTag: "x",
        arguments: args({ "x-priority": "hi" }),
      }),
    ).toContain("invalid arg 'x-priority'");
  });

  it("global prefetch holds for the channel, over all its queues", () => {
    const w = new World();
    w.queue("a");
    w.queue("b");
    w.qos(2, 1, true);
    w.consume("a");
    w.consume("b");
    w.send("a", "a1", "a2");
    w.send("b", "b1");
    expect(w.bodies()).toEqual(["a1", "a2"]);
    w.ack(1);
    expect(w.bodies()).toEqual(["a1", "a2", "b1"]);
    w.qos(0, 1, true);
    w.send("a", "a3");
    expect(w.bodies().at(-1)).toBe("a3");
  });

  it("global prefetch on a quorum queue ends the connection with 540", () => {
    const w = new World();
    w.queue("q", quorum());
    w.qos(2, 1, true);
    expect(w.refusal({ type: "consume", channel: 1, queue: "q", consumerTag: "" })).toBe(
      "540 NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos",
    );
  });

  it("prefetch counts for consumers made after it", () => {
    const w = new World();
    w.queue("q");
    w.consume("q");
    w.qos(1);
    w.send("q", "1", "2", "3");
    expect(w.bodies()).toEqual(["1", "2", "3"]);
  });

  it("a channel's credit ends deliveries until it is set anew; without acks too", () => {
    const w = new World();
    w.queue("q");
    w.do({ type: "channel-credit", channel: 1, credit: 2 });
    w.send("q", "1", "2", "3", "4");
    w.consume("q", 1, { noAck: true });
    expect(w.bodies()).toEqual(["1", "2"]);
    w.do({ type: "channel-credit", channel: 1, credit: 1 });
    expect(w.bodies()).toEqual(["1", "2", "3"]);
  });

  it("exclusive: nobody else, and only on a queue that nobody consumes", () => {
    const w = new World();
    w.queue("q");
    w.open(2);
    const consume = (exclusive: boolean): string =>
      w.refusal({ type: "consume", channel: 2, queue: "q", consumerTag: "", exclusive });
    const tag = w.consume("q");
    expect(consume(true)).toBe("403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use");
    w.do({ type: "cancel", channel: 1, consumerTag: tag });
    expect(consume(true)).toBe("accepted");
    expect(w.refusal({ type: "consume", channel: 1, queue: "q", consumerTag: "" })).toContain("403");
    w.crash(2);
    expect(w.refusal({ type: "consume", channel: 1, queue: "q", consumerTag: "" })).toBe("accepted");
  });

  it("a tag is used once per channel (530), and given when there is none", () => {
    const w = new World();
    w.queue("q");
    w.consume("q", 1, { consumerTag: "t" });
    expect(w.refusal({ type: "consume", channel: 1, queue: "q", consumerTag: "t" })).toBe(
      "530 NOT_ALLOWED - attempt to reuse consumer tag 't'",
    );
    expect(w.consume("q")).toMatch(/^amq\.ctag-/);
    expect(w.consume("q")).not.toBe(w.consume("q"));
  });

  it("single active: one is served, the next takes over when it leaves, higher priority first", () => {
    const w = new World();
    w.queue("q", { "x-single-active-consumer": true });
    for (const channel of [2, 3, 4]) w.open(channel);
    const first = w.consume("q", 2);
    w.consume("q", 3);
    w.consume("q", 4, { arguments: args({ "x-priority": 1 }) });
    w.send("q", "1", "2");
    expect([2, 3, 4].map((c) => w.bodies(c))).toEqual([["1", "2"], [], []]);
    w.do({ type: "cancel", channel: 2, consumerTag: first });
    w.send("q", "3");
    expect([2, 3, 4].map((c) => w.bodies(c))).toEqual([["1", "2"], [], ["3"]]);
    w.crash(4);
    expect(w.bodies(3)).toEqual(["3"]);
  });

  it("cancel returns nothing; what was held is settled later (rule F4)", () => {
    const w = new World();
    w.queue("q");
    const tag = w.consume("q");
    w.send("q", "1");
    w.do({ type: "cancel", channel: 1, consumerTag: tag });
    w.send("q", "2");
    expect(w.waiting("q")).toEqual(["2"]);
    w.ack(1);
    expect(w.broker.queueInfo("q")).toMatchObject({ ready: 1, unacked: 0 });
  });

  it("a message handed straight over without ack leaves no trace in the journal", () => {
    const w = new World();
    w.queue("q");
    w.consume("q", 1, { noAck: true });
    w.send("q", "m");
    expect(w.effects.map((e) => e.type)).toEqual(["deliver"]);
    expect(w.contents.map.size).toBe(0);
  });

  it("ack multiple settles up to the tag, 0 all, an unknown one nothing (rule A4)", () => {
    const w = new World();
    w.queue("q");
    w.consume("q");
    w.send("q", "1", "2", "3", "4");
    w.ack(2, 1, true);
    expect(w.broker.queueInfo("q")?.unacked).toBe(2);
    expect(w.refusal({ type: "ack", channel: 1, deliveryTag: 2, multiple: true })).toContain(
      "unknown delivery tag 2",
    );
    expect(w.refusal({ type: "nack", channel: 1, deliveryTag: 9, multiple: true, requeue: true })).toContain(
      "406",
    );
    expect(w.broker.queueInfo("q")?.unacked).toBe(2);
    w.ack(0, 1, true);
    w.ack(0, 1, true);
    expect(w.broker.queueInfo("q")?.unacked).toBe(0);
    expect(w.journal.rows.size).toBe(0);
  });

  it("a second reject of one delivery is refused (rule A3)", () => {
    const w = new World();
    w.queue("q", dlx("q"));
    w.send("q", "m");
    w.get("q");
    w.reject(1, false);
    expect(w.refusal({ type: "reject", channel: 1, deliveryTag: 1, requeue: false })).toContain("406");
    expect(w.waiting("q")).toEqual(["m"]);
  });
});

describe("transactions", () => {
  const tx = (): World => {
    const w = new World();
    w.queue("q", dlx("d"));
    w.queue("d");
    w.send("q", "1", "2", "3");
    w.do({ type: "tx-select", channel: 1 });
    return w;
  };

  it("publishes and settlements happen at the commit, all in one command", () => {
    const w = tx();
    w.get("q");
    w.get("q");
    w.publish("", "d", "new");
    w.ack(1);
    w.reject(2, false);
    expect([w.waiting("d"), w.broker.queueInfo("q")?.unacked]).toEqual([[], 2]);
    w.do({ type: "tx-commit", channel: 1 });
    expect([w.waiting("d"), w.broker.queueInfo("q")?.unacked]).toEqual([["new", "2"], 0]);
  });

  it("a rollback forgets publishes and gives the deliveries back under their tags", () => {
    const w = tx();
    w.get("q");
    w.get("q");
    w.publish("", "d", "never");
    w.ack(0, 1, true);
    expect(w.refusal({ type: "ack", channel: 1, deliveryTag: 1 })).toContain("unknown delivery tag 1");
    w.do({ type: "tx-rollback", channel: 1 });
    w.do({ type: "tx-commit", channel: 1 });
    expect([w.waiting("d"), w.broker.queueInfo("q")?.unacked]).toEqual([[], 2]);
    w.ack(1);
    w.do({ type: "tx-commit", channel: 1 });
    expect(w.broker.queueInfo("q")?.unacked).toBe(1);
  });

  it("a channel that dies before the commit did nothing, and all it held is back", () => {
    const w = tx();
    w.get("q");
    w.get("q");
    w.publish("", "d", "never");
    w.ack(1);
    w.reject(2, false);
    w.crash(1);
    expect([w.waiting("d"), w.waiting("q")]).toEqual([[], ["1", "2", "3"]]);
    expect(w.broker.queueInfo("q")?.unacked).toBe(0);
  });

  it("modes do not mix", () => {
    const w = tx();
    expect(w.refusal({ type: "confirm-select", channel: 1 })).toBe(
      "406 PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    );
    w.open(2);
    expect(w.refusal({ type: "tx-commit", channel: 2 })).toBe(
      "406 PRECONDITION_FAILED - channel is not transactional",
    );
    w.do({ type: "confirm-select", channel: 2 });
    w.do({ type: "confirm-select", channel: 2 });
    expect(w.refusal({ type: "tx-select", channel: 2 })).toContain("cannot switch from confirm to tx mode");
  });
});

describe("policies", () => {
  const set = (
    w: World,
    name: string,
    definition: Record<string, string | number>,
    more: object = {},
  ): void => {
    const policy = { name, pattern: "^q", applyTo: "queues" as const, priority: 0, definition, ...more };
    w.do({ type: "policy-set", policy });
  };
  const options = (w: World, queue = "q"): unknown => w.broker.queueInfo(queue)?.options;

  it("arguments win for DLX and key and combine; the smaller amount wins", () => {
    const w = new World();
    w.queue("q", { "x-dead-letter-exchange": "by-arg", "x-message-ttl": 100, "x-max-length": 5 });
    set(w, "p", {
      "dead-letter-exchange": "by-policy",
      "dead-letter-routing-key": "k",
      "message-ttl": 50,
      "max-length": 10,
      overflow: "reject-publish",
    });
    expect(options(w)).toMatchObject({
      dlx: "by-arg",
      dlrk: "k",
      ttl: 50,
      maxLength: 5,
      overflow: "reject-publish",
    });
    expect(w.broker.queueInfo("q")?.policy).toBe("p");
    w.do({ type: "policy-clear", name: "p" });
    expect(options(w)).toMatchObject({ dlx: "by-arg", ttl: 100, maxLength: 5, overflow: "drop-head" });
    expect(w.broker.queueInfo("q")?.policy).toBeUndefined();
  });

  it("a routing key without an exchange is accepted and does nothing", () => {
    const w = new World();
    w.queue("q");
    set(w, "p", { "dead-letter-routing-key": "k" });
    expect(options(w)).toMatchObject({ dlx: undefined, dlrk: undefined });
  });

  it("one policy applies: the highest priority; a second layer of operator policies only tightens", () => {
    const w = new World();
    w.queue("q");
    set(w, "low", { "max-length": 1 });
    set(w, "high", { "max-length": 100 }, { priority: 9 });
    set(w, "classic", { "max-length": 7 }, { priority: 99, applyTo: "quorum_queues" });
    set(w, "other", { "max-length": 7 }, { priority: 99, pattern: "^other" });
    set(w, "op", { "max-length": 10, expires: 1000 }, { operator: true });
    expect(options(w)).toMatchObject({ maxLength: 10, expires: 1000 });
    expect(w.broker.queueInfo("q")).toMatchObject({ policy: "high", operatorPolicy: "op" });
    w.queue("q2");
    expect(options(w, "q2")).toMatchObject({ maxLength: 10 });
  });

  it("a delivery limit and an alternate exchange by policy, also after a restart", () => {
    const w = new World();
    w.queue("q", quorum());
    w.exchange("qx", "direct");
    set(w, "p", { "delivery-limit": 2, "alternate-exchange": "amq.fanout" }, { applyTo: "all" });
    w.bind("q", "amq.fanout");
    w.restart();
    w.publish("qx", "k", "m");
    for (let i = 0; i < 3; i++) w.reject(w.get("q").deliveryTag, true);
    expect(w.lost.map((l) => l.reason)).toEqual(["delivery_limit"]);
    expect(w.broker.exchanges().find((x) => x.record.name === "qx")?.policy).toBe("p");
  });

  it("refuses a bad pattern or value by name, and clearing one that is not there", () => {
    const w = new World();
    const refusal = (policy: object): string =>
      w.refusal({
        type: "policy-set",
        policy: { name: "p", pattern: "q", applyTo: "all", priority: 0, definition: {}, ...policy },
      });
    expect(refusal({ pattern: "(" })).toContain("406 PRECONDITION_FAILED - policy 'p': pattern '('");
    expect(refusal({ definition: { "message-ttl": -1 } })).toContain("message-ttl is -1");
    expect(refusal({ definition: { overflow: "x" } })).toContain('overflow is "x"');
    expect(refusal({ definition: { "dead-letter-exchange": 5 } })).toContain("dead-letter-exchange");
    expect(w.refusal({ type: "policy-clear", name: "p" })).toBe("404 NOT_FOUND - no policy 'p' in vhost '/'");
    expect(w.broker.policies()).toEqual([]);
  });
});

describe("delays", () => {
  const delay = (w: World, body: string, delayMs: number): void => w.publish("", "q", body, {}, { delayMs });

  it("each comes out at its own time, whatever was sent before: case C1", () => {
    const w = new World();
    w.queue("q");
    delay(w, "slow", 1500);
    delay(w, "fast", 200);
    w.send("q", "now");
    w.pass(199);
    expect(w.waiting("q")).toEqual(["now"]);
    w.pass(1);
    expect(w.waiting("q")).toEqual(["now", "fast"]);
    w.pass(1300);
    expect(w.waiting("q")).toEqual(["now", "fast", "slow"]);
  });

  it("of years are numbers, exact over a restart, and delivered once: case J2", () => {
    const year = 31_536_000_000;
    const w = new World();
    w.queue("q");
    delay(w, "m", year);
    w.pass(1000);
    w.restart();
    w.pass(year - 2000);
    expect(w.waiting("q")).toEqual([]);
    w.pass(3000);
    expect(w.waiting("q")).toEqual(["m"]);
    w.restart();
    w.pass(year);
    expect(w.waiting("q")).toEqual(["m"]);
  });

  it("can be listed, cancelled and let go before they are due", () => {
    const w = new World();
    w.queue("q");
    for (const [body, ms] of [
      ["c", 300],
      ["a", 100],
      ["b", 200],
      ["d", 400],
    ] as const)
      delay(w, body, ms);
    const listed = (): string[] => w.broker.delayed("q").map((m) => text(m.content));
    expect(listed()).toEqual(["a", "b", "c", "d"]);
    expect(w.broker.queueInfo("q")).toMatchObject({ ready: 0, delayed: 4, delayedBytes: 4 });
    const [a, b] = w.broker.delayed("q").map((m) => m.state.seq);
    w.do({ type: "delayed-cancel", channel: 1, queue: "q", seq: b as number });
    w.do({ type: "delayed-release", channel: 1, queue: "q", seq: a as number });
    expect([listed(), w.waiting("q")]).toEqual([["c", "d"], ["a"]]);
    const again = w.refusal({ type: "delayed-cancel", channel: 1, queue: "q", seq: b as number });
    expect(again).toBe(`404 NOT_FOUND - no delayed message ${b} in queue 'q' in vhost '/'`);
    w.restart(1000);
    expect(w.waiting("q")).toEqual(["a", "c", "d"]);
    expect(w.journal.rows.size).toBe(3);
  });

  it("a TTL begins when the delay is over; a full queue that refuses takes what it promised", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-message-ttl": 100, "x-max-length": 1, "x-overflow": "reject-publish" }));
    delay(w, "m", 1000);
    w.pass(990);
    w.send("q", "full");
    w.pass(20);
    expect(w.waiting("q")).toEqual(["full", "m"]);
    w.pass(100);
    expect(w.waiting("d")).toEqual(["full", "m"]);
  });

  it("in a priority queue count as their priority says when they come", () => {
    const w = new World();
    w.queue("q", { "x-max-priority": 5 });
    w.publish("", "q", "high", { priority: 5 }, { delayMs: 10 });
    w.send("q", "low");
    w.pass(10);
    expect(w.waiting("q")).toEqual(["high", "low"]);
  });

  it("thousands cancelled in any order leave the others in order", () => {
    const w = new World();
    w.queue("q");
    const due = Array.from({ length: 2000 }, (_, i) => ((i * 7919) % 2000) + 1);
    for (const ms of due) delay(w, String(ms), ms);
    const all = w.broker.delayed("q");
    const gone = new Set(all.filter((_, i) => i % 3 === 0).map((m) => m.state.seq));
    for (const seq of [...gone].sort((a, b) => ((a * 31) % 97) - ((b * 31) % 97))) {
      w.do({ type: "delayed-cancel", channel: 1, queue: "q", seq });
    }
    w.pass(3000);
    const left = all.filter((m) => !gone.has(m.state.seq)).map((m) => text(m.content));
    expect(w.waiting("q")).toEqual(left);
  });

  it("a retry goes to the back, later or now, uncounted, and keeps its deadline", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", quorum(dlx("d", { "x-delivery-limit": 0 })));
    w.publish("", "q", "m", { expiration: "5000" });
    w.send("q", "n");
    w.do({ type: "retry", channel: 1, deliveryTag: w.get("q").deliveryTag, delayMs: 1000 });
    expect([w.waiting("q"), w.broker.queueInfo("q")?.delayed]).toEqual([["n"], 1]);
    w.restart();
    w.pass(1000);
    expect(w.waiting("q")).toEqual(["n", "m"]);
    w.do({ type: "retry", channel: 1, deliveryTag: w.get("q").deliveryTag });
    expect(w.waiting("q")).toEqual(["m", "n"]);
    const m = w.get("q");
    expect([m.redelivered, m.state.deliveryCount, m.state.firstReceivedAt]).toEqual([true, 0, w.now - 1000]);
    w.do({ type: "retry", channel: 1, deliveryTag: m.deliveryTag, delayMs: 60_000 });
    w.pass(60_000);
    expect(w.waiting("d")).toEqual([]);
    w.get("q", 1, true);
    expect(w.waiting("d")).toEqual(["m"]);
  });
});
