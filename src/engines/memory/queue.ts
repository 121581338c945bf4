import { DloError, type Message } from "../../core/index.ts";
import type { Clock, Queue, QueueSupports, Resend } from "../../ports/index.ts";

interface Waiting<B> {
  readonly id: string;
  readonly body: B;
  receiveCount: number;
  firstReceivedAt: number;
}

const RESEND_FIELDS = new Set(["id", "body", "generation", "headers", "properties", "raw"]);

/** Whether what is sent is a message under its own id (`{ id, body }`), not a body that happens to be an object. */
export function isResend<B>(message: unknown): message is Resend<B> {
  if (typeof message !== "object" || message === null || Array.isArray(message)) return false;
  const { id } = message as { id?: unknown };
  if (typeof id !== "string" || !("body" in message)) return false;
  return Object.keys(message).every((key) => RESEND_FIELDS.has(key));
}

/** Refuses an id that cannot be one (`BAD_ARGUMENT`). */
export function checkId(id: unknown): string {
  if (typeof id === "string" && id !== "") return id;
  const shown = typeof id === "string" ? "an empty string" : typeof id;
  throw new DloError("BAD_ARGUMENT", `message id is ${shown}; expected a string that is not empty`);
}

/**
 * A queue in memory by the contract, for tests and examples: first in, first out; every receive is counted; what
 * is received stays in flight until it is acked, retried or recovered. It dies with its process.
 *
 * @example
 * const queue = new MemoryQueue();
 * queue.send({ price: -1 }, "order-1");
 * queue.receive(); // { id: "order-1", body: { price: -1 }, receiveCount: 1, firstReceivedAt: ... }
 */
export class MemoryQueue<B = unknown> implements Queue<B> {
  readonly supports: QueueSupports = {
    countsCrashes: true,
    countsStarts: false,
    delays: false,
    atomicBury: false,
    generations: false,
  };
  readonly #clock: Clock;
  #waiting: Waiting<B>[] = [];
  /** Index of the head in `#waiting`: taking from the front of a long array would move all of it. */
  #head = 0;
  /** In flight by id, in order of receipt; several where one id was sent twice. */
  readonly #inFlight = new Map<string, Waiting<B>[]>();
  #flying = 0;
  #next = 1;

  constructor(clock: Clock = { now: Date.now }) {
    this.#clock = clock;
  }

  /** Sends a body under `id` (or a made-up one), or `{ id, body }` under that id. Answers the id. */
  send(message: B | Resend<B>, id?: string): string {
    const resent = id === undefined && isResend<B>(message);
    const own = resent ? checkId(message.id) : id === undefined ? `m${this.#next++}` : checkId(id);
    const body = resent ? message.body : (message as B);
    this.#waiting.push({ id: own, body, receiveCount: 0, firstReceivedAt: 0 });
    return own;
  }

  receive(): Message<B> | null {
    const message = this.#waiting[this.#head];
    if (message === undefined) return null;
    this.#waiting[this.#head++] = undefined as never;
    if (this.#head > 1_000 && this.#head * 2 > this.#waiting.length) this.#compact();
    message.receiveCount++;
    if (message.receiveCount === 1) message.firstReceivedAt = this.#clock.now();
    const same = this.#inFlight.get(message.id);
    if (same) same.push(message);
    else this.#inFlight.set(message.id, [message]);
    this.#flying++;
    const { id, body, receiveCount, firstReceivedAt } = message;
    return { id, body, receiveCount, firstReceivedAt };
  }

  /** @throws DloError `NOT_FOUND` where no message of this id is in flight. */
  ack(id: string): void {
    this.#land(id);
  }

  /** To the back of the queue. @throws DloError `NOT_FOUND` where no message of this id is in flight. */
  retry(id: string): void {
    this.#waiting.push(this.#land(id));
  }

  /** All in-flight messages go back to the front, in the order they were received. Answers how many. */
  recover(): number {
    const back = [...this.#inFlight.values()].flat();
    this.#inFlight.clear();
    this.#flying = 0;
    this.#compact();
    this.#waiting.unshift(...back);
    return back.length;
  }

  pending(): number {
    return this.#waiting.length - this.#head + this.#flying;
  }

  #land(id: string): Waiting<B> {
    const same = this.#inFlight.get(id);
    const message = same?.shift();
    if (same === undefined || message === undefined) {
      throw new DloError("NOT_FOUND", `no message with id ${JSON.stringify(id)} is in flight`);
    }
    if (same.length === 0) this.#inFlight.delete(id);
    this.#flying--;
    return message;
  }

  #compact(): void {
    this.#waiting = this.#waiting.slice(this.#head);
    this.#head = 0;
  }
}
