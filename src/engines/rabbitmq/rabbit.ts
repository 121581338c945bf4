/** RabbitMQ as an engine: one connection, and on it queues, dead letters, topology and replay. */
import type { ChannelModel } from "amqplib";
import { checkTimer, DloError } from "../../core/index.ts";
import type { Clock, Logger } from "../../ports/index.ts";
import { type Codec, standardCodec } from "./codec.ts";
import { RabbitDeadLetters, type RabbitDeadLettersOptions } from "./dead-letters.ts";
import type { Held } from "./held.ts";
import { Link } from "./link.ts";
import { queueFacts } from "./management.ts";
import { RabbitQueue } from "./queue.ts";
import type { RabbitQueueOptions } from "./queue-options.ts";
import { type ReplayOptions, type ReplayResult, replayLetters } from "./replay.ts";
import {
  DEFAULT_DELAYS,
  DEFAULT_LIMIT,
  declareTopology,
  ladder,
  suspectsOf,
  type Topology,
  type TopologyOptions,
} from "./topology.ts";

/** How to reach RabbitMQ. */
export interface RabbitMQOptions {
  /** `amqp://user:password@host:port/vhost`, or `amqps:`. */
  readonly url?: string;
  /** A connection of amqplib's you made (with `noDelay: true`, please): neither recovered nor closed by the engine. */
  readonly connection?: ChannelModel;
  /** Of the management API, with user and password; lets `checkAttempts` read a queue's limits. */
  readonly managementUrl?: string;
  /** Shown in RabbitMQ's list of connections. */
  readonly name?: string;
  /** Longest wait for a confirm, ms; 10,000 unless given. It stands still while the broker blocks publishers. */
  readonly confirmTimeoutMs?: number;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** More options of the socket, e.g. `ca`, `cert`, `key` for TLS. */
  readonly socket?: Readonly<Record<string, unknown>>;
}

const CONFIRM_MS = 10_000;

const SILENT: Logger = { info: () => {}, warn: () => {}, error: () => {} };

/**
 * Connects. The first connection must succeed; a lost one is made again with back-off, for ever, and consumers go on.
 *
 * @throws DloError BAD_ARGUMENT, NOT_CONNECTED (nobody there), REFUSED (user, password or virtual host)
 * @example
 * const rabbit = await connectRabbitMQ({ url: "amqp://localhost" });
 * await rabbit.setUpTopology({ queue: "orders" });
 * const queue = rabbit.queue("orders", { prefetch: 20 });
 * const consumer = new Consumer({ queue, deadLetters: rabbit.deadLetters("orders.dead"), handler });
 */
export async function connectRabbitMQ(options: RabbitMQOptions): Promise<RabbitMQ> {
  checkTimer("confirmTimeoutMs", options.confirmTimeoutMs ?? CONFIRM_MS);
  const logger = options.logger ?? SILENT;
  const link = new Link({
    url: options.url,
    connection: options.connection,
    name: options.name ?? "dead-letter-office",
    logger,
    socket: options.socket,
  });
  await link.start();
  return new RabbitMQ(link, options, logger);
}

/** Made by {@link connectRabbitMQ}. */
export class RabbitMQ {
  private readonly link: Link;
  private readonly options: RabbitMQOptions;
  private readonly logger: Logger;
  private readonly confirmMs: number;
  private readonly now: () => number;
  private readonly queues = new Map<string, RabbitQueue>();
  private readonly stores: RabbitDeadLetters[] = [];
  /** Delivery limits of the work queues set up here; null: none. */
  private readonly limits = new Map<string, number | null>();

  constructor(link: Link, options: RabbitMQOptions, logger: Logger) {
    this.link = link;
    this.options = options;
    this.logger = logger;
    this.confirmMs = options.confirmTimeoutMs ?? CONFIRM_MS;
    this.now = options.clock ? () => (options.clock as Clock).now() : Date.now;
  }

  /** The broker's product and version, e.g. `{ product: "RabbitMQ", version: "3.10.8" }`. */
  get server(): { readonly product: string; readonly version: string } {
    return this.link.server;
  }

  /** Whether a connection is up, and why the broker holds publishers, if it does. */
  get status(): { readonly connected: boolean; readonly blocked: string | null } {
    return { connected: this.link.model !== null, blocked: this.link.blocked };
  }

  /** A queue to send to and to consume. Nothing is declared: see {@link setUpTopology}. */
  queue<B = unknown>(name: string, options: RabbitQueueOptions<B> = {}): RabbitQueue<B> {
    const suspects = options.suspects === false ? null : suspectsOf(name);
    const queue = new RabbitQueue<B>(checkName(name), {
      link: this.link,
      logger: this.logger,
      confirmMs: this.confirmMs,
      now: this.now,
      options,
      codec: options.codec ?? (standardCodec as Codec<B>),
      rungs: ladder(name, options.delays ?? DEFAULT_DELAYS),
      suspects,
      accepts: (maxAttempts) => this.accepts(name, maxAttempts, options as RabbitQueueOptions),
    });
    this.queues.set(name, queue as unknown as RabbitQueue);
    return queue;
  }

