import { describe, expect, it } from "vitest";
import { MemoryDLQ, MemoryQueue, MemoryStore } from "../../../src/index.ts";
import {
  type ConformanceOptions,
  deadLettersConformance,
  FakeClock,
  queueConformance,
} from "../../../src/testing/index.ts";

const plain: ConformanceOptions = {
  name: "MemoryQueue and MemoryDLQ",
  supports: new MemoryQueue().supports,
  open: () => {
    const queue = new MemoryQueue();
    const deadLetters = new MemoryDLQ();
    return {
      process: () => ({ queue, deadLetters, crash: () => void queue.recover() }),
      wait: () => {},
      close: () => {},
    };
  },
};

const store = (name: string, holdMs?: number): ConformanceOptions => ({
  name,
  supports: new MemoryStore().open().queue.supports!,
  open: () => {
    const clock = new FakeClock(1_000);
    const memory = new MemoryStore(holdMs === undefined ? { clock } : { clock, holdMs });
    return { process: () => memory.open(), wait: (ms) => clock.advance(ms), close: () => {} };
  },
});

for (const options of [plain, store("MemoryStore"), store("MemoryStore with holds that run out", 30_000)]) {
  queueConformance({ describe, it, expect }, options);
  deadLettersConformance({ describe, it, expect }, options);
}
