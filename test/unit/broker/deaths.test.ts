import { describe, expect, it } from "vitest";
import { type FieldValue, HeaderTable } from "../../../src/broker/index.ts";
import { args, dlx, quorum, text, World } from "./world.ts";

const header = (w: World, queue: string, key: string): unknown =>
  w.broker.peek(queue, 1)[0]?.content.properties.headers?.get(key)?.v;

describe("a death", () => {
  it("writes x-death with the wire types of RabbitMQ (rule E1) and the first and last death (E2)", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d"));
    w.publish("", "q", "m", { expiration: "00050" });
    const due = Math.floor((w.now + 50) / 1000);
    w.pass(60);
    const list = w.broker.peek("d", 1)[0]?.content.properties.headers?.get("x-death");
    const entry = list?.t === "A" && list.v[0]?.t === "F" ? list.v[0].v : HeaderTable.empty;
    const fields = Object.fromEntries(entry.keys().map((k) => [k, entry.get(k)]));
    expect(fields).toEqual({
      count: { t: "l", v: 1n },
      reason: { t: "S", v: "expired" },
      queue: { t: "S", v: "q" },
      time: { t: "T", v: due },
      exchange: { t: "S", v: "" },
      "routing-keys": { t: "A", v: [{ t: "S", v: "q" }] },
      "original-expiration": { t: "S", v: "50" },
    });
    expect(
      ["x-first-death-reason", "x-first-death-queue", "x-last-death-queue"].map((k) => header(w, "d", k)),
    ).toEqual(["expired", "q", "q"]);
    expect(w.broker.peek("d", 1)[0]?.content.properties.expiration).toBeUndefined();
  });

  it("3.x writes no x-last-death and keeps original-expiration as it was sent", () => {
    const w = new World({ compat: "3.x" });
    w.queue("d");
    w.queue("q", dlx("d"));
    w.publish("", "q", "m", { expiration: "+50" });
    w.pass(60);
    expect(header(w, "d", "x-last-death-queue")).toBeUndefined();
    const list = w.broker.peek("d", 1)[0]?.content.properties.headers?.get("x-death");
    const entry = list?.t === "A" && list.v[0]?.t === "F" ? list.v[0].v : HeaderTable.empty;
    expect(entry.get("original-expiration")).toEqual({ t: "S", v: "+50" });
  });

  it("leaves every other header's bytes and the body as they were (rule E3)", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d"));
    const odd: Record<string, FieldValue> = {
      small: { t: "b", v: -1 },
      big: { t: "l", v: 2n ** 62n },
      f: { t: "f", v: 0.5 },
      nul: { t: "V", v: null },
      raw: { t: "x", v: new Uint8Array([255, 0, 254]) },
    };
    w.publish("", "q", "m", { headers: HeaderTable.empty.with(odd), userId: "u", priority: 3 });
    const before = w.broker.peek("q", 1)[0]?.content;
    w.reject(w.get("q").deliveryTag, false);
    const after = w.broker.peek("d", 1)[0]?.content;
    const { headers } = after?.properties ?? {};
    expect(headers?.bytes.slice(0, before?.properties.headers?.bytes.length)).toEqual(
      before?.properties.headers?.bytes,
    );
    expect(after?.body).toBe(before?.body);
    expect(after?.properties).toMatchObject({ userId: "u", priority: 3, deliveryMode: 2 });
  });

  it("again in the same queue for the same reason raises the count and keeps the first time, keys and exchange (E5)", () => {
    const w = new World();
    w.queue("d", dlx("q"));
    w.queue("q", dlx("d"));
    w.bind("q", "amq.fanout");
    w.publish("amq.fanout", "first.key", "m");
    const first = Math.floor(w.now / 1000);
    for (let i = 0; i < 3; i++) {
      w.reject(w.get("q").deliveryTag, false);
      w.pass(2000);
      w.reject(w.get("d").deliveryTag, false);
    }
    expect(w.deaths("q")).toEqual(["d rejected 3", "q rejected 3"]);
    const list = w.broker.peek("q", 1)[0]?.content.properties.headers?.get("x-death");
    const entry = list?.t === "A" && list.v[1]?.t === "F" ? list.v[1].v : HeaderTable.empty;
    expect([entry.get("time")?.v, entry.get("exchange")?.v]).toEqual([first, "amq.fanout"]);
  });

  it("with a DLRK keeps the CC header in 4.x and removes it in 3.x, and does not use its keys (B2)", () => {
    for (const compat of ["3.x", "4.x"] as const) {
      const w = new World({ compat });
      for (const name of ["d", "cc", "e"]) w.queue(name);
      w.queue("q", dlx("d"));
      w.publish("", "q", "m", { headers: args({ CC: ["cc"] }) });
      w.get("cc", 1, true);
      w.reject(w.get("q").deliveryTag, false);
      expect(w.waiting("cc")).toEqual([]);
      const cc = w.broker.peek("d", 1)[0]?.content.properties.headers?.has("CC");
      expect(cc).toBe(compat === "4.x");
    }
  });

  it("without a DLRK goes by the first key, CC and BCC again, also at the next death", () => {
    const w = new World();
    w.exchange("x", "direct");
    for (const name of ["k1", "k2", "k3"]) {
      w.queue(name, { "x-dead-letter-exchange": "x" });
      w.bind(name, "x", name);
    }
    w.publish("", "k1", "m", { headers: args({ CC: ["k2"], BCC: ["k3"] }) });
    w.get("k2", 1, true);
    w.get("k3", 1, true);
    w.reject(w.get("k1").deliveryTag, false);
    expect(["k1", "k2", "k3"].map((q) => w.waiting(q).length)).toEqual([1, 1, 1]);
    w.get("k1", 1, true);
    w.get("k3", 1, true);
    w.reject(w.get("k2").deliveryTag, false);
    expect(["k1", "k2", "k3"].map((q) => w.waiting(q).length)).toEqual([1, 1, 1]);
    expect(w.deaths("k3")).toEqual(["k2 rejected 1", "k1 rejected 1"]);
  });
});

