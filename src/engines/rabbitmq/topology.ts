/** The queues a consumer needs, made on request and never silently different from what exists. */
import type { Channel, ChannelModel } from "amqplib";
import { DloError } from "../../core/index.ts";
import { clashOf, explain } from "./faults.ts";

/** One step of the retry ladder: a queue with one delay, so that nobody waits behind a longer one. */
export interface Rung {
  readonly queue: string;
  readonly delayMs: number;
}

/** Retry delays unless told otherwise, ms: 1 s, 5 s, 25 s, 2 min, 10 min, 1 h. */
export const DEFAULT_DELAYS: readonly number[] = [1_000, 5_000, 25_000, 120_000, 600_000, 3_600_000];

/** RabbitMQ's own longest TTL, ms (ten years). */
const MAX_DELAY = 315_360_000_000;

/**
 * Deliveries of a suspect after which the broker itself moves it to the parking queue. Only a net under consumers
 * that never judge: ours dead-letter at their maxAttempts.
 */
export const SUSPECT_LIMIT = 1_000;

/** Deliveries of a quorum queue's message from RabbitMQ 4.0 on, unless the queue says otherwise. */
export const DEFAULT_LIMIT = 20;

/** What to set up. */
export interface TopologyOptions {
  /** The work queue. */
  readonly queue: string;
  /** Quorum unless said. */
  readonly type?: "quorum" | "classic";
  /** Retry delays, ms; see {@link DEFAULT_DELAYS}. Empty: no ladder. */
  readonly delays?: readonly number[];
  /** The consumer's own dead-letter queue; `<queue>.dead` unless named, none with false. */
  readonly deadLetters?: string | false;
  /** Where the broker puts what it gives up itself (limits, foreign rejects); `<queue>.parking` unless named. */
  readonly parking?: string;
  /** False: no `<queue>.suspects`. */
  readonly suspects?: boolean;
  /**
   * A delivery limit of the work queue (quorum). None unless given: the consumer judges, not the broker. `existing`:
   * none for a queue to be made, and of one that is there whatever it has.
   */
  readonly deliveryLimit?: number | "existing";
  /** Exchanges to bind the work queue to. They must exist, or be declared here with `type`. */
  readonly bind?: readonly {
    readonly exchange: string;
    readonly key?: string;
    readonly type?: "direct" | "fanout" | "topic" | "headers";
    readonly arguments?: Readonly<Record<string, unknown>>;
  }[];
  /** More arguments of the work queue. */
  readonly arguments?: Readonly<Record<string, unknown>>;
}

/** What `setUpTopology` made sure of. */
export interface Topology {
  readonly queue: string;
  readonly deadLetters: string | null;
  readonly parking: string;
  readonly suspects: string | null;
  readonly rungs: readonly Rung[];
  /** Of the work queue, by its arguments; null: none. A policy may set a lower one. */
  readonly deliveryLimit: number | null;
}

/** The names that go with a work queue. */
export const suspectsOf = (queue: string): string => `${queue}.suspects`;
export const deadLettersOf = (queue: string): string => `${queue}.dead`;
export const parkingOf = (queue: string): string => `${queue}.parking`;

/** The ladder of a queue. @throws DloError BAD_ARGUMENT */
export function ladder(queue: string, delays: readonly number[]): Rung[] {
  let last = 0;
  return delays.map((delayMs) => {
    if (!Number.isSafeInteger(delayMs) || delayMs <= last || delayMs > MAX_DELAY) {
      throw new DloError(
        "BAD_ARGUMENT",
        `retry delay ${delayMs} of queue '${queue}': expected whole milliseconds, ascending, at most ${MAX_DELAY}`,
      );
    }
    last = delayMs;
    return { queue: `${queue}.retry.${delayMs}`, delayMs };
  });
}

/** The first rung that waits long enough, else the longest. */
export function rungFor(rungs: readonly Rung[], delayMs: number): Rung | undefined {
  return rungs.find((rung) => rung.delayMs >= delayMs) ?? rungs.at(-1);
}

/** One queue to declare. */
interface Plan {
  readonly queue: string;
  readonly arguments: Record<string, unknown>;
}

