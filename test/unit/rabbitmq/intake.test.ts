import { setTimeout as sleep } from "node:timers/promises";
import type { Channel } from "amqplib";
import { expect, test } from "vitest";
import { Holdings } from "../../../src/engines/rabbitmq/held.ts";
import { Intake } from "../../../src/engines/rabbitmq/intake.ts";
import type { Lane } from "../../../src/engines/rabbitmq/link.ts";

/** A channel on a queue with one message; every answer takes 2 ms. */
function oneMessage() {
  const consumes: string[] = [];
  let left = 1;
  const message = {
    content: Buffer.from("1"),
    fields: { deliveryTag: 1, redelivered: false, exchange: "", routingKey: "work", messageCount: 0 },
    properties: { messageId: "a", headers: {} },
  };
  const channel = {
    consumes,
    on: () => {},
    ack: () => {},
    prefetch: () => sleep(2),
    cancel: () => sleep(2),
    checkQueue: (queue: string) => sleep(2).then(() => ({ queue, messageCount: 0, consumerCount: 0 })),
    get: () => sleep(2).then(() => (left-- > 0 ? message : false)),
    consume: (queue: string) =>
      sleep(2).then(() => {
        consumes.push(queue);
        return { consumerTag: `c${consumes.length}` };
      }),
  };
  return channel;
}

test("a message settled while it is decided what comes next does not open the window twice", async () => {
  const channel = oneMessage();
  const lane = { channel: channel as unknown as Channel, epoch: 1, restart: () => {} } as unknown as Lane;
  const holdings = new Holdings();
  const warned: string[] = [];
  const say = (text: string): void => void warned.push(text);
  const intake = new Intake(lane, holdings, true, {
    queue: "work",
    suspects: "work.suspects",
    prefetch: 5,
    ledger: null,
    ledgerKey: ({ key }) => key,
    logger: { info: say, warn: say, error: say },
    now: Date.now,
    move: () => Promise.resolve(),
  });
  await intake.setup(channel as unknown as Channel, 1);
  intake.want();
  // It is handled as soon as it is there: before it is known whether a suspect waits.
  let held = intake.next();
  while (held === null) {
    await sleep(0);
    held = intake.next();
  }
  holdings.drop(held);
  intake.settled();
  await sleep(100);
  expect(channel.consumes).toEqual(["work"]);
  expect(intake.isOpen).toBe(true);
  expect(warned).toEqual([]);
  await intake.stop();
});