describe("x-death sent by a client (rule E6)", () => {
  const sent = (w: World, value: FieldValue): string[] => {
    w.publish("", "q", "m", { headers: HeaderTable.empty.with({ "x-death": value }) });
    w.reject(w.get("q").deliveryTag, false);
    const deaths = w.deaths("d");
    w.get("d", 1, true);
    return deaths;
  };
  const table = (entries: Record<string, FieldValue>): FieldValue => ({
    t: "F",
    v: HeaderTable.empty.with(entries),
  });
  const S = (v: string): FieldValue => ({ t: "S", v });
  const A = (...v: FieldValue[]): FieldValue => ({ t: "A", v });

  it("3.x counts on, keeps entries of other queues behind, merges doubles and starts an entry without count at 1", () => {
    const w = new World({ compat: "3.x" });
    w.queue("d");
    w.queue("q", dlx("d"));
    const own = (count?: FieldValue): FieldValue =>
      table({ queue: S("q"), reason: S("rejected"), ...(count === undefined ? {} : { count }) });
    const other = table({ queue: S("z"), reason: S("expired"), count: { t: "b", v: 2 } });
    expect(sent(w, A(other, own({ t: "I", v: 5 })))).toEqual(["q rejected 6", "z expired 2"]);
    expect(sent(w, A(own({ t: "l", v: 4n }), own({ t: "l", v: 9n })))).toEqual(["q rejected 5"]);
    expect(sent(w, A(own()))).toEqual(["q rejected 1"]);
  });

  it("a client that publishes back what it got counts on in 3.x, over any number of rounds (case A3)", () => {
    const w = new World({ compat: "3.x" });
    w.queue("d");
    w.queue("q", dlx("d"));
    w.send("q", "m");
    for (let round = 1; round <= 3; round++) {
      w.reject(w.get("q").deliveryTag, false);
      expect(w.deaths("d")).toEqual([`q rejected ${round}`]);
      w.publish("", "q", "m", w.get("d", 1, true).content.properties);
    }
  });

  it("junk is treated as absent in both modes: not an array, members that are no tables, a count that is no number", () => {
    const junk: FieldValue[] = [
      S("junk"),
      { t: "I", v: 5 },
      A(S("x")),
      A(table({ queue: S("q"), reason: S("rejected"), count: S("5") })),
      A(table({ queue: S("q"), reason: S("rejected"), count: { t: "I", v: -5 } })),
      A({ t: "V", v: null }, table({})),
    ];
    for (const compat of ["3.x", "4.x"] as const) {
      const w = new World({ compat });
      w.queue("d");
      w.queue("q", dlx("d"));
      for (const value of junk) expect(sent(w, value)).toEqual(["q rejected 1"]);
      w.send("q", "still served");
      expect(text(w.get("q").content)).toBe("still served");
    }
  });

  it("4.x starts anew, and still counts its own after a hop", () => {
    const w = new World();
    w.queue("d", dlx("q"));
    w.queue("q", dlx("d"));
    const value = A(table({ queue: S("q"), reason: S("rejected"), count: { t: "l", v: 5n } }));
    w.publish("", "q", "m", { headers: HeaderTable.empty.with({ "x-death": value }) });
    w.reject(w.get("q").deliveryTag, false);
    w.reject(w.get("d").deliveryTag, false);
    w.reject(w.get("q").deliveryTag, false);
    expect(w.deaths("d")).toEqual(["q rejected 2", "d rejected 1"]);
  });

  it("is capped: the oldest entries go", () => {
    const w = new World({ compat: "3.x" });
    w.queue("d");
    w.queue("q", dlx("d"));
    const many = Array.from({ length: 1000 }, (_, i) =>
      table({ queue: S(`z${i}`), reason: S("rejected"), count: { t: "l", v: 1n } }),
    );
    expect(sent(w, A(...many))).toHaveLength(256);
  });
});

