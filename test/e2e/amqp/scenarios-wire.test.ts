// Every scenario of test/data/scenarios.json through amqplib against a served broker, both lines.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import amqplib from "amqplib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Compat } from "../../../src/broker/index.ts";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";
import { type Scenario, ScenarioRun } from "./wire-run.ts";

const file = join(import.meta.dirname, "../../data/scenarios.json");
const { scenarios } = JSON.parse(readFileSync(file, "utf8")) as { scenarios: Scenario[] };

describe.each<Compat>(["3.x", "4.x"])("over the wire, compat %s", (compat) => {
  let server: StartedBroker;
  beforeAll(async () => {
    server = await startBroker({ compat });
  });
  afterAll(() => server.close());

  const cases = scenarios.filter(({ profile }) => profile === undefined || profile === compat);

  it("knows the scenarios", () => {
    expect(cases.length).toBeGreaterThan(120);
  });

  // The slow part is the waiting of the scenarios themselves, on a machine that may be busy.
  it.concurrent.each(cases)("$id", { timeout: 60_000 }, async (scenario) => {
    await new ScenarioRun(() => amqplib.connect(server.url), `${scenario.id}:`).run(scenario);
  });
});
