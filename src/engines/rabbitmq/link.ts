/**
 * One connection that comes back, and the channels on it.
 *
 * Link:  connecting -> up -> down -> connecting ...   (connection lost, back-off)
 *        any -> closed                                (close(); or a borrowed connection ended)
 * Lane:  waiting -> opening -> open -> waiting ...    (channel closed by the server, consumer cancelled, link down)
 *        any -> closed
 *
 * A lane is one channel with one purpose. Each opening has a new `epoch`; whatever belongs to an older epoch is
 * void, so that an ack of an old channel is never sent on a new one.
 */
import type { Writable } from "node:stream";
import { type Channel, type ChannelModel, type ConfirmChannel, connect, type Options } from "amqplib";
import { DloError } from "../../core/index.ts";
import type { Logger } from "../../ports/index.ts";
import { explain } from "./faults.ts";

/** First and longest pause between attempts to come back. Half of each pause is by chance, against herds. */
const PAUSE_MS = { first: 100, most: 10_000 } as const;
/** Finds a dead peer in half a minute; RabbitMQ's own proposal of 60 s takes two. */
const HEARTBEAT_S = 15;
/** How long a TCP connection and its handshake may take. */
const CONNECT_MS = 10_000;

export interface LinkOptions {
  readonly url?: string | undefined;
  /** A connection of the caller's: not recovered and not closed by us. */
  readonly connection?: ChannelModel | undefined;
  readonly name: string;
  readonly logger: Logger;
  readonly socket?: Readonly<Record<string, unknown>> | undefined;
}

export class Link {
  readonly options: LinkOptions;
  /** The user name the broker knows us by: the only user-id it lets us publish. */
  readonly user: string;
  /** `host:port`, for messages. */
  readonly where: string;
  model: ChannelModel | null = null;
  /** Why the broker holds publishers just now; null when it does not. */
  blocked: string | null = null;
  /** When the broker last let publishers go on, by performance.now(). */
  freeAt = 0;
  closed = false;
  private attempt = 0;
  private timer: NodeJS.Timeout | undefined;
  private readonly lanes = new Set<Lane>();

  constructor(options: LinkOptions) {
    this.options = options;
    const at = options.url === undefined ? undefined : parseUrl(options.url);
    this.user = at ? decodeURIComponent(at.username) || "guest" : "";
    this.where = at
      ? `${at.hostname}:${at.port || (at.protocol === "amqps:" ? 5671 : 5672)}`
      : "the given connection";
  }

  /** The first connection. @throws DloError NOT_CONNECTED, REFUSED */
  async start(): Promise<void> {
    const { connection, url } = this.options;
    if (connection) {
      this.adopt(connection);
      return;
    }
    if (url === undefined) throw new DloError("BAD_ARGUMENT", "connectRabbitMQ needs a url or a connection");
    this.adopt(await this.dial());
  }

  /** Server properties of the connection that is or was last up. */
  get server(): { readonly product: string; readonly version: string } {
    const { product = "", version = "" } = (this.properties ?? {}) as Record<string, unknown>;
    return { product: String(product), version: String(version) };
  }
  private properties: unknown;

  add(lane: Lane): void {
    this.lanes.add(lane);
    if (this.model) lane.linkUp(this.model);
  }

  remove(lane: Lane): void {
    this.lanes.delete(lane);
  }

