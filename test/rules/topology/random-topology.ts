/** Small random topologies that hold what decides where letters go, and nothing that a broker would refuse. */
import * as fc from "fast-check";
import type { Definitions } from "./probe.ts";

const keys = ["", "a", "a.b", "b.a", "c.c.c", "q0", "q1"];
const patterns = ["#", "*", "a.*", "a.#", "#.a", "*.b", "*.*", "#.b.#", ...keys];
const exchangeNames = ["e0", "e1", "e2", "e3"];
const queueNames = ["q0", "q1", "q2", "q3"];

const exchange = (name: string) =>
  fc.record({
    name: fc.constant(name),
    type: fc.constantFrom("direct", "fanout", "topic", "topic"),
    durable: fc.constant(true),
    auto_delete: fc.constant(false),
    internal: fc.oneof(
      { weight: 5, arbitrary: fc.constant(false) },
      { weight: 1, arbitrary: fc.constant(true) },
    ),
    arguments: fc.oneof(
      { weight: 4, arbitrary: fc.constant({}) },
      { weight: 1, arbitrary: fc.constantFrom(...exchangeNames).map((ae) => ({ "alternate-exchange": ae })) },
    ),
  });

const queueArguments = fc
  .record({
    dlx: fc.constantFrom(undefined, "", "e0", "e1", "e2", "e3", "amq.topic", "gone"),
    dlrk: fc.constantFrom(undefined, undefined, ...keys, ...queueNames),
    ttl: fc.constantFrom(undefined, undefined, 200, 300),
    quorum: fc.boolean(),
    limit: fc.constantFrom(undefined, 1),
    max: fc.constantFrom(undefined, undefined, undefined, 1),
  })
  .map(({ dlx, dlrk, ttl, quorum, limit, max }) => ({
    ...(dlx === undefined ? {} : { "x-dead-letter-exchange": dlx }),
    ...(dlx === undefined || dlrk === undefined ? {} : { "x-dead-letter-routing-key": dlrk }),
    ...(ttl === undefined ? {} : { "x-message-ttl": ttl }),
    ...(quorum ? { "x-queue-type": "quorum" } : {}),
    ...(quorum && limit !== undefined ? { "x-delivery-limit": limit } : {}),
    ...(!quorum && max !== undefined ? { "x-max-length": max } : {}),
  }));

const queue = (name: string) =>
  fc.record({
    name: fc.constant(name),
    durable: fc.constant(true),
    auto_delete: fc.constant(false),
    arguments: queueArguments,
  });

const queueBinding = fc.record({
  source: fc.constantFrom(...exchangeNames, "amq.topic"),
  destination: fc.constantFrom(...queueNames),
  destination_type: fc.constant("queue"),
  routing_key: fc.constantFrom(...patterns),
  arguments: fc.constant({}),
});

const exchangeBinding = fc.record({
  source: fc.constantFrom(...exchangeNames),
  destination: fc.constantFrom(...exchangeNames),
  destination_type: fc.constant("exchange"),
  routing_key: fc.constantFrom(...patterns),
  arguments: fc.constant({}),
});

const policy = fc.record({
  name: fc.constant("only"),
  pattern: fc.constantFrom("^q[01]$", "2", ".*"),
  "apply-to": fc.constant("queues"),
  priority: fc.constant(0),
  definition: fc.constantFrom(
    { "dead-letter-exchange": "e0" },
    { "dead-letter-exchange": "e1", "dead-letter-routing-key": "a" },
    { "message-ttl": 250 },
  ),
});

export const topologies: fc.Arbitrary<Definitions> = fc
  .record({
    exchanges: fc.tuple(...exchangeNames.map(exchange)),
    queues: fc.tuple(...queueNames.map(queue)),
    direct: fc.array(queueBinding, { minLength: 2, maxLength: 7 }),
    between: fc.array(exchangeBinding, { maxLength: 2 }),
    policies: fc.array(policy, { maxLength: 1 }),
  })
  .map(({ exchanges, queues, direct, between, policies }) => ({
    exchanges,
    queues,
    bindings: [...direct, ...between],
    policies,
  }));
