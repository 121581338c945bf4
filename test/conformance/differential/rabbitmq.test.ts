import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { compare, firstDifference } from "../../support/differential/compare.ts";
import { runOnMachine } from "../../support/differential/machine-side.ts";
import { RabbitSide } from "../../support/differential/rabbit-side.ts";
import type { Run, Script } from "../../support/differential/script.ts";
import { needVhost } from "../../support/rabbitmq-node.ts";

// Random command sequences on the broker machine and on a live RabbitMQ. The first difference is shrunk by fast-check
// and printed with both sides' words. DLO_SEED varies the sequences, DLO_SEQUENCES their number; DLO_RECORD=1 writes
// the first ones with RabbitMQ's answers to test/data/recorded-sequences.json, which replay where no RabbitMQ is.

const SEED = Number(process.env["DLO_SEED"] ?? 20_261_130);
const TOTAL = Number(process.env["DLO_SEQUENCES"] ?? 2_000);
const KINDS = [
  { name: "classic queues", kind: { quorum: false, ttl: false }, share: 0.65, lanes: 4, recorded: 120 },
  { name: "quorum queues", kind: { quorum: true, ttl: false }, share: 0.2, lanes: 4, recorded: 60 },
  {
    name: "classic queues with TTLs",
    kind: { quorum: false, ttl: true },
    share: 0.1,
    lanes: 8,
    recorded: 30,
  },
  { name: "quorum queues with TTLs", kind: { quorum: true, ttl: true }, share: 0.05, lanes: 8, recorded: 15 },
] as const;

const recorded: { kind: string; script: Script; run: Run }[] = [];

it.for(KINDS)(
  "the machine and RabbitMQ agree on random sequences: $name",
  { timeout: 900_000 },
  async (entry, ctx) => {
    const vhost = await needVhost(ctx, "diff");
    const rabbit = await RabbitSide.connect(vhost.url);
    try {
      const count = Math.ceil(TOTAL * entry.share);
      let kept = 0;
      const tally = await compare(rabbit, entry.kind, count, {
        seed: SEED,
        lanes: entry.lanes,
        onRun: (script, run) => {
          if (kept++ < entry.recorded) recorded.push({ kind: entry.name, script, run });
        },
      });
      console.log(
        `${entry.name}: ${tally.agreed} sequences agreed, ${tally.inconclusive} ran too slowly to judge a TTL`,
      );
      expect(tally.agreed).toBeGreaterThanOrEqual(count * 0.9);
    } finally {
      await rabbit.close();
    }
  },
);

it("finds a planted difference", async (ctx) => {
  const vhost = await needVhost(ctx, "diff");
  const rabbit = await RabbitSide.connect(vhost.url);
  try {
    const script: Script = {
      queues: [
        { name: "q0", args: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1" } },
        { name: "q1", args: {} },
      ],
      exchanges: [],
      bindings: [],
      steps: [
        { do: "publish", exchange: "", key: "q0" },
        { do: "get", session: 0, queue: "q0" },
        { do: "settle", session: 0, how: "reject", pick: 0, multiple: false, requeue: false },
      ],
    };
    const truth = runOnMachine(script);
    expect(firstDifference(truth, (await rabbit.run(script, truth))!, script)).toBeNull();
    const other = { ...script, queues: [{ name: "q0", args: {} }, script.queues[1]!] };
    expect(firstDifference(runOnMachine(other), (await rabbit.run(script, truth))!, script)).toContain(
      "step 2",
    );
  } finally {
    await rabbit.close();
  }
});

it("records the sequences when asked to", () => {
  if (process.env["DLO_RECORD"] === "1" && recorded.length > 0) {
    const file = join(import.meta.dirname, "../../data/recorded-sequences.json");
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `[\n${recorded.map((one) => JSON.stringify(one)).join(",\n")}\n]\n`);
  }
  expect(recorded.every(({ run }) => run.observations.length > 0)).toBe(true);
});