describe("a dead letter that would vanish", () => {
  it("is counted per queue and reason and told with queue, exchange and key: case D1", () => {
    const w = new World();
    w.queue("missing", { "x-dead-letter-exchange": "no.such.exchange" });
    w.exchange("direct-dlx", "direct");
    w.queue("dlq");
    w.bind("dlq", "direct-dlx", "dead");
    w.queue("unbound", { "x-dead-letter-exchange": "direct-dlx" });
    w.exchange("fanout-dlx", "fanout");
    w.queue("empty", { "x-dead-letter-exchange": "fanout-dlx" });
    w.queue("none");
    for (const name of ["missing", "unbound", "empty", "none"]) {
      w.send(name, "m");
      w.reject(w.get(name).deliveryTag, false);
      expect(w.waiting(name)).toEqual([]);
    }
    expect(w.waiting("dlq")).toEqual([]);
    expect(w.lost.map((l) => [l.queue, l.reason, l.why, l.exchange, l.routingKey])).toEqual([
      ["missing", "rejected", "dlx-missing", "no.such.exchange", "missing"],
      ["unbound", "rejected", "unroutable", "direct-dlx", "unbound"],
      ["empty", "rejected", "unroutable", "fanout-dlx", "empty"],
      ["none", "rejected", "no-dlx", "", "none"],
    ]);
    expect(w.lost.map((l) => text(l.content))).toEqual(["m", "m", "m", "m"]);
    expect(w.broker.lost()).toContainEqual({
      queue: "missing",
      reason: "rejected",
      why: "dlx-missing",
      count: 1,
    });
    expect(w.contents.map.size).toBe(0);
    expect(w.journal.rows.size).toBe(0);
  });

  it("by a cycle: only the target that closes it is skipped (rules G1, G3)", () => {
    const w = new World();
    w.exchange("x", "fanout");
    w.queue("q", { "x-dead-letter-exchange": "x", "x-message-ttl": 10 });
    w.queue("other");
    w.bind("q", "x");
    w.bind("other", "x");
    w.send("q", "m");
    w.pass(20);
    expect([w.waiting("q"), w.waiting("other")]).toEqual([[], ["m"]]);
    expect(w.lost.map((l) => [l.reason, l.why])).toEqual([["expired", "cycle"]]);
  });

  it("by a full target that refuses; with reject-publish-dlx it dies again there instead (rule D7)", () => {
    const w = new World();
    w.queue("end");
    w.queue("full", { "x-max-length": 1, "x-overflow": "reject-publish" });
    w.queue("full-dlx", { ...dlx("end"), "x-max-length": 1, "x-overflow": "reject-publish-dlx" });
    w.queue("q1", dlx("full"));
    w.queue("q2", dlx("full-dlx"));
    for (const name of ["q1", "q2"]) {
      w.send(name, "a", "b");
      w.reject(w.get(name).deliveryTag, false);
      w.reject(w.get(name).deliveryTag, false);
    }
    expect(w.lost.map((l) => [l.queue, l.why, text(l.content)])).toEqual([["q1", "refused", "b"]]);
    expect(w.waiting("end")).toEqual(["b"]);
    expect(w.deaths("end")).toEqual(["full-dlx maxlen 1", "q2 rejected 1"]);
  });

  it("purge, delete and x-expires are no deaths and no losses (rule A6)", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d", { "x-expires": 1000 }));
    w.send("q", "a", "b");
    w.do({ type: "queue-purge", channel: 1, queue: "q" });
    w.send("q", "c");
    w.pass(1500);
    expect(w.broker.queueInfo("q")).toBeUndefined();
    w.queue("q", dlx("d"));
    w.send("q", "e");
    w.do({ type: "queue-delete", channel: 1, queue: "q" });
    expect([w.waiting("d"), w.lost]).toEqual([[], []]);
    expect([w.contents.map.size, w.journal.rows.size]).toEqual([0, 0]);
  });
});

