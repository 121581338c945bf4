import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { firstDifference } from "../../support/differential/compare.ts";
import { runOnMachine } from "../../support/differential/machine-side.ts";
import type { Run, Script } from "../../support/differential/script.ts";

// What RabbitMQ 3.10.8 answered to random sequences, recorded by the differential test: replays without a RabbitMQ.

const file = join(import.meta.dirname, "../../data/recorded-sequences.json");
const recorded = JSON.parse(readFileSync(file, "utf8")) as { kind: string; script: Script; run: Run }[];

describe("recorded RabbitMQ sequences", () => {
  it("are there, of every kind", () => {
    expect(new Set(recorded.map(({ kind }) => kind)).size).toBe(4);
    expect(recorded.length).toBeGreaterThanOrEqual(200);
  });

  it.each([...new Set(recorded.map(({ kind }) => kind))])("the machine answers the same: %s", (kind) => {
    const differences = recorded
      .filter((one) => one.kind === kind)
      .map(({ script, run }) => firstDifference(runOnMachine(script), run, script))
      .filter((difference) => difference !== null);
    expect(differences).toEqual([]);
  });
});
