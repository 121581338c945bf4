/** A conformance suite that cannot fail proves nothing: broken queues and stores, and the tests that find them out. */
import { describe, expect, it } from "vitest";
import { type DeadLetter, MemoryDLQ, MemoryQueue, type Message } from "../../../src/index.ts";
import {
  type ConformanceOptions,
  deadLettersConformance,
  queueConformance,
} from "../../../src/testing/index.ts";

/** Runs both suites on a queue and a store and answers the names of the tests that fail. */
async function failures(queueOf: () => MemoryQueue, lettersOf: () => MemoryDLQ): Promise<string[]> {
  const tests: [string, (context?: unknown) => unknown][] = [];
  const own = {
    describe: (_name: string, body: () => void) => body(),
    it: (name: string, body: (context?: unknown) => unknown) => tests.push([name, body]),
    expect,
  };
  const options: ConformanceOptions = {
    name: "broken",
    supports: new MemoryQueue().supports,
    patienceMs: 20,
    open: () => {
      const queue = queueOf();
      const deadLetters = lettersOf();
      return {
        process: () => ({ queue, deadLetters, crash: () => void queue.recover() }),
        wait: () => {},
        close: () => {},
      };
    },
  };
  queueConformance(own, options);
  deadLettersConformance(own, options);
  expect(tests.length).toBeGreaterThan(15);
  const failed: string[] = [];
  for (const [name, body] of tests) {
    try {
      await body();
    } catch {
      failed.push(name);
    }
  }
  return failed;
}

const QUEUES: [string, () => MemoryQueue, RegExp][] = [
  [
    "forgets how often a message was received",
    () =>
      new (class extends MemoryQueue {
        override receive(): Message | null {
          const message = super.receive();
          return message && { ...message, receiveCount: 1 };
        }
      })(),
    /counts a start that the process did not survive/,
  ],
  [
    "loses what a dead process held",
    () =>
      new (class extends MemoryQueue {
        override recover(): number {
          return 0;
        }
      })(),
    /loses nothing and doubles no letter/,
  ],
  [
    "acks what is retried",
    () =>
      new (class extends MemoryQueue {
        override retry(id: string): void {
          this.ack(id);
        }
      })(),
    /sends a retried message to the back/,
  ],
  [
    "says nothing is pending",
    () =>
      new (class extends MemoryQueue {
        override pending(): number {
          return 0;
        }
      })(),
    /hands out what was sent/,
  ],
  [
    "turns bodies into text",
    () =>
      new (class extends MemoryQueue {
        override receive(): Message | null {
          const message = super.receive();
          return message && { ...message, body: String(message.body) };
        }
      })(),
    /keeps bodies as they are/,
  ],
];

const STORES: [string, () => MemoryDLQ, RegExp][] = [
  [
    "has nothing",
    () =>
      new (class extends MemoryDLQ {
        override has(): boolean {
          return false;
        }
      })(),
    /keeps entries whole/,
  ],
  [
    "removes nothing",
    () =>
      new (class extends MemoryDLQ {
        override remove(): void {}
      })(),
    /removes an entry/,
  ],
  [
    "lists backwards",
    () =>
      new (class extends MemoryDLQ {
        override list(): DeadLetter[] {
          return super.list().reverse();
        }
      })(),
    /in order of death/,
  ],
  [
    "drops the error",
    () =>
      new (class extends MemoryDLQ {
        override put(entry: DeadLetter): void {
          super.put({ ...entry, error: null });
        }
      })(),
    /keeps entries whole/,
  ],
];

describe("the conformance suites", () => {
  it("pass a queue and a store that keep the contract", async () => {
    expect(
      await failures(
        () => new MemoryQueue(),
        () => new MemoryDLQ(),
      ),
    ).toEqual([]);
  });

  it.each(QUEUES)("find out a queue that %s", async (_what, make, test) => {
    expect(await failures(make, () => new MemoryDLQ())).toContainEqual(expect.stringMatching(test));
  });

  it.each(STORES)("find out a store that %s", async (_what, make, test) => {
    expect(await failures(() => new MemoryQueue(), make)).toContainEqual(expect.stringMatching(test));
  });
});
