/**
 * Sending letters back from a RabbitMQ dead-letter queue, each once.
 *
 * One letter: taken (unacked) -> published (mandatory), confirmed -> acked
 *                             -> not sent: stays, and is back in its place when the channel closes
 * A crash anywhere leaves the letter in its queue; between confirm and ack the message is sent as well, in the same
 * life, and the letter sent again later collapses with it by id and generation.
 */
import type { Channel, ConsumeMessage, GetMessage } from "amqplib";
import { DloError } from "../../core/index.ts";
import { consumeWhole, mayLook } from "./browse.ts";
import { cargoOf, hopOptions, idOf } from "./codec.ts";
import { lookAt } from "./counts.ts";
import { explain } from "./faults.ts";
import { H, type Headers, readDeath } from "./headers.ts";
import { digestOf, kindOf } from "./known.ts";
import type { Link } from "./link.ts";
import { Publisher } from "./publisher.ts";
import { Settler } from "./settler.ts";
import { ACKS_AT_ONCE, backAgain, calm } from "./topology.ts";

export interface ReplayOptions {
  /** The dead-letter queue. */
  readonly from: string;
  /** The queue to send to; absent: the one each letter came from. */
  readonly to?: string;
  /** `exchange`: by the exchange and routing key of the first publish, so that every queue bound there gets a copy. */
  readonly via?: "queue" | "exchange";
  /** Only these message ids. */
  readonly ids?: readonly string[];
  /** At most so many. */
  readonly limit?: number;
}

export interface ReplayResult {
  /** Ids sent, in order. */
  readonly sent: readonly string[];
  /** What was not sent stays in the queue. */
  readonly failed: readonly { readonly id: string; readonly why: string }[];
}

/** Letters on their way at once. */
const WINDOW = 1_000;
/** How often a replay looks whether there is anything left, ms. */
const IDLE_MS = 100;

export async function replayLetters(
  link: Link,
  confirmMs: number,
  options: ReplayOptions,
  managedLimit: (queue: string) => Promise<number | null | undefined>,
): Promise<ReplayResult> {
  const { model } = link;
  if (!model)
    throw new DloError("NOT_CONNECTED", `replaying '${options.from}': no connection to ${link.where}`);
  // What is looked at and stays (not wanted, not sendable) is a return as well.
  await mayLook(link, options.from, () => managedLimit(options.from));
  const publisher = new Publisher(link, `replaying '${options.from}'`, confirmMs);
  try {
    const channel = await model.createChannel();
    channel.on("error", () => {});
    const run = new Replay(channel, publisher, link.user, options);
    try {
      const result = await run.all();
      run.settler.flush();
      if (result.sent.length > ACKS_AT_ONCE / 2) await calm(channel, options.from);
      return result;
    } finally {
      await channel.close().catch(() => {});
      await backAgain(model, options.from, run.kept).catch(() => {});
    }
  } catch (error) {
    throw explain(error, `replaying '${options.from}'`);
  } finally {
    await publisher.close();
  }
}

class Replay {
  readonly settler: Settler;
  private readonly channel: Channel;
  private readonly publisher: Publisher;
  private readonly user: string;
  private readonly options: ReplayOptions;
  private readonly wanted: Set<string> | null;
  private readonly sent: string[] = [];
  private readonly failed: { id: string; why: string }[] = [];
  /** Keys sent in this run: a second copy of a letter is only taken away. */
  private readonly done = new Set<string>();
  /** Looked at and left in the queue. */
  kept = 0;
  /** Published, not yet confirmed. */
  private underWay = 0;
  private whenDone = (): void => {};

  constructor(channel: Channel, publisher: Publisher, user: string, options: ReplayOptions) {
    this.channel = channel;
    this.settler = new Settler(channel);
    this.publisher = publisher;
    this.user = user;
    this.options = options;
    this.wanted = options.ids ? new Set(options.ids) : null;
  }

  async all(): Promise<ReplayResult> {
    const { from, limit = Number.POSITIVE_INFINITY } = this.options;
    // Only what is there now: a letter that dies again during the replay is not sent round and round.
    const { messageCount } = await lookAt(this.channel, from);
    if (messageCount > 0) await this.consume(messageCount, limit);
    if (this.underWay > 0) await new Promise<void>((resolve) => (this.whenDone = resolve));
    const seen = new Set([...this.sent, ...this.failed.map(({ id }) => id)]);
    for (const id of this.wanted ?? []) {
      if (!seen.has(id)) {
        this.failed.push({
          id,
          why: `not in '${from}' (replayed before, or being replayed by someone else)`,
        });
      }
    }
    return { sent: this.sent.filter((id) => id !== undefined), failed: this.failed };
  }

