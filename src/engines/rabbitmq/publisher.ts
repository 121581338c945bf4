/** Publishing that knows what became of it: confirmed, returned, refused, or not known within the time limit. */
import type { Channel, ConfirmChannel, Message, Options } from "amqplib";
import { DloError } from "../../core/index.ts";
import { explain } from "./faults.ts";
import { Lane, type Link } from "./link.ts";

/** One publish whose confirm is awaited. */
interface Outstanding {
  readonly exchange: string;
  readonly routingKey: string;
  readonly messageId: unknown;
  readonly sentAt: number;
  returned: string | null;
  settled: boolean;
  readonly done: Done;
}

/** What became of a publish: null when the broker has it. */
type Done = (error: DloError | null) => void;

/** A confirm channel for one purpose. Every publish is mandatory and resolves only when the broker has taken it. */
export class Publisher {
  private readonly lane: Lane;
  private readonly what: string;
  private readonly limitMs: number;
  /** In the order of sending; confirmed ones are shifted off the front lazily. */
  private outstanding: Outstanding[] = [];
  private timer: NodeJS.Timeout | undefined;

  constructor(link: Link, what: string, limitMs: number) {
    this.what = what;
    this.limitMs = limitMs;
    this.lane = new Lane(link, {
      what,
      confirm: true,
      setup: async (channel) => {
        channel.on("return", (message) => this.returned(message));
      },
    });
  }

  /**
   * Resolves when the broker has taken the message for at least one queue.
   * @throws DloError UNROUTABLE no queue would get it; REFUSED the queue is full and refuses; TIMED_OUT no answer
   * within the limit; NOT_CONNECTED the channel went first. After the last two the message may or may not be there.
   */
  publish(
    exchange: string,
    routingKey: string,
    content: Uint8Array,
    options: Options.Publish,
  ): Promise<void> {
    return new Promise((resolve, reject) =>
      this.hand(exchange, routingKey, content, options, (error) =>
        error === null ? resolve() : reject(error),
      ),
    );
  }

  /** The same for those who publish many: `done` is called once, perhaps before this returns. */
  hand(
    exchange: string,
    routingKey: string,
    content: Uint8Array,
    options: Options.Publish,
    done: Done,
  ): void {
    const send = (channel: Channel): void =>
      this.send(channel, { exchange, routingKey, content, options, done });
    try {
      const open = this.lane.ready(this.limitMs);
      if (open instanceof Promise) open.then(send, done);
      else send(open);
    } catch (error) {
      done(error as DloError);
    }
  }

  private send(
    channel: Channel,
    job: {
      exchange: string;
      routingKey: string;
      content: Uint8Array;
      options: Options.Publish;
      done: Done;
    },
  ): void {
    const { exchange, routingKey, content, options, done } = job;
    const one: Outstanding = {
      exchange,
      routingKey,
      messageId: options.messageId,
      sentAt: performance.now(),
      returned: null,
      settled: false,
      done,
    };
    const bytes = Buffer.from(content.buffer, content.byteOffset, content.byteLength);
    try {
      (channel as ConfirmChannel).publish(
        exchange,
        routingKey,
        bytes,
        { ...options, mandatory: true },
        (error) => this.confirmed(one, error),
      );
    } catch (error) {
      done(explain(error, `${this.what}: publishing to ${target(exchange, routingKey)}`));
      return;
    }
    this.outstanding.push(one);
    this.timer ??= setTimeout(() => this.sweep(), this.limitMs);
  }

  private confirmed(one: Outstanding, error: unknown): void {
    if (one.settled) return;
    one.settled = true;
    while (this.outstanding[0]?.settled) this.outstanding.shift();
    const to = target(one.exchange, one.routingKey);
    if (one.returned !== null) {
      one.done(
        new DloError(
          "UNROUTABLE",
          `${this.what}: no queue takes ${to} (${one.returned}); the message was not sent`,
        ),
      );
    } else if (error === null || error === undefined) {
      one.done(null);
    } else if ((error as Error).message === "message nacked") {
      one.done(
        new DloError("REFUSED", `${this.what}: the broker refused the message for ${to} (a full queue?)`),
      );
    } else {
      one.done(
        new DloError("NOT_CONNECTED", `${this.what}: the channel closed before ${to} was confirmed`, {
          cause: error,
        }),
      );
    }
  }

  /** The broker returns a message just before it confirms it; the oldest that looks the same is the one. */
  private returned(message: Message): void {
    const { exchange, routingKey, replyText } = message.fields as unknown as {
      exchange: string;
      routingKey: string;
      replyText?: string;
    };
    const one = this.outstanding.find(
      (each) =>
        !each.settled &&
        each.returned === null &&
        each.exchange === exchange &&
        each.routingKey === routingKey &&
        each.messageId === (message.properties.messageId as unknown),
    );
    if (one) one.returned = replyText ?? "NO_ROUTE";
  }

  /**
   * One timer for all. While the broker holds publishers nobody's time runs: they would only be sent twice. When it
   * lets them go everybody's time begins anew, for it has what was written meanwhile still to read.
   */
  private sweep(): void {
    this.timer = undefined;
    const now = performance.now();
    const { blocked, freeAt } = this.lane.link;
    if (blocked === null) {
      for (const one of this.outstanding) {
        if (now - Math.max(one.sentAt, freeAt) < this.limitMs) break;
        if (one.settled) continue;
        one.settled = true;
        const to = target(one.exchange, one.routingKey);
        one.done(
          new DloError("TIMED_OUT", `${this.what}: ${to} was not confirmed within ${this.limitMs} ms`),
        );
      }
      while (this.outstanding[0]?.settled) this.outstanding.shift();
    }
    const oldest = this.outstanding[0];
    if (oldest) {
      const left = Math.max(50, this.limitMs - (now - Math.max(oldest.sentAt, freeAt)));
      this.timer = setTimeout(() => this.sweep(), left);
    }
  }

  async close(): Promise<void> {
    clearTimeout(this.timer);
    await this.lane.close();
  }
}

const target = (exchange: string, routingKey: string): string =>
  exchange === "" ? `queue '${routingKey}'` : `exchange '${exchange}' with routing key '${routingKey}'`;
