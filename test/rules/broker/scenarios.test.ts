import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Compat } from "../../../src/broker/index.ts";
import { runScenario, type Scenario, ScenarioFailure } from "./runner.ts";

const file = join(import.meta.dirname, "../../data/scenarios.json");
const { scenarios } = JSON.parse(readFileSync(file, "utf8")) as { scenarios: Scenario[] };

describe.each(["3.x", "4.x"] as Compat[])("dead-lettering scenarios, compat %s", (compat) => {
  const mine = scenarios.filter((s) => s.profile === undefined || s.profile === compat);

  it.each(mine.map((s) => [s.id, s] as const))("%s", (_id, scenario) => {
    runScenario(scenario, compat);
  });
});

describe("the scenario runner", () => {
  it("sees every scenario of the file, and each in at least one profile", () => {
    expect(scenarios.length).toBeGreaterThanOrEqual(143);
    expect(new Set(scenarios.map((s) => s.id)).size).toBe(scenarios.length);
    for (const s of scenarios) expect([undefined, "3.x", "4.x"]).toContain(s.profile);
  });

  it("fails a scenario whose expectation is wrong", () => {
    const wrong: Scenario = {
      id: "wrong",
      steps: [
        { do: "queue", name: "%q" },
        { do: "publish", key: "%q", body: "m1" },
      ],
      final: { "%q": ["m2"] },
    };
    expect(() => runScenario(wrong, "4.x")).toThrow(ScenarioFailure);
    expect(() => runScenario({ ...wrong, final: { "%q": [] } }, "4.x")).toThrow(/wanted 0, got 1/);
  });
});