describe("cycles without waiting", () => {
  it("queues with TTL 0 that dead-letter in a circle end at once", () => {
    for (const compat of ["3.x", "4.x"] as const) {
      const w = new World({ compat });
      for (let i = 0; i < 5; i++) w.queue(`q${i}`, dlx(`q${(i + 1) % 5}`, { "x-message-ttl": 0 }));
      w.send("q0", "m");
      expect(w.broker.queues().map((q) => q.ready)).toEqual([0, 0, 0, 0, 0]);
      expect(w.lost.map((l) => [l.queue, l.why])).toEqual([["q4", "cycle"]]);
    }
  });

  it("a chain of a thousand queues with length 0 is walked without harm", () => {
    const w = new World();
    for (let i = 0; i < 1000; i++) w.queue(`q${i}`, dlx(`q${i + 1}`, { "x-max-length": 0 }));
    w.queue("q1000");
    w.send("q0", "m");
    expect(w.waiting("q1000")).toEqual(["m"]);
    expect(w.deaths("q1000")).toHaveLength(256);
  });
});

describe("all of one death is one command", () => {
  it("the letter is put, with where it comes from, before its message is gone", () => {
    const w = new World();
    w.queue("d");
    w.queue("q", dlx("d"));
    w.send("q", "m");
    const { deliveryTag, state, queueId } = w.get("q");
    w.reject(deliveryTag, false);
    expect(w.effects.map((e) => e.type)).toEqual(["message-put", "message-gone"]);
    expect(w.effects[0]).toMatchObject({ from: { queueId, seq: state.seq }, state: { died: true, hold: 0 } });
  });

  it("nack multiple over two queues goes queue by queue, oldest first (rule A5)", () => {
    const w = new World();
    w.queue("d");
    w.queue("a", dlx("d"));
    w.queue("b", dlx("d"));
    w.send("a", "1", "3");
    w.send("b", "2", "4");
    for (const name of ["a", "b", "a", "b"]) w.get(name);
    w.nack(0, false);
    expect(w.waiting("d")).toEqual(["1", "3", "2", "4"]);
  });
});

