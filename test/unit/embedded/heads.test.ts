import { expect, it } from "vitest";
import { type Content, HeaderTable } from "../../../src/broker/index.ts";
import { decodeHead, encodeHead } from "../../../src/engines/embedded/content.ts";

const body = Buffer.from("x");
const content = (exchange: string, routingKey: string, more: Partial<Content> = {}): Content => ({
  exchange,
  routingKey,
  properties: { deliveryMode: 2, messageId: "m" },
  body,
  ...more,
});

it("every head comes back as it was written, whichever was read before it", () => {
  // Of the same length as the one before, of another, of the same letters cut elsewhere, with nothing at all.
  const all = [
    content("orders", "eu.paid"),
    content("orders", "eu.open"),
    content("orderse", "u.paid"),
    content("orders", "eu.paid"),
    content("", "ordersXeu.paid"),
    content("", ""),
    content("", "a"),
    content("", ""),
    content("größe", "日本"),
    content("orders", "eu.paid", { keys: { cc: ["a"], bcc: [] } }),
    content("orders", "eu.paid", { properties: { headers: HeaderTable.fromObject({ n: 1 }) } }),
  ];
  const heads = all.map((one) => Buffer.from(encodeHead(one)));
  for (const first of heads.keys()) {
    for (const second of heads.keys()) {
      decodeHead(heads[first] as Buffer, body);
      const read = decodeHead(heads[second] as Buffer, body);
      const { exchange, routingKey, keys, properties } = all[second] as Content;
      expect({ exchange: read.exchange, routingKey: read.routingKey, keys: read.keys }).toEqual({
        exchange,
        routingKey,
        keys,
      });
      expect({ ...read.properties, headers: read.properties.headers?.toObject() }).toEqual({
        ...properties,
        headers: properties.headers?.toObject(),
      });
    }
  }
});

it("a head read from bytes that change afterwards stays what it was", () => {
  const head = Buffer.from(encodeHead(content("orders", "paid")));
  decodeHead(head, body);
  head.write("ORDERS", 2);
  expect(decodeHead(head, body).exchange).toBe("ORDERS");
  expect(decodeHead(Buffer.from(encodeHead(content("orders", "paid"))), body).exchange).toBe("orders");
});
