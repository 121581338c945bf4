import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Definitions, newTally, probeAll } from "./probe.ts";
import { machineWith } from "./probe-machine.ts";
import { topologies } from "./random-topology.ts";

const folder = join(import.meta.dirname, "../../data/doctor/probe");
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));

describe.each(["3.x", "4.x"] as const)("the doctor and the embedded broker (%s)", (compat) => {
  it("agree on every file of the project", async () => {
    const tally = newTally();
    for (const file of files) {
      const definitions = JSON.parse(readFileSync(join(folder, file), "utf8")) as Definitions;
      await probeAll(machineWith(definitions, compat), file, definitions, tally);
    }
    console.info(`${files.length} files: ${JSON.stringify({ ...tally, wrong: tally.wrong.length })}`);
    expect(tally.wrong).toEqual([]);
    expect(files.length).toBeGreaterThanOrEqual(25);
    expect(tally.exact).toBeGreaterThan(60);
  });

  it("agree on 300 random topologies", async () => {
    const tally = newTally();
    const drawn = fc.sample(topologies, { seed: 20_261_130, numRuns: 300 });
    for (const [i, definitions] of drawn.entries()) {
      await probeAll(machineWith(definitions, compat), `random ${i}`, definitions, tally);
    }
    console.info(`random: ${JSON.stringify({ ...tally, wrong: tally.wrong.length })}`);
    expect(tally.wrong).toEqual([]);
    expect(tally.exact).toBeGreaterThan(500);
  });
});

describe("the probe method", () => {
  it("finds a wrong verdict: a broker that lacks a binding the doctor was told of", async () => {
    const text = readFileSync(join(folder, "01-plain.json"), "utf8");
    const told = JSON.parse(text) as Definitions;
    const real = { ...told, bindings: told.bindings.filter((binding) => binding.source !== "a.dlx") };
    const tally = newTally();
    await probeAll(machineWith(real, "4.x"), "planted", told, tally);
    expect(tally.wrong.length).toBeGreaterThan(0);
  });
});
