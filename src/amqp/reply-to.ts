import type { Properties } from "../broker/index.ts";
import { AmqpError } from "../broker/index.ts";

/** The queue that is none: answers go straight to the channel that consumes from it. */
export const REPLY_TO = "amq.rabbitmq.reply-to";

/** Takes an answer; false when the channel is gone. */
export type ReplySink = (
  exchange: string,
  routingKey: string,
  properties: Readonly<Properties>,
  body: Uint8Array,
) => void;

/**
 * Direct reply-to: who waits for answers, by the unguessable name that stands in `reply_to`. Nothing of it is
 * kept: an answer to a channel that has gone is unroutable.
 */
export class ReplyTo {
  readonly #sinks = new Map<string, ReplySink>();

  /** Registers a consumer and answers its address. */
  open(secret: string, sink: ReplySink): string {
    const address = `${REPLY_TO}.${secret}`;
    this.#sinks.set(address, sink);
    return address;
  }

  close(address: string): void {
    this.#sinks.delete(address);
  }

  /** Whether this is such a name (not whether anyone is there). */
  static is(name: string): boolean {
    return name.startsWith(`${REPLY_TO}.`);
  }

  find(address: string): ReplySink | undefined {
    return this.#sinks.get(address);
  }

  /** What a request's properties become; @throws AmqpError 406 when the channel does not consume answers. */
  static address(properties: Readonly<Properties>, own: string | null): Readonly<Properties> {
    if (properties.replyTo !== REPLY_TO) return properties;
    if (own === null) throw new AmqpError(406, "fast reply consumer does not exist");
    return { ...properties, replyTo: own };
  }
}
