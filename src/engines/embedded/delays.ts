/** The product's own delay: each message at its own time, listed, cancelled and let go by its id. */
import { AmqpError } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import { decodeBody } from "./body.ts";
import type { Host } from "./host.ts";
import { type Duration, parseSpan } from "./options.ts";
import type { EmbeddedQueue } from "./queue.ts";
import { checkDelay } from "./time.ts";
import type { Seen } from "./vhost.ts";

/** When: one of both. */
export interface DelayOptions {
  /** From now: ms, or text such as "30 minutes" or "1h30m". */
  readonly delayMs?: Duration;
  /** At this time: epoch ms or a Date; a time that has passed means at once. */
  readonly at?: number | Date;
  /** The message's id; one is made when absent. */
  readonly id?: string;
}

/** A message that is not due yet. */
export interface Delayed {
  readonly queue: string;
  readonly id: string;
  /** Its number in the broker: unique where ids are not. */
  readonly seq: number;
  readonly dueAt: number;
  readonly body: unknown;
}

export class Delays {
  readonly #host: Host;
  readonly #open: (queue: string) => EmbeddedQueue;
  readonly #queues = new Map<string, EmbeddedQueue>();

  constructor(host: Host, open: (queue: string) => EmbeddedQueue) {
    this.#host = host;
    this.#open = open;
  }

  async add(name: string, body: unknown, options: DelayOptions): Promise<Delayed> {
    const delayMs = this.#delayOf(options);
    const queue = this.#queue(name);
    const dueAt = this.#host.now() + delayMs;
    const { id, seq } = queue.sendDelayed(body, options.id, delayMs);
    await this.#committed();
    return { queue: name, id, seq, dueAt, body };
  }

  #delayOf({ delayMs, at }: DelayOptions): number {
    if ((delayMs === undefined) === (at === undefined))
      throw new DloError("BAD_ARGUMENT", "a delay needs either delayMs or at");
    if (delayMs !== undefined) return parseSpan("delayMs", delayMs);
    const time = at instanceof Date ? at.getTime() : (at as number);
    if (typeof time !== "number" || Number.isNaN(time))
      throw new DloError("BAD_ARGUMENT", `at is ${String(at)}; expected a Date or epoch milliseconds`);
    return checkDelay("at (from now)", Math.max(0, time - this.#host.now()));
  }

  #queue(name: string): EmbeddedQueue {
    let queue = this.#queues.get(name);
    const isGone = queue !== undefined && this.#host.vhost("/")?.queueInfo(name) === undefined;
    if (queue === undefined || isGone) this.#queues.set(name, (queue = this.#open(name)));
    return queue;
  }

  list(queue: string, limit: number): Delayed[] {
    return this.#seen(queue, limit).map(({ state, content }) => ({
      queue,
      id: content.properties.messageId ?? `${queue}#${state.seq}`,
      seq: state.seq,
      dueAt: state.dueAt,
      body: decodeBody(content.body, content.properties.contentType),
    }));
  }

  #seen(queue: string, limit: number): readonly Seen[] {
    this.#host.check();
    return this.#host.vhost("/")?.delayed(queue, limit) ?? [];
  }

  async settle(
    type: "delayed-cancel" | "delayed-release",
    name: string,
    which: Delayed | string,
  ): Promise<boolean> {
    const seq = typeof which === "string" ? this.#seqOf(name, which) : which.seq;
    if (seq === undefined) return false;
    try {
      this.#queue(name).submitDelayed(type, seq);
    } catch (error) {
      if (error instanceof AmqpError && error.code === 404) return false;
      throw error;
    }
    await this.#committed();
    return true;
  }

  #seqOf(queue: string, id: string): number | undefined {
    return this.list(queue, Number.POSITIVE_INFINITY).find((delayed) => delayed.id === id)?.seq;
  }

  #committed(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#host.committer.after((error) => (error === null ? resolve() : reject(error)));
    });
  }
}
