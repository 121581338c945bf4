import { describe, expect, it } from "vitest";
import { HeaderTable } from "../../../src/broker/index.ts";
import { args, dlx, quorum, World } from "./world.ts";

const declare = (w: World, table: HeaderTable | Record<string, unknown>, more: object = {}): string =>
  w.refusal({
    type: "queue-declare",
    channel: 1,
    queue: "q",
    durable: true,
    arguments: table instanceof HeaderTable ? table : args(table),
    ...more,
  });

const prefix = "406 PRECONDITION_FAILED - ";
const on = "for queue 'q' in vhost '/'";

describe("queue arguments are refused in RabbitMQ's words (rule J1)", () => {
  it.each([
    [{ "x-message-ttl": "6000" }, `invalid arg 'x-message-ttl' ${on}: "expected integer, got longstr"`],
    [{ "x-message-ttl": -1 }, `invalid arg 'x-message-ttl' ${on}: {value_negative,-1}`],
    [{ "x-message-ttl": 1.5 }, `invalid arg 'x-message-ttl' ${on}: "expected integer, got double"`],
    [{ "x-message-ttl": true }, `invalid arg 'x-message-ttl' ${on}: "expected integer, got bool"`],
    [{ "x-message-ttl": 315360000001 }, `invalid arg 'x-message-ttl' ${on}: {value_too_large,315360000001}`],
    [{ "x-expires": 0 }, `invalid arg 'x-expires' ${on}: {value_zero,0}`],
    [{ "x-expires": 315360000001 }, "value_too_large"],
    [{ "x-max-length": -1 }, `invalid arg 'x-max-length' ${on}: {value_negative,-1}`],
    [{ "x-max-length-bytes": "9" }, "expected integer, got longstr"],
    [
      { "x-dead-letter-routing-key": "k" },
      `invalid arg 'x-dead-letter-routing-key' ${on}: routing_key_but_no_dlx_defined`,
    ],
    [
      { "x-dead-letter-exchange": 5 },
      "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'",
    ],
    [{ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": 5 }, "{unacceptable_type,signedint}"],
    [{ "x-overflow": "drop-tail" }, `invalid arg 'x-overflow' ${on}: {invalid_overflow,<<"drop-tail">>}`],
    [{ "x-max-priority": 256 }, `invalid arg 'x-max-priority' ${on}: {max_value_exceeded,256}`],
    [{ "x-queue-mode": "lazyy" }, `invalid arg 'x-queue-mode' ${on}: "unsupported queue mode 'lazyy'"`],
    [{ "x-queue-mode": 1 }, "{unacceptable_type,signedint}"],
    [{ "x-queue-type": "bogus" }, "unsupported queue type 'bogus'"],
    [{ "x-queue-type": 1 }, "unsupported queue type"],
    [{ "x-delivery-limit": 3 }, `invalid arg 'x-delivery-limit' ${on} of queue type rabbit_classic_queue`],
    [
      { "x-dead-letter-exchange": "", "x-dead-letter-strategy": "at-least-once" },
      "of queue type rabbit_classic_queue",
    ],
    [quorum({ "x-max-priority": 5 }), `invalid arg 'x-max-priority' ${on} of queue type rabbit_quorum_queue`],
    [quorum({ "x-queue-mode": "lazy" }), "of queue type rabbit_quorum_queue"],
    [quorum({ "x-dead-letter-strategy": "twice" }), 'invalid_dlx_strategy,<<"twice">>'],
    [quorum({ "x-delivery-limit": -2 }), "value_negative,-2"],
    [quorum({ "x-delivery-limit": "3" }), "expected integer, got longstr"],
    [{ "x-single-active-consumer": "yes" }, "{unacceptable_type,longstr}"],
    [{ "x-dlo-isolate-suspects": 1 }, "{unacceptable_type,signedint}"],
  ])("%j", (table, words) => {
    const w = new World();
    const said = declare(w, table);
    expect(said.startsWith(prefix)).toBe(true);
    expect(said).toContain(words);
    expect(w.broker.queueInfo("q")).toBeUndefined();
    expect(declare(w, {})).toBe("accepted");
  });

  it("a quorum queue is durable, not exclusive, not auto-delete", () => {
    const w = new World();
    expect(declare(w, quorum(), { exclusive: true })).toBe(
      `${prefix}invalid property 'exclusive-owner' ${on}`,
    );
    expect(declare(w, quorum(), { durable: false })).toBe(`${prefix}invalid property 'non-durable' ${on}`);
    expect(declare(w, quorum(), { autoDelete: true })).toBe(`${prefix}invalid property 'auto-delete' ${on}`);
  });

  it("takes what RabbitMQ takes: TTL 0, ten years, length 0, empty DLX and key, unknown arguments, no delivery limit", () => {
    for (const table of [
      { "x-message-ttl": 0 },
      { "x-message-ttl": 315360000000 },
      { "x-max-length": 0 },
      { "x-dead-letter-exchange": "nope" },
      { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "" },
      { "x-foo": "anything" },
      quorum({ "x-delivery-limit": -1 }),
      quorum({ "x-overflow": "reject-publish-dlx" }),
    ]) {
      expect(declare(new World(), table)).toBe("accepted");
    }
  });
});

describe("declaring a queue again (rule J2)", () => {
  it("says which argument differs, and what it is: case J1", () => {
    const w = new World();
    w.queue("q");
    expect(declare(w, { "x-dead-letter-exchange": "dlx" })).toBe(
      `${prefix}inequivalent arg 'x-dead-letter-exchange' ${on}: received the value 'dlx' of type 'longstr' but current is none`,
    );
    const other = new World();
    other.queue("q", { "x-message-ttl": 1000 });
    expect(declare(other, { "x-message-ttl": 2000 })).toBe(
      `${prefix}inequivalent arg 'x-message-ttl' ${on}: received the value '2000' of type 'signedint' but current is the value '1000' of type 'signedint'`,
    );
    expect(declare(other, {})).toContain("received none but current is the value '1000' of type 'signedint'");
    // Equivalence comes before validity.
    expect(declare(other, { "x-message-ttl": -1 })).toContain("inequivalent arg");
  });

  it("takes any integer width, an explicit classic type and unknown extra arguments for the same", () => {
    const w = new World();
    w.queue("q", { "x-message-ttl": 1000 });
    const wide = HeaderTable.empty.with({
      "x-message-ttl": { t: "l", v: 1000n },
      "x-queue-type": { t: "S", v: "classic" },
      "x-whatever": { t: "t", v: true },
    });
    expect(declare(w, wide)).toBe("accepted");
    expect(declare(w, { "x-message-ttl": 1000, "x-queue-type": "quorum" })).toContain(
      "inequivalent arg 'x-queue-type'",
    );
  });

  it("compares flags; passive compares nothing", () => {
    const w = new World();
    w.queue("q");
    expect(declare(w, {}, { durable: false })).toBe(
      `${prefix}inequivalent arg 'durable' ${on}: received 'false' but current is 'true'`,
    );
    expect(declare(w, {}, { autoDelete: true })).toContain("inequivalent arg 'auto_delete'");
    expect(declare(w, { "x-message-ttl": 1 }, { passive: true, durable: false })).toBe("accepted");
    expect(w.refusal({ type: "queue-declare", channel: 1, queue: "z", passive: true })).toBe(
      "404 NOT_FOUND - no queue 'z' in vhost '/'",
    );
  });

  it("an exclusive queue belongs to its connection (405), and goes with it", () => {
    const w = new World();
    w.queue("q", {}, { exclusive: true, durable: false });
    w.open(2);
    const locked = "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'.";
    const from2 = [
      { type: "queue-declare", channel: 2, queue: "q", exclusive: true },
      { type: "queue-declare", channel: 2, queue: "q", passive: true },
      { type: "consume", channel: 2, queue: "q", consumerTag: "" },
      { type: "get", channel: 2, queue: "q" },
      { type: "queue-purge", channel: 2, queue: "q" },
      { type: "queue-delete", channel: 2, queue: "q" },
      { type: "queue-bind", channel: 2, queue: "q", exchange: "amq.fanout", routingKey: "" },
    ] as const;
    for (const command of from2) expect(w.refusal(command)).toContain(locked);
    expect(w.refusal({ type: "queue-declare", channel: 1, queue: "q" })).toContain("405 RESOURCE_LOCKED");
    expect(declare(w, {}, { exclusive: true })).toBe("accepted");
    w.crash(1);
    expect(w.broker.queues()).toEqual([]);
  });

  it("reserved names are refused; the broker and the host may name queues amq.gen-*", () => {
    const w = new World();
    expect(w.refusal({ type: "queue-declare", channel: 1, queue: "amq.mine" })).toBe(
      "403 ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    );
    const named = w.do({ type: "queue-declare", channel: 1, queue: "", generatedName: "amq.gen-Xyz" });
    expect(named).toMatchObject({ queue: "amq.gen-Xyz" });
    const counted = w.do({ type: "queue-declare", channel: 1, queue: "" });
    expect(counted).toMatchObject({ queue: "amq.gen-1" });
    // An empty name is the queue declared last, and its name the empty key.
    w.do({ type: "queue-bind", channel: 1, queue: "", exchange: "amq.direct", routingKey: "" });
    w.publish("amq.direct", "amq.gen-1", "m");
    expect(w.do({ type: "queue-purge", channel: 1, queue: "" })).toEqual({ type: "count", messageCount: 1 });
    w.open(2);
    expect(w.refusal({ type: "queue-purge", channel: 2, queue: "" })).toBe(
      "404 NOT_FOUND - no previously declared queue",
    );
  });
});

describe("a message is refused before anything happens", () => {
  it.each([
    ["898486.7806", "invalid expiration '898486.7806': {leftover_string,\".7806\"}"],
    ["later", "invalid expiration 'later': no_integer"],
    ["-1", "invalid expiration '-1': {value_negative,-1}"],
    ["", "invalid expiration '': no_integer"],
    [" 5000", "invalid expiration ' 5000': no_integer"],
    ["100ms", '{leftover_string,"ms"}'],
    ["1e3", '{leftover_string,"e3"}'],
    ["315360000001", "{value_too_large,315360000001}"],
  ])("expiration %j: case J1, rule C4", (expiration, words) => {
    const w = new World();
    w.queue("q");
    const publish = { type: "publish", channel: 1, exchange: "", body: new Uint8Array(1) } as const;
    const said = w.refusal({ ...publish, routingKey: "q", properties: { expiration } });
    expect(said).toBe(
      `${prefix}${words.startsWith("invalid") ? words : `invalid expiration '${expiration}': ${words}`}`,
    );
    expect(w.refusal({ ...publish, routingKey: "nowhere", properties: { expiration } })).toContain(words);
    expect(w.waiting("q")).toEqual([]);
  });

  it.each(["0", "00050", "+50", "4294967296", "315360000000"])("expiration %j is fine", (expiration) => {
    const w = new World();
    w.queue("q");
    w.publish("", "q", "m", { expiration });
  });

  it("a body over the limit: 406 with both sizes", () => {
    const w = new World({ limits: { maxMessageBytes: 10 } });
    w.queue("q");
    const body = new Uint8Array(11);
    expect(
      w.refusal({ type: "publish", channel: 1, exchange: "", routingKey: "q", properties: {}, body }),
    ).toBe(`${prefix}message size 11 is larger than configured max size 10`);
  });

  it("a delay that is negative, no number, or over ten years", () => {
    const w = new World();
    w.queue("q");
    const publish = { type: "publish", channel: 1, exchange: "", routingKey: "q", properties: {} } as const;
    for (const delayMs of [-1, Number.NaN, Infinity, 315360000001]) {
      expect(w.refusal({ ...publish, body: new Uint8Array(1), delayMs })).toContain(
        `406 PRECONDITION_FAILED - invalid delay '${delayMs}'`,
      );
    }
    expect(w.broker.queueInfo("q")).toMatchObject({ ready: 0, delayed: 0 });
  });
});

describe("commands on things that are not there", () => {
  it("name the object, and the broker goes on", () => {
    const w = new World();
    w.queue("q", dlx("q"));
    expect(w.refusal({ type: "get", channel: 1, queue: "x" })).toBe(
      "404 NOT_FOUND - no queue 'x' in vhost '/'",
    );
    expect(w.refusal({ type: "consume", channel: 1, queue: "x", consumerTag: "" })).toContain("no queue 'x'");
    expect(w.refusal({ type: "get", channel: 99, queue: "q" })).toBe(
      "504 CHANNEL_ERROR - channel 99 is not open",
    );
    expect(w.refusal({ type: "ack", channel: 1, deliveryTag: 7 })).toBe(
      "406 PRECONDITION_FAILED - unknown delivery tag 7",
    );
    expect(w.refusal({ type: "recover", channel: 1, requeue: false })).toBe(
      "540 NOT_IMPLEMENTED - requeue=false",
    );
    expect(w.do({ type: "queue-delete", channel: 1, queue: "x" })).toEqual({
      type: "count",
      messageCount: 0,
    });
    w.send("q", "m");
    expect(w.refusal({ type: "queue-delete", channel: 1, queue: "q", ifEmpty: true })).toContain(
      "406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
    );
    w.consume("q");
    expect(w.refusal({ type: "queue-delete", channel: 1, queue: "q", ifUnused: true })).toContain(
      "queue 'q' in vhost '/' in use",
    );
  });
});