/** Every queue of a topology with its arguments, in the order they must be made. Pure. */
export function planTopology(
  options: TopologyOptions,
  version: string,
): { topology: Topology; plans: Plan[] } {
  const { queue, type = "quorum" } = options;
  const deliveryLimit = options.deliveryLimit === "existing" ? undefined : options.deliveryLimit;
  if (type === "classic" && deliveryLimit !== undefined) {
    throw new DloError("BAD_ARGUMENT", `queue '${queue}': a classic queue has no delivery limit`);
  }
  // From 4.0 a limit of 20 applies unless told otherwise; before, -1 would kill at the first return.
  const unlimited = Number.parseInt(version, 10) >= 4 ? { "x-delivery-limit": -1 } : {};
  const quorum = { "x-queue-type": "quorum" };
  const topology: Topology = {
    queue,
    deadLetters: options.deadLetters === false ? null : (options.deadLetters ?? deadLettersOf(queue)),
    parking: options.parking ?? parkingOf(queue),
    suspects: options.suspects === false ? null : suspectsOf(queue),
    rungs: ladder(queue, options.delays ?? DEFAULT_DELAYS),
    deliveryLimit: deliveryLimit === undefined || deliveryLimit < 0 ? null : deliveryLimit,
  };
  // By the default exchange and the queue's own name: no key is shared, so no letter is copied to a second queue.
  // At least once, so that a broker's death between two queues loses nothing; that mode needs reject-publish.
  const deadTo = (target: string): Record<string, unknown> => ({
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": target,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
  });
  const work =
    type === "quorum"
      ? {
          ...quorum,
          ...deadTo(topology.parking),
          ...(deliveryLimit === undefined ? unlimited : { "x-delivery-limit": deliveryLimit }),
        }
      : { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": topology.parking };
  const plans: Plan[] = [{ queue: topology.parking, arguments: { ...quorum, ...unlimited } }];
  if (topology.deadLetters)
    plans.push({ queue: topology.deadLetters, arguments: { ...quorum, ...unlimited } });
  plans.push({ queue, arguments: { ...work, ...options.arguments } });
  if (topology.suspects) {
    // One suspect at a time, whichever process runs it.
    const limit = { "x-delivery-limit": SUSPECT_LIMIT, "x-single-active-consumer": true };
    plans.push({
      queue: topology.suspects,
      arguments: { ...quorum, ...limit, ...deadTo(topology.parking) },
    });
  }
  for (const rung of topology.rungs) {
    plans.push({
      queue: rung.queue,
      arguments: { ...quorum, "x-message-ttl": rung.delayMs, ...deadTo(queue) },
    });
  }
  return { topology, plans };
}

/**
 * Declares what is missing. Idempotent; a crash in the middle leaves a part of it, and the next call makes the rest.
 * @throws DloError CONFLICT naming the queue, the argument and both values when a queue exists otherwise.
 */
export async function declareTopology(
  model: ChannelModel,
  options: TopologyOptions,
  version: string,
): Promise<Topology> {
  const { topology, plans } = planTopology(options, version);
  for (const plan of plans) {
    try {
      await declare(model, plan);
    } catch (error) {
      const limit = options.deliveryLimit === "existing" && plan.queue === options.queue && limitIn(error);
      if (typeof limit === "number")
        return await declareTopology(model, { ...options, deliveryLimit: limit }, version);
      if (limit !== "none") throw error;
      // Before 4.0 we ask for none ourselves, so this queue has the default of 4.0.
      const { deliveryLimit: _, ...others } = options;
      const unset = { ...others, arguments: { ...options.arguments, "x-delivery-limit": undefined } };
      return { ...(await declareTopology(model, unset, version)), deliveryLimit: DEFAULT_LIMIT };
    }
  }
  for (const { exchange, key = "", type, arguments: args } of options.bind ?? []) {
    await onOwnChannel(
      model,
      `binding queue '${options.queue}' to exchange '${exchange}'`,
      async (channel) => {
        if (type) await channel.assertExchange(exchange, type, { durable: true });
        await channel.bindQueue(options.queue, exchange, key, args ?? {});
      },
    );
  }
  return topology;
}

const declare = (model: ChannelModel, { queue, arguments: args }: Plan): Promise<unknown> =>
  onOwnChannel(model, `declaring queue '${queue}'`, (channel) =>
    channel.assertQueue(queue, { durable: true, arguments: args }),
  );

/** The limit a queue exists with, from the refusal of another one; null when it was refused for something else. */
function limitIn(error: unknown): number | "none" | null {
  const clash = clashOf(error);
  if (clash?.argument !== "x-delivery-limit") return null;
  if (clash.current === "none") return "none";
  const limit = Number(clash.current);
  return Number.isSafeInteger(limit) ? limit : null;
}

/** A refusal closes the channel, so each question that may be refused has one of its own. */
export async function onOwnChannel<T>(
  model: ChannelModel,
  what: string,
  work: (channel: Channel) => Promise<T>,
): Promise<T> {
  try {
    const channel = await model.createChannel();
    channel.on("error", () => {});
    const answer = await work(channel);
    await channel.close();
    return answer;
  } catch (error) {
    throw explain(error, what);
  }
}

/** Quorum queues take returns a moment after the channel's close; who looks next shall find them. */
export async function backAgain(model: ChannelModel, queue: string, kept: number): Promise<void> {
  if (kept === 0) return;
  await onOwnChannel(model, `looking at queue '${queue}'`, async (channel) => {
    for (let tries = 0; tries < 100; tries++) {
      if ((await channel.checkQueue(queue)).messageCount >= kept) return;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  });
}

/** Acks of a quorum queue that RabbitMQ takes at once; more wait inside its channel process. */
export const ACKS_AT_ONCE = 32;
const CALM_ROUNDS = 20;
const CALM_MS = 10;

/**
 * To be awaited between many acks and the close of their channel. On quorum queues RabbitMQ keeps acks beyond 32 in
 * the channel until the queue has written the first ones, and forgets them when the channel closes meanwhile (100 acks,
 * then close: 68 messages came back). Nothing in AMQP tells when they are through, so this waits 200 ms.
 */
export async function calm(channel: Channel, queue: string): Promise<void> {
  for (let round = 0; round < CALM_ROUNDS; round++) {
    await channel.checkQueue(queue);
    await new Promise((resolve) => setTimeout(resolve, CALM_MS));
  }
}
