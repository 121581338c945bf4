import { describe, expect, it } from "vitest";
import { text, World } from "./world.ts";

const REPLY_TO = "amq.rabbitmq.reply-to";

describe("direct reply-to", () => {
  it("takes an answer straight to the channel that asked, and leaves nothing behind", () => {
    const w = new World();
    w.queue("requests");
    w.open(2);
    const tag = w.consume(REPLY_TO, 1, { noAck: true });
    w.publish("", "requests", "2 + 2", { replyTo: REPLY_TO });
    const { replyTo } = w.get("requests", 2).content.properties;
    expect(replyTo).toMatch(/^amq\.rabbitmq\.reply-to\..+/);
    const asked = w.do({ type: "queue-declare", channel: 2, queue: replyTo as string, passive: true });
    expect(asked).toMatchObject({ consumerCount: 1 });
    w.do({
      type: "publish",
      channel: 2,
      exchange: "",
      routingKey: replyTo as string,
      properties: {},
      body: new TextEncoder().encode("4"),
    });
    expect(w.deliveries.map((d) => [d.channel, d.consumerTag, d.deliveryTag, text(d.content)])).toEqual([
      [1, tag, 1, "4"],
    ]);
    expect([w.journal.rows.size, w.contents.map.size]).toEqual([1, 1]);
  });

  it("an answer to a channel that is gone or has cancelled is unroutable", () => {
    const w = new World();
    w.queue("requests");
    w.open(2);
    w.open(3);
    const tag = w.consume(REPLY_TO, 2, { noAck: true });
    const ask = {
      type: "publish",
      channel: 2,
      exchange: "",
      routingKey: "requests",
      body: new Uint8Array(0),
    } as const;
    w.do({ ...ask, properties: { replyTo: REPLY_TO } });
    const name = w.get("requests").content.properties.replyTo as string;
    w.do({ type: "cancel", channel: 2, consumerTag: tag });
    w.publish("", name, "late", {}, { mandatory: true });
    expect(w.effects).toMatchObject([{ type: "return", code: 312 }]);
    expect(w.refusal({ type: "queue-declare", channel: 3, queue: name, passive: true })).toContain(
      "404 NOT_FOUND",
    );
    expect(w.refusal({ ...ask, properties: { replyTo: REPLY_TO } })).toBe(
      "406 PRECONDITION_FAILED - fast reply consumer does not exist",
    );
    w.consume(REPLY_TO, 2, { noAck: true });
    w.crash(2);
    expect(w.refusal({ type: "queue-declare", channel: 3, queue: name, passive: true })).toContain(
      "404 NOT_FOUND",
    );
  });

  it("is consumed once per channel, without acks", () => {
    const w = new World();
    const consume = { type: "consume", channel: 1, queue: REPLY_TO, consumerTag: "" } as const;
    expect(w.refusal(consume)).toBe("406 PRECONDITION_FAILED - reply consumer cannot acknowledge");
    expect(w.refusal({ ...consume, noAck: true })).toBe("accepted");
    expect(w.refusal({ ...consume, noAck: true })).toBe(
      "406 PRECONDITION_FAILED - reply consumer already set",
    );
  });
});
