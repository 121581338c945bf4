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
  readonly resolve: () => void;
  readonly reject: (error: DloError) => void;
}

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
  async publish(
    exchange: string,
    routingKey: string,
    content: Uint8Array,
    options: Options.Publish,
  ): Promise<void> {
    const open = this.lane.ready(this.limitMs);
    const channel = open instanceof Promise ? await open : open;
    await new Promise<void>((resolve, reject) =>
      this.send(channel, { exchange, routingKey, content, options, resolve, reject }),
    );
  }

  private send(
    channel: Channel,
    job: {
      exchange: string;
      routingKey: string;
      content: Uint8Array;
      options: Options.Publish;
      resolve: () => void;
      reject: (error: DloError) => void;
    },
  ): void {
    const { exchange, routingKey, content, options, resolve, reject } = job;
    const one: Outstanding = {
      exchange,
      routingKey,
      messageId: options.messageId,
      sentAt: performance.now(),
      returned: null,
      settled: false,
      resolve,
      reject,
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
      reject(explain(error, `${this.what}: publishing to ${target(exchange, routingKey)}`));
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
      one.reject(
        new DloError(
          "UNROUTABLE",
          `${this.what}: no queue takes ${to} (${one.returned}); the message was not sent`,
        ),
      );
    } else if (error === null || error === undefined) {
      one.resolve();
    } else if ((error as Error).message === "message nacked") {
      one.reject(
        new DloError("REFUSED", `${this.what}: the broker refused the message for ${to} (a full queue?)`),
      );
    } else {
      one.reject(
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
        one.reject(
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
