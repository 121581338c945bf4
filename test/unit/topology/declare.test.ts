import { describe, expect, it } from "vitest";
import {
  type BindingModel,
  type BrokerView,
  builtinExchanges,
  type ExchangeModel,
  examineQueueDeclaration,
  lettersOf,
  queueModel,
  refusesToStart,
} from "../../../src/topology/index.ts";

const exchange = (name: string, type: string): ExchangeModel => ({
  name,
  type,
  durable: true,
  autoDelete: false,
  internal: false,
  arguments: {},
  builtin: false,
});
const bind = (source: string, destination: string, routingKey = ""): BindingModel => ({
  source,
  destination,
  destinationType: "queue",
  routingKey,
});
const view = (dlx: string, bindings: BindingModel[] = [bind("dlx", "dlq")]): BrokerView => ({
  vhost: {
    name: "/",
    queues: [
      queueModel({ name: "work", arguments: { "x-dead-letter-exchange": dlx } }),
      queueModel({ name: "dlq" }),
      queueModel({ name: "bare" }),
    ],
    exchanges: [...builtinExchanges(), exchange("dlx", "fanout")],
    bindings,
    policies: [],
    operatorPolicies: [],
  },
  brokerVersion: "4.1.0",
});

describe("lettersOf", () => {
  it("follows one queue's letters, and is empty for a queue that is not there", () => {
    expect(lettersOf(view("dlx"), "work")).toEqual([
      { reason: "rejected", key: "work", ends: "queue", at: "dlq", path: ["dlq"] },
    ]);
    expect(lettersOf(view("dlx"), "absent")).toEqual([]);
  });
});

describe("refusesToStart", () => {
  it("names what would vanish, and lets a queue start whose letters end in a queue", () => {
    expect(refusesToStart(view("dlx"), "work")).toBeUndefined();
    expect(refusesToStart(view("gone"), "work")?.message).toBe(
      "rejected messages of queue 'work' vanish at 'gone' (dlx-not-declared), key 'work'",
    );
    expect(refusesToStart(view("dlx", []), "work")?.message).toContain("unroutable");
    expect(refusesToStart(view("dlx"), "bare")?.message).toContain("no dead-letter exchange");
    expect(refusesToStart(view("dlx", [bind("dlx", "work")]), "work")?.message).toContain("for ever");
  });
});

describe("examineQueueDeclaration", () => {
  it("speaks of the queue that is declared, its exchange and the queues its letters reach, not of others", () => {
    const declared = queueModel({
      name: "new",
      arguments: { "x-dead-letter-exchange": "dlx", "x-max-retries": 3 },
    });
    const { letters, findings } = examineQueueDeclaration(view("gone"), declared);
    expect(letters.map((letter) => [letter.ends, letter.at])).toEqual([["queue", "dlq"]]);
    expect(findings.map((finding) => `${finding.code} ${finding.object}`)).toEqual([
      "argument-unknown new",
      "classic-no-delivery-limit work",
    ]);
  });

  it("judges a queue that is declared again by its new arguments", () => {
    const again = queueModel({ name: "work", arguments: { "x-dead-letter-exchange": "nowhere" } });
    const { findings } = examineQueueDeclaration(view("dlx"), again);
    expect(findings.some((finding) => finding.code === "dlx-not-declared" && finding.object === "work")).toBe(
      true,
    );
  });
});
