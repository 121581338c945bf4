// Every scenario of test/data/scenarios.json through amqplib against a served broker, both lines.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import amqplib from "amqplib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Compat } from "../../../src/broker/index.ts";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";
import { type Scenario, WireRun } from "./wire-run.ts";

const file = join(import.meta.dirname, "../../data/scenarios.json");
const doc = JSON.parse(readFileSync(file, "utf8")) as { scenarios: Scenario[] } | Scenario[];
const scenarios = Array.isArray(doc) ? doc : doc.scenarios;

describe.each<Compat>(["3.x", "4.x"])("over the wire, compat %s", (compat) => {
  let server: StartedBroker;
  beforeAll(async () => {
    server = await startBroker({ compat });
  });
  afterAll(() => server.close());

  const cases = scenarios.flatMap((scenario) =>
    scenario.profiles !== undefined && !scenario.profiles.includes(compat)
      ? []
      : (scenario.types ?? ["none"]).map((type) => ({ scenario, type, name: `${scenario.name} (${type})` })),
  );

  it("knows the scenarios", () => {
    expect(cases.length).toBeGreaterThan(100);
  });

  it.concurrent.each(cases)("$name", async ({ scenario, type }) => {
    const connect = () => amqplib.connect(server.url);
    await new WireRun(connect, `${scenario.name}.${type}.`, type).run(scenario);
  });
});
