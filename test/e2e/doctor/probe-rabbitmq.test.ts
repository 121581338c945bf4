import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Definitions, newTally, probeAll, type Tally } from "../../rules/topology/probe.ts";
import { topologies } from "../../rules/topology/random-topology.ts";
import { needRabbit, type RabbitServer } from "../../support/rabbitmq-node.ts";
import { rabbitWith } from "./probe-rabbit.ts";

const folder = join(import.meta.dirname, "../../data/doctor/probe");
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));

/** Virtual hosts probed at the same time: waiting for TTLs is most of the work. */
const LANES = 6;

async function probeEach(
  server: RabbitServer,
  topics: readonly (readonly [string, Definitions])[],
): Promise<Tally> {
  const tally = newTally();
  const left = [...topics];
  const lane = async (): Promise<void> => {
    for (let next = left.pop(); next; next = left.pop()) {
      const [name, definitions] = next;
      const broker = await rabbitWith(server, definitions);
      try {
        await probeAll(broker, name, definitions, tally);
      } finally {
        await broker.close();
      }
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return tally;
}

describe("the doctor and a real RabbitMQ, by the probe method", () => {
  it("agree on every file of the project: zero wrong verdicts", async (ctx) => {
    const server = await needRabbit(ctx);
    const topics = files.map(
      (file) => [file, JSON.parse(readFileSync(join(folder, file), "utf8")) as Definitions] as const,
    );
    const tally = await probeEach(server, topics);
    console.info(`${files.length} files: ${JSON.stringify({ ...tally, wrong: tally.wrong.length })}`);
    expect(tally.wrong).toEqual([]);
    expect(tally.exact).toBeGreaterThan(60);
  });

  it("agree on 14 random topologies: zero wrong verdicts", async (ctx) => {
    const server = await needRabbit(ctx);
    const drawn = fc.sample(topologies, { seed: 4711, numRuns: 14 });
    const tally = await probeEach(
      server,
      drawn.map((definitions, i) => [`random ${i}`, definitions] as const),
    );
    console.info(`random: ${JSON.stringify({ ...tally, wrong: tally.wrong.length })}`);
    expect(tally.wrong).toEqual([]);
    expect(tally.exact).toBeGreaterThan(60);
  });
});
