import { beforeAll, describe, expect, it, type TestContext } from "vitest";
import { type StartedBroker, startBroker } from "../../../src/dev/index.ts";
import type { QueueSupports } from "../../../src/ports/index.ts";
import {
  deadLettersConformance,
  queueConformance,
  runExperiment,
  type TestFunctions,
} from "../../../src/testing/index.ts";
import {
  freshVhost,
  haveRabbit,
  NO_RABBITMQ,
  sharedRabbit,
  uniqueName,
  type Vhost,
} from "../../support/rabbitmq-node.ts";
import { type RabbitWorldOptions, rabbitWorld } from "../../support/rabbitmq-world.ts";

let vhost: Vhost;
beforeAll(async () => {
  const server = await sharedRabbit();
  if (server) vhost = await freshVhost(server, "suite");
  return async () => {
    await vhost?.drop();
  };
}, 120_000);

// The suites know nothing of servers: without one each of their tests is reported as skipped, by name.
const when: TestFunctions = {
  describe,
  expect,
  it: (name, body) =>
    it(name, async (ctx: TestContext) => {
      if (!haveRabbit()) ctx.skip(NO_RABBITMQ);
      await body(ctx);
    }),
};

const supports: QueueSupports = {
  countsCrashes: true,
  countsStarts: false,
  delays: true,
  atomicBury: false,
  generations: false,
};

const kinds: [string, RabbitWorldOptions, Partial<QueueSupports>][] = [
  ["RabbitMQ quorum", { type: "quorum" }, {}],
  ["RabbitMQ classic", { type: "classic" }, {}],
  ["RabbitMQ quorum with a ledger", { type: "quorum", ledger: true }, { countsStarts: true }],
  ["RabbitMQ classic with a ledger", { type: "classic", ledger: true }, { countsStarts: true }],
];

for (const [name, kind, more] of kinds) {
  const options = {
    name,
    supports: { ...supports, ...more },
    patienceMs: 10_000,
    open: () => rabbitWorld(vhost.url, uniqueName("q"), kind),
  };
  queueConformance(when, options);
  if (!kind.ledger) deadLettersConformance(when, options);
}

// A window is leased, not started: by the suspects queue no innocent pays for it, without any ledger.
for (const type of ["quorum", "classic"] as const) {
  for (const concurrency of [1, 20]) {
    for (const pills of [1, 4]) {
      it(`${type}: blames no innocent without a ledger: 100 messages, ${pills} killing, window 20, ${concurrency} at a time`, async (ctx) => {
        if (!haveRabbit()) ctx.skip(NO_RABBITMQ);
        const world = await rabbitWorld(vhost.url, uniqueName("q"), { type, prefetch: 20 });
        try {
          const found = await runExperiment(world, { messages: 100, window: 20, concurrency, pills });
          expect(found).toMatchObject({ unhandled: [], deadInnocents: [], deadPills: found.pills, left: 0 });
          expect(found.mostPillStarts).toBeLessThanOrEqual(3);
        } finally {
          await world.close();
        }
      });
    }
  }
}

// The same body of tests against the project's own broker, over AMQP.
const embedded: [string, RabbitWorldOptions, Partial<QueueSupports>][] = [
  ["embedded broker over AMQP, quorum", { type: "quorum" }, {}],
  [
    "embedded broker over AMQP, classic, with a ledger",
    { type: "classic", ledger: true },
    { countsStarts: true },
  ],
];
for (const [name, kind, more] of embedded) {
  let broker: StartedBroker | undefined;
  beforeAll(async () => {
    broker = await startBroker();
    return async () => {
      await broker?.close();
    };
  });
  const options = {
    name,
    supports: { ...supports, ...more },
    patienceMs: 10_000,
    open: () => rabbitWorld((broker as StartedBroker).url, uniqueName("q"), kind),
  };
  const plainly: TestFunctions = { describe, it, expect };
  queueConformance(plainly, options);
  deadLettersConformance(plainly, options);
}
