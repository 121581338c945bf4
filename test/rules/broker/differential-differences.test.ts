import { expect, it } from "vitest";
import { Broker, type Command, HeaderTable } from "../../../src/broker/index.ts";

// What the differential test found and the machine keeps doing in its own way, each as the shrunk script that showed
// it. Listed in docs/reference/rabbitmq-differences.md.

it("a dead channel's messages return in the order of delivery, whether consumed or got (3.10: got ones first)", () => {
  const broker = new Broker({ compat: "3.x" });
  const apply = (command: Command) => broker.apply(command, 1_000);
  const publish = (body: string) =>
    apply({
      type: "publish",
      channel: 1,
      exchange: "",
      routingKey: "q",
      properties: { deliveryMode: 2 },
      body: Uint8Array.from(body, (c) => c.charCodeAt(0)),
    });
  for (const channel of [1, 2]) apply({ type: "open-channel", connection: 1, channel });
  const quorum = HeaderTable.fromObject({ "x-queue-type": "quorum" });
  apply({ type: "queue-declare", channel: 1, queue: "q", durable: true, arguments: quorum });
  publish("consumed");
  apply({ type: "qos", channel: 2, prefetchCount: 1, global: false });
  apply({ type: "consume", channel: 2, queue: "q", consumerTag: "c" });
  publish("got");
  apply({ type: "get", channel: 2, queue: "q" });
  apply({ type: "close-channel", channel: 2 });
  const left = [1, 2].map(() => {
    const { reply } = apply({ type: "get", channel: 1, queue: "q", noAck: true });
    return reply.type === "got" ? String.fromCharCode(...reply.content.body) : "";
  });
  expect(left).toEqual(["consumed", "got"]);
});