  /** Channels first, so that acks on their way arrive; then the connection. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.timer);
    await Promise.all([...this.lanes].map((lane) => lane.close()));
    const model = this.model;
    this.model = null;
    if (model && !this.options.connection)
      await within(
        5_000,
        model.close().catch(() => {}),
      );
  }

  private async dial(): Promise<ChannelModel> {
    const at = parseUrl(this.options.url as string);
    if (!at.searchParams.has("heartbeat")) at.searchParams.set("heartbeat", String(HEARTBEAT_S));
    const socket = {
      noDelay: true, // without it every ack waits 40 ms for the peer's
      keepAlive: true,
      timeout: CONNECT_MS,
      clientProperties: { connection_name: this.options.name },
      ...this.options.socket,
    };
    try {
      return await connect(at.href, socket as Options.Connect & { noDelay: true });
    } catch (error) {
      throw explain(error, `connecting to RabbitMQ at ${this.where}`);
    }
  }

  private adopt(model: ChannelModel): void {
    this.model = model;
    this.blocked = null;
    this.properties = model.connection.serverProperties;
    writeTogether(model);
    let why = "connection closed";
    model.on("error", (error) => (why = error.message));
    model.on("blocked", (reason) => {
      this.blocked = reason;
      this.options.logger.warn(`RabbitMQ at ${this.where} holds publishers: ${reason}`);
    });
    model.on("unblocked", () => {
      this.blocked = null;
      this.freeAt = performance.now();
      this.options.logger.info(`RabbitMQ at ${this.where} takes publishes again`);
    });
    model.on("close", (error) => {
      if (this.model !== model) return;
      this.model = null;
      this.blocked = null;
      this.down(error?.message ?? why);
    });
    for (const lane of this.lanes) lane.linkUp(model);
  }

  private down(why: string): void {
    for (const lane of this.lanes) lane.lost(why);
    if (this.closed) return;
    if (this.options.connection) {
      this.closed = true;
      this.options.logger.error(`the given RabbitMQ connection ended: ${why}`);
      return;
    }
    this.options.logger.warn(`lost RabbitMQ at ${this.where}: ${why}; connecting again`);
    this.attempt = 0;
    this.again();
  }

  private again(): void {
    this.timer = setTimeout(
      async () => {
        try {
          const model = await this.dial();
          if (this.closed) {
            await model.close().catch(() => {});
            return;
          }
          this.options.logger.info(`RabbitMQ at ${this.where} is back`);
          this.adopt(model);
        } catch (error) {
          if (this.closed) return;
          this.options.logger.warn((error as Error).message, { attempt: this.attempt });
          this.again();
        }
      },
      pause(this.attempt++),
    );
  }
}

export interface LaneOptions {
  readonly what: string;
  readonly confirm: boolean;
  /** Declares, consumes ... on each new channel. Rejecting makes the lane wait and try again. */
  setup?(channel: Channel, epoch: number): Promise<void>;
  /** The channel is gone, with everything unsettled on it. */
  lost?(why: string): void;
}

/** One channel with one purpose, opened again whenever it closes. */
export class Lane {
  readonly link: Link;
  readonly options: LaneOptions;
  channel: Channel | null = null;
  epoch = 0;
  private opening = false;
  private attempt = 0;
  private timer: NodeJS.Timeout | undefined;
  private waiters: { resolve: (channel: Channel) => void; reject: (error: Error) => void }[] = [];
  /** Why the last opening failed; told to whoever waits. */
  private trouble: DloError | null = null;
  private closed = false;

  constructor(link: Link, options: LaneOptions) {
    this.link = link;
    this.options = options;
    link.add(this);
  }

  /**
   * The open channel, once there is one.
   * @throws DloError CLOSED; the reason the channel cannot be opened (QUEUE_NOT_FOUND, CONFLICT ...); NOT_CONNECTED
   * after `limitMs`.
   */
  ready(limitMs: number): Channel | Promise<Channel> {
    if (this.channel) return this.channel;
    if (this.closed || this.link.closed) throw new DloError("CLOSED", `${this.options.what}: closed`);
    if (this.trouble && this.trouble.code !== "NOT_CONNECTED") throw this.trouble;
    return new Promise((resolve, reject) => {
      const waiter = {
        resolve: (channel: Channel) => {
          clearTimeout(timer);
          resolve(channel);
        },
        reject: (error: Error) => {
          clearTimeout(timer);
          reject(error);
        },
      };
      const late = (): void => {
        if (this.link.blocked !== null) {
          timer = setTimeout(late, limitMs); // it answers nothing on a connection it holds
          return;
        }
        this.waiters = this.waiters.filter((one) => one !== waiter);
        const words = `${this.options.what}: no connection to ${this.link.where} for ${limitMs} ms`;
        reject(this.trouble ?? new DloError("NOT_CONNECTED", words));
      };
      let timer = setTimeout(late, limitMs);
      this.waiters.push(waiter);
    });
  }

  linkUp(model: ChannelModel): void {
    this.attempt = 0;
    void this.open(model);
  }

