import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type DiskSimOptions, DiskSimulation } from "./disk-full.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-disk-full-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function run(options: Omit<DiskSimOptions, "folder" | "steps">): Promise<DiskSimulation["seen"]> {
  const simulation = new DiskSimulation({
    ...options,
    folder: mkdtempSync(join(folder, "run-")),
    steps: 250,
  });
  await simulation.run();
  return simulation.seen;
}

// A seed that fails is kept here.
const SEEDS = Array.from({ length: 12 }, (_, n) => n + 1);
const all = { confirmed: 0, refused: 0, full: 0, crashes: 0, lost: 0, dead: 0 };

it.each(SEEDS)(
  "with a full disk, crashes and clock jumps every message is where its senders and consumers were told (seed %i)",
  async (seed) => {
    const seen = await run({ seed });
    for (const what of Object.keys(all) as (keyof typeof all)[]) all[what] += seen[what];
  },
);

it("and all of that happened: without refusals and crashes it would prove nothing", () => {
  for (const [what, count] of Object.entries(all)) expect(count, what).toBeGreaterThan(20);
});

it.each(["refused-and-kept", "told-too-early", "told-wrongly"] as const)(
  "sees a broken engine: %s",
  async (fault) => {
    const found: string[] = [];
    for (const seed of SEEDS) {
      await run({ seed, fault }).catch((error: Error) => found.push(error.message.split("\n")[0] ?? ""));
      if (found.length > 0) break;
    }
    expect(found[0]).toMatch(/seed \d+: m\d+ (was|is)/);
  },
);
