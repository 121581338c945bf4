import { type Compat, HeaderTable } from "../broker/index.ts";
import { encodeUtf8 } from "../core/index.ts";

/** The RabbitMQ version each line announces: clients choose their expectations by it. */
export const ANNOUNCED_VERSION: Readonly<Record<Compat, string>> = { "3.x": "3.12.14", "4.x": "4.2.0" };

export const MECHANISMS: Uint8Array = encodeUtf8("AMQPLAIN PLAIN");
export const LOCALES: Uint8Array = encodeUtf8("en_US");

/**
 * The server-properties of connection.start. `product` is RabbitMQ because clients ask it for what they may
 * expect (kombu takes the meaning of basic.qos global from it); who really answers stands in `platform` and
 * `information`.
 */
export function serverProperties(compat: Compat): HeaderTable {
  return HeaderTable.fromObject({
    capabilities: {
      publisher_confirms: true,
      exchange_exchange_bindings: true,
      "basic.nack": true,
      consumer_cancel_notify: true,
      "connection.blocked": true,
      consumer_priorities: true,
      authentication_failure_close: true,
      per_consumer_qos: true,
      direct_reply_to: true,
    },
    cluster_name: "dlo@localhost",
    copyright: "Dead Letter Office, MIT licensed",
    information: "Dead Letter Office's embedded broker, speaking AMQP 0-9-1 as RabbitMQ does",
    platform: "Dead Letter Office",
    product: "RabbitMQ",
    version: ANNOUNCED_VERSION[compat],
  });
}