  private async open(model: ChannelModel): Promise<void> {
    if (this.opening || this.closed || this.channel) return;
    this.opening = true;
    const epoch = ++this.epoch;
    try {
      const channel = this.options.confirm
        ? ((await model.createConfirmChannel()) as ConfirmChannel)
        : await model.createChannel();
      let why = "channel closed";
      let gone = false;
      channel.on("error", (error) => (why = error.message));
      channel.on("close", () => {
        gone = true;
        this.ended(channel, why);
      });
      await this.options.setup?.(channel, epoch);
      if (gone) throw new Error(why);
      this.opening = false;
      if (this.closed) return void channel.close().catch(() => {});
      this.attempt = 0;
      this.trouble = null;
      this.channel = channel;
      for (const waiter of this.waiters.splice(0)) waiter.resolve(channel);
    } catch (error) {
      this.opening = false;
      this.failed(model, explain(error, this.options.what));
    }
  }

  private failed(model: ChannelModel, error: DloError): void {
    if (this.closed || this.link.model !== model) return;
    if (this.trouble?.message !== error.message) this.link.options.logger.warn(error.message);
    this.trouble = error;
    if (error.code !== "NOT_CONNECTED") for (const waiter of this.waiters.splice(0)) waiter.reject(error);
    this.later(model);
  }

  private ended(channel: Channel, why: string): void {
    if (this.channel !== channel) return;
    this.channel = null;
    this.options.lost?.(why);
    const model = this.link.model;
    if (this.closed || !model) return;
    this.link.options.logger.warn(`${this.options.what}: ${plain(why)}; opening the channel again`);
    this.later(model);
  }

  private later(model: ChannelModel): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => {
        if (this.link.model === model) void this.open(model);
      },
      pause(this.attempt++),
    );
  }

  /** Ends this channel so that a fresh one takes its place; everything unsettled on it goes back to its queue. */
  async restart(why: string): Promise<void> {
    const channel = this.channel;
    if (!channel) return;
    this.channel = null;
    this.options.lost?.(why);
    await within(
      5_000,
      channel.close().catch(() => {}),
    );
    const model = this.link.model;
    if (model && !this.closed) await this.open(model);
  }

  /** The link went down; amqplib closes the channels itself, often before this. */
  lost(why: string): void {
    clearTimeout(this.timer);
    if (!this.channel) return;
    this.channel = null;
    this.options.lost?.(why);
  }

  /** Closes the channel and waits for the answer: what was sent on it has arrived then. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.timer);
    this.link.remove(this);
    const error = new DloError("CLOSED", `${this.options.what}: closed`);
    for (const waiter of this.waiters.splice(0)) waiter.reject(error);
    const channel = this.channel;
    this.channel = null;
    if (channel)
      await within(
        5_000,
        channel.close().catch(() => {}),
      );
  }
}

/**
 * amqplib writes each frame with a system call of its own, which is half the cost of an ack. What it writes in one go
 * leaves in one call this way. The socket is not part of its interface: without it everything works as before.
 */
function writeTogether(model: ChannelModel): void {
  const { stream } = model.connection as unknown as { stream?: Partial<Writable> };
  if (!stream?.write || !stream.cork || !stream.uncork) return;
  const { cork, uncork, write } = stream as Writable;
  let corked = false;
  stream.write = function (this: Writable, ...chunk: unknown[]): boolean {
    if (!corked) {
      corked = true;
      cork.call(stream);
      process.nextTick(() => {
        corked = false;
        uncork.call(stream);
      });
    }
    return (write as (...args: unknown[]) => boolean).apply(stream, chunk);
  } as Writable["write"];
}

function parseUrl(url: string): URL {
  let at: URL;
  try {
    at = new URL(url);
  } catch {
    throw new DloError(
      "BAD_ARGUMENT",
      "the RabbitMQ url is no URL; expected amqp://user:password@host:port/vhost",
    );
  }
  if (at.protocol !== "amqp:" && at.protocol !== "amqps:") {
    throw new DloError(
      "BAD_ARGUMENT",
      `the RabbitMQ url starts with '${at.protocol}', expected amqp: or amqps:`,
    );
  }
  return at;
}

function pause(attempt: number): number {
  const whole = Math.min(PAUSE_MS.most, PAUSE_MS.first * 2 ** Math.min(attempt, 10));
  return whole / 2 + Math.random() * (whole / 2);
}

/** amqplib's words around the broker's, taken off. */
const plain = (why: string): string => why.replace(/^Channel closed by server: /, "closed by the broker: ");

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([work, new Promise((resolve) => (timer = setTimeout(resolve, ms)))]);
  clearTimeout(timer);
}
