/** A channel with publisher confirms. */
import { DloError } from "../../core/index.ts";
import { Channel } from "./channel.ts";
import type { PublishOptions } from "./channel-message.ts";
import type { Vhost } from "./vhost.ts";

type Confirmed = (error: Error | null) => void;

/** A channel whose publishes are confirmed when they are durable. */
export class ConfirmChannel extends Channel {
  readonly #waiting = new Map<number, Confirmed | undefined>();
  readonly #idle: { resolve: () => void; reject: (why: unknown) => void }[] = [];
  #next = 1;
  #nacked: Error | null = null;

  /** @internal */
  constructor(vhost: Vhost) {
    super(vhost);
    this.submit({ type: "confirm-select" });
  }

  /** As {@link Channel.publish}; `confirmed` is called with null when it is durable, else with why not. */
  override publish(
    exchange: string,
    routingKey: string,
    content: Uint8Array,
    options: PublishOptions = {},
    confirmed?: Confirmed,
  ): boolean {
    const sent = super.publish(exchange, routingKey, content, options);
    if (sent) this.#waiting.set(this.#next++, confirmed);
    return sent;
  }

  override sendToQueue(
    queue: string,
    content: Uint8Array,
    options: PublishOptions = {},
    confirmed?: Confirmed,
  ): boolean {
    return this.publish("", queue, content, options, confirmed);
  }

  protected override confirmed(tag: number, ok: boolean): void {
    const confirmed = this.#waiting.get(tag);
    this.#waiting.delete(tag);
    const error = ok ? null : new DloError("REFUSED", `publish ${tag} was refused: a queue is full`);
    this.#nacked ??= error;
    confirmed?.(error);
    if (this.#waiting.size === 0) this.#settleIdle();
  }

  #settleIdle(): void {
    const why = this.#nacked;
    this.#nacked = null;
    for (const { resolve, reject } of this.#idle.splice(0)) {
      if (why === null) resolve();
      else reject(why);
    }
  }

  /** Resolves when everything published so far is confirmed; rejects when something was refused. */
  waitForConfirms(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#idle.push({ resolve, reject });
      if (this.#waiting.size === 0) this.#settleIdle();
    });
  }

  protected override ended(why: unknown): void {
    const error = why instanceof Error ? why : new DloError("CLOSED", "the channel was closed");
    if (this.#waiting.size > 0) this.#nacked ??= error;
    for (const confirmed of this.#waiting.values()) confirmed?.(error);
    this.#waiting.clear();
    this.#settleIdle();
  }
}