  /** A dead-letter queue as the consumer's store. */
  deadLetters<B = unknown>(name: string, options: RabbitDeadLettersOptions<B> = {}): RabbitDeadLetters<B> {
    const store = new RabbitDeadLetters<B>(checkName(name), {
      link: this.link,
      logger: this.logger,
      confirmMs: this.confirmMs,
      now: this.now,
      exchange: options.exchange ?? "",
      managedLimit: (queue) => this.managedLimit(queue),
      codec: options.codec ?? (standardCodec as Codec<B>),
      origin: (queue, id, generation, raw): Held | undefined =>
        queue === undefined ? undefined : this.queues.get(queue)?.peek(id, generation, raw),
    });
    this.stores.push(store as unknown as RabbitDeadLetters);
    return store;
  }

  /**
   * Declares a work queue with everything around it: retry ladder, suspects, dead letters, parking. Idempotent.
   * @throws DloError CONFLICT naming queue, argument and both values where something exists otherwise.
   */
  async setUpTopology(options: TopologyOptions): Promise<Topology> {
    checkName(options.queue);
    const { model } = this.link;
    if (!model)
      throw new DloError(
        "NOT_CONNECTED",
        `setting up '${options.queue}': no connection to ${this.link.where}`,
      );
    const topology = await declareTopology(model, options, this.link.server.version);
    this.limits.set(topology.queue, topology.deliveryLimit);
    return topology;
  }

  /**
   * Sends letters of a dead-letter queue back, each once, starting again at receiveCount 1 in their next life. What
   * cannot be sent stays in the queue and is named in the answer.
   * @throws DloError QUEUE_NOT_FOUND, NOT_CONNECTED; UNSUPPORTED when the queue may have a delivery limit (from 4.0).
   */
  async replay(options: ReplayOptions): Promise<ReplayResult> {
    return await replayLetters(this.link, this.confirmMs, options, (queue) => this.managedLimit(queue));
  }

  /**
   * Refuses a consumer whose `maxAttempts` the queue's own delivery limit would cut short: the broker would then move
   * the message where no reason is kept. Needs `managementUrl`, or the limit itself.
   * @throws DloError CONFLICT naming both numbers.
   */
  async checkAttempts(queue: string, maxAttempts: number, deliveryLimit?: number): Promise<void> {
    const limit = deliveryLimit === undefined ? await this.managedLimit(queue) : limitOf(deliveryLimit);
    refuse(queue, maxAttempts, limit ?? null);
  }

  /** In force by the management API; undefined when its address is not known. */
  private async managedLimit(queue: string): Promise<number | null | undefined> {
    const { managementUrl } = this.options;
    if (managementUrl === undefined) return undefined;
    return (await queueFacts(managementUrl, this.vhost(), queue, this.link.server.version)).deliveryLimit;
  }

  /** The same at a consumer's start, with what is known here; a management API that does not answer stops nobody. */
  private async accepts(queue: string, maxAttempts: number, options: RabbitQueueOptions): Promise<void> {
    let limit = await this.managedLimit(queue).catch((error: Error) => {
      this.logger.warn(`the delivery limit of queue '${queue}' could not be looked up: ${error.message}`);
      return undefined;
    });
    if (limit === undefined && options.deliveryLimit !== undefined) limit = limitOf(options.deliveryLimit);
    if (limit === undefined) limit = this.limits.get(queue);
    if (limit === undefined && options.type !== "classic") {
      if (Number.parseInt(this.link.server.version, 10) < 4) return;
      const hint =
        "; nothing else is known of it here: give the queue's own limit as deliveryLimit (-1: none), or a managementUrl";
      refuse(queue, maxAttempts, DEFAULT_LIMIT, `RabbitMQ ${this.link.server.version}'s default`, hint);
      return;
    }
    refuse(queue, maxAttempts, limit ?? null);
  }

  private vhost(): string {
    const path = new URL(this.options.url ?? "amqp://x/").pathname.slice(1);
    return path === "" ? "/" : decodeURIComponent(path);
  }

  /** Closes queues and stores (every ack arrives), then the connection. Idempotent. */
  async close(): Promise<void> {
    await Promise.all([...this.queues.values()].map((queue) => queue.close()));
    await Promise.all(this.stores.map((store) => store.close()));
    await this.link.close();
  }
}

/** A limit as an argument; negative is none. */
const limitOf = (argument: number): number | null => (argument < 0 ? null : argument);

function refuse(queue: string, maxAttempts: number, limit: number | null, whose = "", hint = ""): void {
  if (limit === null || limit >= maxAttempts) return;
  throw new DloError(
    "CONFLICT",
    `queue '${queue}' has ${whose === "" ? "" : `${whose} `}delivery limit ${limit}, the consumer maxAttempts ${maxAttempts}: ` +
      `the broker would give messages up first. Raise the limit to at least ${maxAttempts}, or lower maxAttempts to ${limit}${hint}`,
  );
}

/** AMQP names are at most 255 bytes. */
function checkName(name: string): string {
  const bytes = typeof name === "string" ? Buffer.byteLength(name) : 0;
  if (bytes === 0 || bytes > 255) {
    throw new DloError("BAD_ARGUMENT", `a queue name has ${bytes} bytes; expected 1 to 255`);
  }
  return name;
}
