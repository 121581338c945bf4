import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openBroker } from "../../../src/engines/embedded/index.ts";
import type { ConformanceOptions, ConformanceWorld } from "../../../src/testing/index.ts";
import { deadLettersConformance, queueConformance } from "../../../src/testing/index.ts";

const SUPPORTS = {
  countsCrashes: true,
  countsStarts: true,
  delays: true,
  atomicBury: true,
  generations: true,
};

/** Processes are handles on one broker, as in an application; their death is the handle's end. */
function world(file: string, end: () => void): ConformanceWorld {
  const broker = openBroker({ file, durability: "process" });
  return {
    process: () => {
      const queue = broker.queue("q");
      return { queue, deadLetters: broker.deadLetters("q.dlq"), crash: () => queue.close() };
    },
    wait: (ms) => new Promise((done) => setTimeout(done, ms)),
    close: async () => {
      await broker.close();
      end();
    },
  };
}

const inMemory: ConformanceOptions = {
  name: "embedded, in memory",
  supports: SUPPORTS,
  open: () => world(":memory:", () => {}),
};

const onFile: ConformanceOptions = {
  name: "embedded, on a file",
  supports: SUPPORTS,
  open: () => {
    const folder = mkdtempSync(join(tmpdir(), "dlo-conformance-"));
    return world(join(folder, "data.db"), () => rmSync(folder, { recursive: true, force: true }));
  },
};

for (const options of [inMemory, onFile]) {
  queueConformance({ describe, it, expect }, options);
  deadLettersConformance({ describe, it, expect }, options);
}
