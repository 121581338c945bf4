import { expect, it } from "vitest";
import type { MessageState } from "../../../src/broker/index.ts";
import { Block } from "../../../src/engines/embedded/blocks.ts";

const plain: MessageState = {
  seq: 7,
  position: 7,
  size: 11,
  expiresAt: 0,
  priority: 0,
  redelivered: false,
  deliveryCount: 0,
  starts: 0,
  firstReceivedAt: 0,
  dueAt: 0,
  suspect: false,
  inCompany: false,
  hold: 0,
  failures: 0,
  died: false,
  retained: null,
};

it("a record gives back each of its fields, and none of them reaches another", () => {
  const changes: Partial<MessageState>[] = [
    {},
    { position: -(2 ** 52) },
    { expiresAt: 1_900_000_000_123 },
    { priority: 255 },
    { redelivered: true },
    { deliveryCount: 20 },
    { starts: 3 },
    { firstReceivedAt: 1_800_000_000_001 },
    { dueAt: 1_800_000_000_002 },
    { suspect: true },
    { inCompany: true },
    { hold: 1 },
    { hold: 2 },
    { failures: 4 },
    { died: true },
    { retained: "rejected" },
    { retained: "delivery_limit" },
  ];
  for (const change of changes) {
    const state = { ...plain, ...change };
    const block = new Block(0);
    block.write(7, 5, state);
    const read = new Block(0, block.bytes);
    expect(read.read(7, 7), JSON.stringify(change)).toEqual(state);
    expect(read.queueOf(7)).toBe(5);
  }
});