  /**
   * By a consumer, not by gets: RabbitMQ gives a consumer's deliveries back in their order, and those of many gets in
   * none. With a choice of ids everything is looked at; without, a window at a time.
   */
  private async consume(most: number, limit: number): Promise<void> {
    const { from } = this.options;
    let seen = 0;
    let idle: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve, reject) => {
      this.channel.once("close", () =>
        reject(new DloError("NOT_CONNECTED", "the channel closed during the replay")),
      );
      // Someone else may take a part of the letters: it is over too when nothing comes and nothing is there.
      const look = async (): Promise<void> => {
        const before = seen;
        const { messageCount } = await lookAt(this.channel, from);
        if (messageCount === 0 && seen === before && this.underWay === 0) resolve();
        else idle = setTimeout(() => look().catch(reject), IDLE_MS);
      };
      const onMessage = (message: ConsumeMessage | null): boolean => {
        if (message === null) {
          reject(new DloError("QUEUE_NOT_FOUND", "the queue was deleted during the replay"));
          return false;
        }
        this.settler.taken(message);
        // What is not taken stays unacked: back in its place when the channel closes.
        const over = (): boolean => seen >= most || this.done.size >= limit || this.failed.length >= WINDOW;
        if (over()) return true;
        seen++;
        this.kept++;
        if (!this.wanted || this.wanted.has(idOf(message))) this.take(message, () => over() && resolve());
        if (over() && this.underWay === 0) resolve();
        return true;
      };
      const window = this.wanted ? most : WINDOW;
      consumeWhole(this.channel, from, window, onMessage).then(look).catch(reject);
    }).finally(() => clearTimeout(idle));
    if (this.failed.length >= WINDOW) {
      this.failed.push({ id: "*", why: "the rest was not tried: too many before it cannot be sent" });
    }
  }

  private take(message: ConsumeMessage, then: () => void): void {
    const id = idOf(message);
    const { generation = 1, sourceQueue } =
      readDeath(message.properties.headers as Headers | undefined, 0) ?? {};
    // The same id with another body, or from another queue, is another letter.
    const key = `${generation} ${kindOf(digestOf(message.content), sourceQueue)} ${id}`;
    if (this.done.has(key)) {
      this.takeAway(message);
      then();
      return;
    }
    this.done.add(key);
    this.underWay++;
    // In the order of the queue, whatever the order of the confirms.
    const place = this.sent.push(id) - 1;
    const ended = (error: unknown): void => {
      this.underWay--;
      if (error === null) this.takeAway(message);
      else {
        delete this.sent[place];
        this.failed.push({ id, why: explain(error, "sending").message });
      }
      then();
      if (this.underWay === 0) this.whenDone();
    };
    try {
      const { exchange, routingKey } = this.target(message, sourceQueue);
      const own = {
        [H.generation]: generation + 1,
        [H.id]: message.properties.messageId === id ? undefined : id,
      };
      const options = hopOptions(cargoOf(message), own, this.user, true);
      this.publisher.hand(exchange, routingKey, message.content, options, ended);
    } catch (error) {
      ended(error);
    }
  }

  private takeAway(message: ConsumeMessage | GetMessage): void {
    this.settler.settle(message, "ack");
    this.kept--;
  }

  private target(
    message: ConsumeMessage | GetMessage,
    source: string | undefined,
  ): { exchange: string; routingKey: string } {
    const { to, via, from } = this.options;
    if (via !== "exchange") {
      const queue = to ?? source;
      if (queue === undefined) {
        throw new DloError(
          "BAD_ARGUMENT",
          `a letter in '${from}' does not say which queue it came from; name one with 'to'`,
        );
      }
      return { exchange: "", routingKey: queue };
    }
    const headers = (message.properties.headers ?? {}) as Headers;
    const deaths = headers["x-death"];
    const death = (Array.isArray(deaths) ? deaths[0] : undefined) as Record<string, unknown> | undefined;
    const keys = death?.["routing-keys"];
    const exchange = headers[H.exchange] ?? death?.["exchange"];
    const routingKey = headers[H.routingKey] ?? (Array.isArray(keys) ? keys[0] : undefined);
    if (typeof exchange !== "string" || typeof routingKey !== "string") {
      throw new DloError("BAD_ARGUMENT", `a letter in '${from}' does not say by which exchange it came`);
    }
    return { exchange, routingKey };
  }
}
