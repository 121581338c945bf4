import fc from "fast-check";

/**
 * A script is a small topology and a list of steps, as data: it can be run on the broker machine and on a live
 * RabbitMQ, compared, shrunk and recorded. Names are short (`q0`, `x1`); each side makes them unique.
 */

export interface QueueSpec {
  readonly name: string;
  readonly args: Readonly<Record<string, string | number>>;
}

export interface Script {
  readonly queues: readonly QueueSpec[];
  readonly exchanges: readonly { name: string; type: "direct" | "fanout" | "topic" }[];
  readonly bindings: readonly { queue: string; exchange: string; key: string }[];
  readonly steps: readonly Step[];
}

export type Step =
  | { do: "publish"; exchange: string; key: string; expiration?: string; cc?: string[]; priority?: number }
  /** What a naive replay does: publishes a held message again with every header it came with. */
  | { do: "republish"; session: 0 | 1; pick: number; exchange: string; key: string }
  | { do: "get"; session: 0 | 1; queue: string }
  | { do: "consume"; session: 0 | 1; queue: string; prefetch: number }
  | {
      do: "settle";
      session: 0 | 1;
      how: "ack" | "nack" | "reject";
      pick: number;
      multiple: boolean;
      requeue: boolean;
    }
  | { do: "crash"; session: 0 | 1 }
  | { do: "recover"; session: 0 | 1 }
  | { do: "purge"; queue: string }
  | { do: "wait" };

/** A short TTL and a wait that is clearly longer: nothing may happen near the boundary. */
export const SHORT_TTL_MS = 500;
export const WAIT_MS = 900;
/** A script whose steps since the last wait took longer than this proves nothing about TTLs and is run again. */
export const SLACK_MS = 350;

const QUEUES = ["q0", "q1", "q2"] as const;
const EXCHANGES = ["x0", "x1"] as const;
const KEYS = ["q0", "q1", "q2", "a", "a.b", "b"] as const;
const session = fc.constantFrom<0 | 1>(0, 1);

/** The value `weight` times in `weight + 5`, else nothing. */
const maybe = <T>(value: fc.Arbitrary<T>, weight: number): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight, arbitrary: value }, { weight: 5, arbitrary: fc.constant(undefined) });

function queueSpec(name: string, quorum: boolean, ttl: boolean): fc.Arbitrary<QueueSpec> {
  return fc
    .record({
      dlx: maybe(fc.constantFrom("", ...EXCHANGES), 4),
      dlrk: maybe(fc.constantFrom(...KEYS), 2),
      length: maybe(fc.nat({ max: 3 }), 1),
      bytes: maybe(fc.integer({ min: 0, max: 12 }), quorum ? 0 : 1),
      overflow: maybe(fc.constantFrom("drop-head", "reject-publish", "reject-publish-dlx"), 1),
      ttl: maybe(fc.constantFrom(0, SHORT_TTL_MS, 60_000), ttl ? 2 : 0),
      priority: maybe(fc.constant(3), quorum ? 0 : 1),
      limit: maybe(fc.nat({ max: 3 }), 3),
    })
    .map((o) => {
      const args: Record<string, string | number> = {};
      if (quorum) args["x-queue-type"] = "quorum";
      if (o.dlx !== undefined) args["x-dead-letter-exchange"] = o.dlx;
      if (o.dlx !== undefined && o.dlrk !== undefined) args["x-dead-letter-routing-key"] = o.dlrk;
      if (o.length !== undefined) args["x-max-length"] = o.length;
      if (o.bytes !== undefined) args["x-max-length-bytes"] = o.bytes;
      // A quorum queue overshoots reject-publish by a racy amount and drops several newest first (3.10): left out.
      if (!quorum && o.overflow !== undefined) args["x-overflow"] = o.overflow;
      if (o.ttl !== undefined) args["x-message-ttl"] = o.ttl;
      if (o.priority !== undefined) args["x-max-priority"] = o.priority;
      if (quorum && o.limit !== undefined) args["x-delivery-limit"] = o.limit;
      return { name, args };
    });
}

