import { describe, expect, test } from "vitest";
import { type Arrival, judge } from "../../../src/engines/rabbitmq/arrivals.ts";
import { explain, explainClash } from "../../../src/engines/rabbitmq/faults.ts";
import {
  applicationHeaders,
  CUT_MARK,
  cutBytes,
  envelope,
  hopHeaders,
  readDeath,
} from "../../../src/engines/rabbitmq/headers.ts";
import { connectRabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import { factsOf } from "../../../src/engines/rabbitmq/management.ts";
import { ladder, planTopology, rungFor } from "../../../src/engines/rabbitmq/topology.ts";

const fresh: Arrival = {
  lane: "work",
  redelivered: false,
  brokerCount: undefined,
  own: 0,
  dueAt: undefined,
  now: 1_000,
  known: undefined,
  ledger: undefined,
  isolates: true,
};
const known = { counted: 2, forgiven: 0, firstAt: 1 };

describe("a delivery is judged by what is known of it", () => {
  test.each<[string, Partial<Arrival>, unknown]>([
    ["a first delivery is run", {}, { take: "run", receiveCount: 1, suspect: false }],
    ["our own header is the base", { own: 2 }, { take: "run", receiveCount: 3, suspect: false }],
    [
      "a broker's count on a first delivery is a client's, and not believed",
      { brokerCount: 7 },
      { take: "run", receiveCount: 1 },
    ],
    [
      "redelivered without a known cause is a suspect",
      { redelivered: true, brokerCount: 1 },
      { take: "isolate", counted: 1 },
    ],
    [
      "on a classic queue too, where nobody counts",
      { redelivered: true, own: 1 },
      { take: "isolate", counted: 2 },
    ],
    [
      "without a suspects queue it runs where it is",
      { redelivered: true, brokerCount: 2, isolates: false },
      { take: "run", receiveCount: 3, suspect: true },
    ],
    [
      "what we gave back ourselves is no suspect",
      { redelivered: true, brokerCount: 2, known },
      { take: "run", receiveCount: 3, suspect: false },
    ],
    [
      "a return before any start is taken off",
      { redelivered: true, brokerCount: 3, known: { counted: 0, forgiven: 3, firstAt: 1 } },
      { take: "run", receiveCount: 1 },
    ],
    [
      "a classic queue's returns are counted by us",
      { redelivered: true, known },
      { take: "run", receiveCount: 3 },
    ],
    [
      "a consumer that was given up is like one that died",
      { redelivered: true, brokerCount: 1, known: { ...known, crashed: true } },
      { take: "isolate", counted: 1 },
    ],
    [
      "among the suspects each return is a start",
      { lane: "suspects", redelivered: true, own: 1, brokerCount: 1 },
      { take: "run", receiveCount: 3, suspect: true },
    ],
    ["too early goes back for the rest", { dueAt: 5_000, own: 1 }, { take: "later", delayMs: 4_000 }],
    ["nearly due is due", { dueAt: 1_100, own: 1 }, { take: "run", receiveCount: 2 }],
    [
      "a ledger that knows of no start makes no suspect",
      { redelivered: true, brokerCount: 5, ledger: { counted: 0, open: false } },
      { take: "run", receiveCount: 1, suspect: false },
    ],
    [
      "a ledger's open start does",
      { redelivered: true, ledger: { counted: 2, open: true } },
      { take: "isolate", counted: 2 },
    ],
    [
      "unless our own connection was lost",
      { redelivered: true, ledger: { counted: 2, open: true }, known },
      { take: "run", receiveCount: 3, suspect: false },
    ],
    [
      "a ledger younger than the message believes its header",
      { own: 4, ledger: { counted: 1, open: false } },
      { take: "run", receiveCount: 5 },
    ],
  ])("%s", (_name, over, verdict) => {
    expect(judge({ ...fresh, ...over })).toMatchObject(verdict as object);
  });
});

describe("headers", () => {
  test("a hop takes deaths and our own headers off and puts CC and BCC aside; the view has them back", () => {
    const given = {
      a: 1,
      CC: ["x"],
      BCC: ["y"],
      "x-death": [{}],
      "x-first-death-queue": "q",
      "x-last-death-reason": "r",
      "x-delivery-count": 3,
      "x-acquired-count": 1,
      "x-custom": "kept",
      "x-dlo-count": 9,
      gone: undefined,
    };
    const hop = hopHeaders(given, { "x-dlo-count": 1, "x-dlo-error": undefined });
    expect(hop).toEqual({
      a: 1,
      "x-custom": "kept",
      "x-dlo-cc": ["x"],
      "x-dlo-bcc": ["y"],
      "x-dlo-count": 1,
    });
    expect(applicationHeaders(hop)).toEqual({ a: 1, "x-custom": "kept", CC: ["x"], BCC: ["y"] });
  });
  test("a foreign message's deaths are shown, its count is not", () => {
    expect(applicationHeaders({ "x-death": [1], "x-delivery-count": 0 })).toEqual({ "x-death": [1] });
    expect(applicationHeaders(undefined)).toBeUndefined();
  });
  test("a cut never splits a character and shows", () => {
    for (let limit = 20; limit < 40; limit++) {
      const cut = cutBytes("ä🎌ü".repeat(20), limit);
      expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(limit);
      expect(cut.endsWith(CUT_MARK)).toBe(true);
      expect(cut).not.toContain("\ufffd");
    }
    expect(cutBytes("short", 5)).toBe("short");
  });
  test("an envelope is read back as it was written", () => {
    const entry = {
      id: "a",
      body: 1,
      reason: "exhausted" as const,
      error: "Error: no",
      attempts: 3,
      firstAttemptAt: 5,
      failedAt: 9,
      generation: 2,
      sourceQueue: "q",
      lives: 2,
      history: [{ n: 1, startedAt: 5, outcome: "failed" as const }],
    };
    const { id: _id, body: _body, ...rest } = entry;
    expect(readDeath(envelope(entry), 0)).toEqual(rest);
  });
  test("the broker's own death is a letter too, and junk in its place is none", () => {
    const death = { reason: "expired", queue: "q", count: 1, time: { "!": "timestamp", value: 17 } };
    expect(readDeath({ "x-death": [death] }, 0)).toMatchObject({
      reason: "expired",
      sourceQueue: "q",
      failedAt: 17_000,
      error: null,
    });
    for (const junk of [null, "x", [], ["x"], [{}], [{ reason: 5 }]])
      expect(readDeath({ "x-death": junk }, 0)).toBeNull();
    expect(
      readDeath({ "x-dlo-reason": "poison", "x-dlo-attempts": "3", "x-dlo-history": "{" }, 7),
    ).toMatchObject({ attempts: 0, failedAt: 7 });
  });
});

describe("refusals in words", () => {
  test.each([
    [
      "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '5' of type 'signedint' but current is the value '7' of type 'long'",
      "queue 'q' exists with x-message-ttl 7, asked for 5",
    ],
    [
      "inequivalent arg 'x-delivery-limit' for queue 'a b' in vhost 'v': received none but current is the value '20' of type 'signedint'",
      "queue 'a b' exists with x-delivery-limit 20, asked for none",
    ],
    [
      "inequivalent arg 'type' for exchange 'e' in vhost '/': received 'topic' but current is 'fanout'",
      "exchange 'e' exists with type fanout, asked for topic",
    ],
  ])("%s", (text, words) => {
    expect(explainClash(text)).toContain(words);
    expect(explain(Object.assign(new Error(text), { code: 406 }), "declaring")).toMatchObject({
      code: "CONFLICT",
    });
  });
  test("codes become ours", () => {
    const at = (code: number) =>
      explain(
        Object.assign(new Error(`Operation failed: QueueDeclare; ${code} (X) with message "why"`), { code }),
        "doing",
      ).code;
    expect([404, 403, 405, 540, 311].map(at)).toEqual([
      "QUEUE_NOT_FOUND",
      "REFUSED",
      "REFUSED",
      "UNSUPPORTED",
      "BODY_TOO_LARGE",
    ]);
    expect(explain(new Error("connect ECONNREFUSED 127.0.0.1:1"), "connecting")).toMatchObject({
      code: "NOT_CONNECTED",
    });
  });
});

describe("topology", () => {
  test("before 4.0 no limit is set, from 4.0 it is lifted where letters lie", () => {
    const limits = (version: string) =>
      planTopology({ queue: "q", delays: [5] }, version).plans.map((plan) => [
        plan.queue,
        plan.arguments["x-delivery-limit"],
      ]);
    expect(limits("3.13.7")).toEqual([
      ["q.parking", undefined],
      ["q.dead", undefined],
      ["q", undefined],
      ["q.suspects", 1000],
      ["q.retry.5", undefined],
    ]);
    expect(limits("4.1.0")).toEqual([
      ["q.parking", -1],
      ["q.dead", -1],
      ["q", -1],
      ["q.suspects", 1000],
      ["q.retry.5", undefined],
    ]);
  });
  test("no queue that lives by a limit or a TTL leads back by TTL without an end", () => {
    const { plans } = planTopology({ queue: "q" }, "3.10.8");
    const to = new Map(plans.map((plan) => [plan.queue, plan.arguments["x-dead-letter-routing-key"]]));
    for (const plan of plans)
      if (plan.arguments["x-message-ttl"] === undefined)
        expect(["q.parking", undefined]).toContain(to.get(plan.queue));
    expect(to.get("q.parking")).toBeUndefined();
    expect(to.get("q.dead")).toBeUndefined();
  });
  test("the ladder must climb, and a delay takes the first rung that is long enough", () => {
    const rungs = ladder("q", [100, 500]);
    expect([1, 100, 101, 500, 900].map((ms) => rungFor(rungs, ms)?.delayMs)).toEqual([
      100, 100, 500, 500, 500,
    ]);
    expect(rungFor([], 5)).toBeUndefined();
    for (const delays of [[0], [5, 5], [5, 4], [1.5], [-1], [Number.NaN], [315_360_000_001]])
      expect(() => ladder("q", delays)).toThrow(/retry delay/);
  });
  test("the limit in force is the lowest of argument and policy, or the version's own", () => {
    const limit = (args: object, policy: object, version: string, type = "quorum") =>
      factsOf({ type, arguments: args, effective_policy_definition: policy }, version).deliveryLimit;
    expect(limit({}, {}, "3.10.8")).toBeNull();
    expect(limit({}, {}, "4.1.0")).toBe(20);
    expect(limit({ "x-delivery-limit": -1 }, {}, "4.1.0")).toBeNull();
    expect(limit({ "x-delivery-limit": 9 }, { "delivery-limit": 4 }, "3.12.0")).toBe(4);
    expect(limit({ "x-delivery-limit": 9 }, {}, "4.0.0", "classic")).toBeNull();
  });
});

test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY, 2_592_000_000, "10s"])(
  "a confirm time-out of %j, which no timer holds, is refused by name before anything is connected",
  async (confirmTimeoutMs) => {
    await expect(
      connectRabbitMQ({ url: "amqp://127.0.0.1:1", confirmTimeoutMs: confirmTimeoutMs as number }),
    ).rejects.toMatchObject({ code: "BAD_ARGUMENT", message: /^confirmTimeoutMs is .*from 1 to 2147483647/ });
  },
);
