import { describe, expect, it } from "vitest";
import { args, quorum, World } from "./world.ts";

// Deliberate departures from RabbitMQ that no other test shows (docs/reference/rabbitmq-differences.md).

describe("quorum queues", () => {
  it("hand out in order whatever the priority", () => {
    const w = new World();
    w.queue("q", quorum());
    w.publish("", "q", "low", { priority: 0 });
    w.publish("", "q", "high", { priority: 9 });
    expect(w.waiting("q")).toEqual(["low", "high"]);
  });
});

describe("single active consumer", () => {
  it("stays when one of higher priority comes", () => {
    const w = new World();
    w.queue("q", quorum({ "x-single-active-consumer": true }));
    w.open(2);
    w.consume("q", 1);
    w.consume("q", 2, { arguments: args({ "x-priority": 5 }) });
    w.send("q", "m");
    expect([w.bodies(1), w.bodies(2)]).toEqual([["m"], []]);
  });
});
