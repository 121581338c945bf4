import { describe, expect, it } from "vitest";
import { AmqpError } from "../../../src/broker/index.ts";
import { type ChannelMessage, LOST_LETTERS, openBroker } from "../../../src/index.ts";

const text = (content: string): Buffer => Buffer.from(content);
const content = (message: ChannelMessage | false | null): string | null =>
  message ? message.content.toString() : null;

describe("a channel in the broker's own process", () => {
  it("publishes through an exchange and hands out messages in amqplib's shape", async () => {
    await using broker = openBroker(":memory:");
    const channel = await broker.createConfirmChannel();
    await channel.assertExchange("events", "topic");
    expect(await channel.assertQueue("q", { maxPriority: 3 })).toEqual({
      queue: "q",
      messageCount: 0,
      consumerCount: 0,
    });
    await channel.bindQueue("q", "events", "order.*");
    channel.publish("events", "order.new", text("hello"), {
      persistent: true,
      contentType: "text/plain",
      headers: { tenant: "acme" },
      messageId: "m1",
    });
    await channel.waitForConfirms();
    const received = new Promise<ChannelMessage | null>((done) => channel.consume("q", done));
    const message = (await received) as ChannelMessage;
    expect(content(message)).toBe("hello");
    expect(message.fields).toMatchObject({ exchange: "events", routingKey: "order.new", redelivered: false });
    expect(message.properties).toMatchObject({
      messageId: "m1",
      deliveryMode: 2,
      headers: { tenant: "acme" },
    });
    channel.ack(message);
    expect((await channel.checkQueue("q")).messageCount).toBe(0);
  });

  it("dead-letters what is rejected, with x-death", async () => {
    await using broker = openBroker(":memory:");
    const channel = await broker.createChannel();
    await channel.assertQueue("dlq");
    await channel.assertQueue("q", { deadLetterExchange: "", deadLetterRoutingKey: "dlq" });
    channel.sendToQueue("q", text("x"), { persistent: true });
    channel.reject((await channel.get("q")) as ChannelMessage, false);
    const dead = (await channel.get("dlq")) as ChannelMessage;
    expect(dead.properties.headers["x-death"]).toMatchObject([{ queue: "q", reason: "rejected" }]);
  });

  it("fails alone: a refusal rejects its promise, closes its channel, and touches nothing else", async () => {
    await using broker = openBroker(":memory:");
    const [bad, good] = [await broker.createChannel(), await broker.createChannel()];
    await good.assertQueue("q");
    const closed = new Promise((done) => bad.once("close", done));
    await expect(bad.checkQueue("nowhere")).rejects.toMatchObject({ code: 404 });
    await closed;
    expect(() => bad.sendToQueue("q", text("x"))).toThrow(/channel is failed/);
    const other = await broker.createChannel();
    const errors: unknown[] = [];
    other.on("error", (error) => errors.push(error));
    other.sendToQueue("q", text("x"), { expiration: "abc" });
    expect(errors[0]).toBeInstanceOf(AmqpError);
    expect((errors[0] as Error).message).toContain("invalid expiration 'abc'");
    good.sendToQueue("q", text("fine"));
    expect(content(await good.get("q", { noAck: true }))).toBe("fine");
  });

  it("returns what is mandatory and goes nowhere, and refuses what a full queue refuses", async () => {
    await using broker = openBroker(":memory:");
    const channel = await broker.createConfirmChannel();
    const returned = new Promise<ChannelMessage>((done) => channel.once("return", done));
    channel.publish("", "nowhere", text("x"), { mandatory: true });
    expect((await returned).fields).toMatchObject({ replyCode: 312, replyText: "NO_ROUTE" });
    await channel.assertQueue("full", { maxLength: 1, arguments: { "x-overflow": "reject-publish" } });
    const errors: unknown[] = [];
    for (let i = 0; i < 2; i++)
      channel.sendToQueue("full", text("x"), { persistent: true }, (error) => errors.push(error));
    await expect(channel.waitForConfirms()).rejects.toMatchObject({ code: "REFUSED" });
    expect(errors).toMatchObject([null, { code: "REFUSED" }]);
    await expect(broker.queue("full").send("x")).rejects.toMatchObject({ code: "REFUSED" });
  });

  it("tells a consumer with null that its queue is gone", async () => {
    await using broker = openBroker(":memory:");
    const channel = await broker.createChannel();
    await channel.assertQueue("q");
    const ended = new Promise((done) => channel.consume("q", done));
    await channel.deleteQueue("q");
    expect(await ended).toBe(null);
  });

  it("keeps a letter that has nowhere to go, counts it and says so once", async () => {
    const warned: string[] = [];
    const logger = { info: () => {}, warn: (message: string) => void warned.push(message), error: () => {} };
    await using broker = openBroker({ file: ":memory:", logger });
    const channel = await broker.createChannel();
    await channel.assertQueue("q");
    for (const id of ["a", "b"]) {
      channel.sendToQueue("q", text(id), { persistent: true, messageId: id });
      channel.reject((await channel.get("q")) as ChannelMessage, false);
    }
    expect(broker.lost()).toMatchObject([{ queue: "q", reason: "rejected", why: "no-dlx", count: 2 }]);
    expect(warned.filter((line) => line.includes("has no place"))).toHaveLength(1);
    const kept = broker.deadLetters(LOST_LETTERS).list();
    expect(kept.map(({ id, raw, reason }) => [id, Buffer.from(raw ?? []).toString(), reason])).toEqual([
      ["a", "a", "rejected"],
      ["b", "b", "rejected"],
    ]);
    await broker.letters.replay(broker.letters.page({}, 9).map((one) => one.letterId));
    expect(content(await channel.get("q"))).toBe("a");
  });
});
