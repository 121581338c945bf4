import type { Channel, ConsumeMessage } from "amqplib";
import { describe, expect, test } from "vitest";
import { Settler } from "../../../src/engines/rabbitmq/settler.ts";

const message = (deliveryTag: number): ConsumeMessage => ({ fields: { deliveryTag } }) as ConsumeMessage;

/** A channel that keeps the broker's side: what is unacked, what became of the rest, and how many frames it took. */
function world() {
  const unacked = new Set<number>();
  const fates = new Map<number, string>();
  const frames: string[] = [];
  const settle = (tag: number, multiple: boolean, fate: string): void => {
    frames.push(`${fate}${multiple ? " up to" : ""} ${tag}`);
    if (!unacked.has(tag)) throw new Error(`unknown delivery tag ${tag}`);
    for (const one of [...unacked]) {
      if (one !== tag && !(multiple && one < tag)) continue;
      unacked.delete(one);
      fates.set(one, fate);
    }
  };
  const channel = {
    ack: ({ fields }: ConsumeMessage, multiple = false) => settle(fields.deliveryTag, multiple, "ack"),
    nack: ({ fields }: ConsumeMessage, multiple: boolean, requeue: boolean) =>
      settle(fields.deliveryTag, multiple, requeue ? "requeue" : "drop"),
  };
  const settler = new Settler(channel as unknown as Channel);
  const deliver = (tag: number): void => {
    unacked.add(tag);
    settler.taken(message(tag));
  };
  return { settler, deliver, unacked, fates, frames };
}

describe("settlements of one turn leave together", () => {
  test("a run from the front is one frame, and so is the next one with another fate", async () => {
    const { settler, deliver, frames } = world();
    for (let tag = 1; tag <= 9; tag++) deliver(tag);
    for (const tag of [3, 1, 2]) settler.settle(message(tag), "requeue");
    for (const tag of [4, 5, 7]) settler.settle(message(tag), "ack");
    expect(frames).toEqual([]);
    await new Promise((resolve) => setImmediate(resolve));
    // 6 is still with its handler, so 7 goes alone.
    expect(frames).toEqual(["requeue up to 3", "ack up to 5", "ack 7"]);
    settler.settle(message(9), "ack");
    settler.settle(message(6), "ack");
    settler.settle(message(8), "ack");
    settler.flush();
    expect(frames.slice(3)).toEqual(["ack up to 9"]);
  });

  test("where a delivery came out of turn nothing is settled for others", () => {
    const { settler, deliver, frames, unacked } = world();
    for (const tag of [1, 3, 2]) deliver(tag);
    unacked.add(4); // one nobody told of
    deliver(5);
    for (const tag of [1, 2, 3, 5]) settler.settle(message(tag), "ack");
    settler.flush();
    expect(frames).toEqual(["ack 1", "ack 2", "ack 3", "ack 5"]);
    expect([...unacked]).toEqual([4]);
  });

  test("a channel that has closed takes it back and disturbs nobody", async () => {
    const { settler, deliver, unacked, fates } = world();
    deliver(1);
    settler.settle(message(1), "ack");
    unacked.clear();
    await new Promise((resolve) => setImmediate(resolve));
    expect(fates.size).toBe(0);
  });

  test("in any order of deliveries, fates and flushes each delivery gets its own fate, once", () => {
    let seed = 7;
    const random = (below: number): number => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return Math.floor((seed / 2 ** 31) * below);
    };
    for (let round = 0; round < 300; round++) {
      const { settler, deliver, unacked, fates } = world();
      const wanted = new Map<number, "ack" | "requeue">();
      const waiting: number[] = [];
      let tag = 0;
      for (let step = 0; step < 60; step++) {
        const what = random(4);
        if (what === 0) {
          deliver(++tag);
          waiting.push(tag);
        } else if (what < 3 && waiting.length > 0) {
          const [one = 0] = waiting.splice(random(Math.min(3, waiting.length)), 1);
          wanted.set(one, random(3) === 0 ? "ack" : "requeue");
          settler.settle(message(one), wanted.get(one) as "ack");
        } else if (what === 3 && random(3) === 0) settler.flush();
      }
      settler.flush();
      expect(new Map([...fates].sort(([a], [b]) => a - b))).toEqual(
        new Map([...wanted].sort(([a], [b]) => a - b)),
      );
      expect([...unacked].sort((a, b) => a - b)).toEqual(waiting.sort((a, b) => a - b));
    }
  });
});
