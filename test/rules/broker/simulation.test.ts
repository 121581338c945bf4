import { describe, expect, it } from "vitest";
import { Simulation } from "./simulation.ts";

const SEEDS = Array.from({ length: 60 }, (_, i) => i + 1);

describe.each(["4.x", "3.x"] as const)("a simulated world around the machine, compat %s", (compat) => {
  it("keeps every confirmed message in exactly one place, whatever crashes, jumps and restarts come", () => {
    for (const seed of SEEDS) new Simulation({ seed, steps: 600, compat }).run();
  });
});

describe("the simulation's checker", () => {
  it.each(["forget-a-put", "forget-a-gone"] as const)("sees a journal that %s", (fault) => {
    const seen = SEEDS.slice(0, 10).filter((seed) => {
      try {
        new Simulation({ seed, steps: 600, compat: "4.x", fault }).run();
        return false;
      } catch {
        return true;
      }
    });
    expect(seen.length).toBe(10);
  });
});