describe("at-least-once dead-lettering (rules I1, I2)", () => {
  const source = { ...quorum(), "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish" };

  it("keeps what finds no place, tries again after 180 s, and loses nothing", () => {
    const w = new World();
    w.queue("q", { ...source, "x-dead-letter-exchange": "later" });
    w.send("q", "m1", "m2");
    w.reject(w.get("q").deliveryTag, false);
    expect(w.broker.queueInfo("q")).toMatchObject({ ready: 1, retained: 1 });
    w.exchange("later", "fanout");
    w.queue("d");
    w.bind("d", "later");
    w.pass(179_000);
    expect(w.waiting("d")).toEqual([]);
    w.pass(1_500);
    expect(w.waiting("d")).toEqual(["m1"]);
    expect(w.deaths("d")).toEqual(["q rejected 1"]);
    expect([w.broker.queueInfo("q")?.retained, w.lost]).toEqual([0, []]);
  });

  it("keeps it also over a restart, and when the target refuses", () => {
    const w = new World();
    w.queue("d", { "x-max-length": 1, "x-overflow": "reject-publish" });
    w.queue("q", { ...source, ...dlx("d") });
    w.send("q", "m1", "m2");
    w.reject(w.get("q").deliveryTag, false);
    w.reject(w.get("q").deliveryTag, false);
    expect([w.waiting("d"), w.broker.queueInfo("q")?.retained]).toEqual([["m1"], 1]);
    w.restart();
    expect([w.waiting("d"), w.broker.queueInfo("q")?.retained]).toEqual([["m1"], 1]);
    w.get("d", 1, true);
    w.pass(181_000);
    expect([w.waiting("d"), w.broker.queueInfo("q")?.retained]).toEqual([["m2"], 0]);
  });

  it("without reject-publish it is at-most-once (I1)", () => {
    const w = new World();
    w.queue("q", {
      ...quorum(),
      "x-dead-letter-strategy": "at-least-once",
      "x-dead-letter-exchange": "nope",
    });
    w.send("q", "m");
    w.reject(w.get("q").deliveryTag, false);
    expect(w.lost.map((l) => l.why)).toEqual(["dlx-missing"]);
  });

  it("a policy that ends it lets what was kept go", () => {
    const w = new World();
    w.queue("q", { ...quorum(), "x-dead-letter-exchange": "nope", "x-overflow": "reject-publish" });
    const policy = {
      name: "p",
      pattern: ".*",
      applyTo: "queues" as const,
      priority: 0,
      definition: { "dead-letter-strategy": "at-least-once" },
    };
    w.do({ type: "policy-set", policy });
    w.send("q", "m");
    w.reject(w.get("q").deliveryTag, false);
    expect(w.broker.queueInfo("q")?.retained).toBe(1);
    w.do({ type: "policy-clear", name: "p" });
    expect(w.broker.queueInfo("q")?.retained).toBe(0);
    expect(w.lost.map((l) => l.why)).toEqual(["dlx-missing"]);
  });
});

describe("failures that travel (rule F7)", () => {
  it("4.x: a crash and a reject show as a redelivery in the next quorum queue; 3.x forgets them", () => {
    for (const [compat, first] of [
      ["3.x", [false, undefined]],
      ["4.x", [true, 2n]],
    ] as const) {
      const w = new World({ compat });
      w.queue("q", { ...quorum(), ...dlx("hop") });
      w.queue("hop", dlx("back", { "x-message-ttl": 10 }));
      w.queue("back", quorum());
      w.send("q", "m");
      w.open(2);
      w.get("q", 2);
      w.crash(2);
      w.reject(w.get("q").deliveryTag, false);
      w.pass(20);
      const got = w.get("back");
      const count = got.content.properties.headers?.get("x-delivery-count")?.v;
      expect([got.redelivered, count]).toEqual(first);
      w.reject(got.deliveryTag, true);
      expect(w.get("back").content.properties.headers?.get("x-delivery-count")?.v).toBe(1n);
    }
  });
});