const step = (ttl: boolean): fc.Arbitrary<Step> => {
  const publish = fc
    .record({
      exchange: fc.constantFrom("", "", ...EXCHANGES),
      key: fc.constantFrom(...KEYS),
      expiration: maybe(fc.constantFrom("0", String(SHORT_TTL_MS), "60000"), ttl ? 2 : 0),
      priority: maybe(fc.nat({ max: 4 }), 2),
      cc: maybe(fc.subarray([...KEYS], { minLength: 1, maxLength: 2 }), 1),
    })
    .map(
      ({ exchange, key, expiration, priority, cc }): Step => ({
        do: "publish",
        exchange,
        key,
        ...(expiration === undefined ? {} : { expiration }),
        ...(priority === undefined ? {} : { priority }),
        ...(cc === undefined ? {} : { cc }),
      }),
    );
  const settle = fc.record({
    do: fc.constant("settle" as const),
    session,
    how: fc.constantFrom<"ack" | "nack" | "reject">("ack", "nack", "reject"),
    pick: fc.nat({ max: 5 }),
    multiple: fc.boolean(),
    requeue: fc.boolean(),
  });
  return fc.oneof(
    { weight: 8, arbitrary: publish },
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant("get" as const), session, queue: fc.constantFrom(...QUEUES) }),
    },
    { weight: 7, arbitrary: settle },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("consume" as const),
        session,
        queue: fc.constantFrom(...QUEUES),
        prefetch: fc.integer({ min: 1, max: 3 }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("republish" as const),
        session,
        pick: fc.nat({ max: 5 }),
        exchange: fc.constantFrom("", ...EXCHANGES),
        key: fc.constantFrom(...KEYS),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("crash" as const), session }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("recover" as const), session }) },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constant("purge" as const), queue: fc.constantFrom(...QUEUES) }),
    },
    ...(ttl ? [{ weight: 2, arbitrary: fc.constant<Step>({ do: "wait" }) }] : []),
  );
};

/** Scripts over three queues and two exchanges. `ttl` scripts hold waits and are slower to run. */
export function scripts(options: { quorum: boolean; ttl: boolean }): fc.Arbitrary<Script> {
  return fc
    .record({
      queues: fc.tuple(...QUEUES.map((name) => queueSpec(name, options.quorum, options.ttl))),
      types: fc.tuple(
        ...EXCHANGES.map(() => fc.constantFrom<"direct" | "fanout" | "topic">("direct", "fanout", "topic")),
      ),
      bindings: fc.uniqueArray(
        fc.record({
          queue: fc.constantFrom(...QUEUES),
          exchange: fc.constantFrom(...EXCHANGES),
          key: fc.constantFrom(...KEYS, "#", "*", "a.*"),
        }),
        { minLength: 1, maxLength: 5, selector: (b) => `${b.queue} ${b.exchange} ${b.key}` },
      ),
      steps: fc.array(step(options.ttl), { minLength: 3, maxLength: 16 }),
    })
    .map(({ queues, types, bindings, steps }) => ({
      queues,
      exchanges: EXCHANGES.map((name, i) => ({ name, type: types[i]! })),
      bindings,
      steps,
    }));
}

/**
 * True for a get that is left out on both sides: from a quorum queue that the same session consumes. When both die
 * together, 3.10 returns what was got before what was consumed (its consumers are a map, sorted by tag); the machine
 * returns them in the order of delivery. See docs/reference/rabbitmq-differences.md.
 */
export function leftOut(script: Script, step: Step, consumedBy: number | undefined): boolean {
  return (
    step.do === "get" &&
    consumedBy === step.session &&
    script.queues.some((q) => q.name === step.queue && q.args["x-queue-type"] === "quorum")
  );
}

/** Every script ends with both sessions gone, so that what they held comes back and is compared too. */
export const LAST_STEPS: readonly Step[] = [
  { do: "crash", session: 0 },
  { do: "crash", session: 1 },
];

/** One death as compared: everything but the time, which only has to be one. */
export interface Death {
  readonly queue: string;
  readonly reason: string;
  readonly count: number;
  readonly exchange: string;
  readonly keys: readonly string[];
  readonly expiration: string | null;
}

/** One message as compared. */
export interface Seen {
  readonly body: string;
  readonly exchange: string;
  readonly key: string;
  readonly redelivered: boolean;
  readonly deliveryCount: number;
  /** The first in place, the others sorted (rule E4: 3.10 keeps only the first in place). */
  readonly deaths: readonly Death[];
}

/** What a step showed: a confirm, a message, deliveries, an error code; and every queue's ready count after it. */
export interface Observation {
  readonly step: number;
  readonly result: string | Seen | null;
  /** Of each session, in order. */
  readonly deliveries: readonly [readonly Seen[], readonly Seen[]];
  readonly ready: Readonly<Record<string, number>>;
}

/** Everything one side showed: each step, then what is left in each queue, in order. */
export interface Run {
  readonly observations: readonly Observation[];
  readonly left: Readonly<Record<string, readonly Seen[]>>;
}

/** Puts the deaths into comparable order. */
export function ordered(deaths: readonly Death[]): Death[] {
  const [first, ...rest] = deaths;
  if (!first) return [];
  const text = (death: Death) => JSON.stringify(death);
  return [first, ...rest.toSorted((a, b) => (text(a) < text(b) ? -1 : 1))];
}
