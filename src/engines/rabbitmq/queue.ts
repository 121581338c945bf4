/**
 * A RabbitMQ queue as the consumer's port.
 *
 * One delivery:  buffered -> out -> acked
 *                              -> retried:  requeued by the broker, or published (ladder, or the queue), confirmed, acked
 *                              -> released: published back uncounted, confirmed, acked
 *                any -> void (its channel has gone: settling it is refused, and the broker hands it out again)
 */
import type { Channel } from "amqplib";
import { uuidv7 } from "uuidv7";
import { DloError, type Message, type Receipt } from "../../core/index.ts";
import type { Logger, Queue, QueueSupports, Resend, RetryOptions } from "../../ports/index.ts";
import type { Verdict } from "./arrivals.ts";
import type { Codec } from "./codec.ts";
import { lookAt, RETURN_MS, surely } from "./counts.ts";
import { explain } from "./faults.ts";
import { cutBytes } from "./headers.ts";
import { type Held, Holdings, messageOf } from "./held.ts";
import { type HopPlan, hopOf, isResend, isThenable, resendOf } from "./hop.ts";
import { Intake } from "./intake.ts";
import { Lane, type Link } from "./link.ts";
import { Neighbours } from "./neighbours.ts";
import { Publisher } from "./publisher.ts";
import type { RabbitQueueOptions } from "./queue-options.ts";
import { ACKS_AT_ONCE, calm, type Rung } from "./topology.ts";
import { joinWorkers } from "./workers.ts";

export interface QueueParts<B> {
  readonly link: Link;
  readonly logger: Logger;
  readonly confirmMs: number;
  readonly now: () => number;
  readonly options: RabbitQueueOptions<B>;
  readonly codec: Codec<B>;
  readonly rungs: readonly Rung[];
  readonly suspects: string | null;
  readonly accepts: (maxAttempts: number) => Promise<void>;
}

const DEFAULT_PREFETCH = 100;
/** Longest wait of `receive` for what the broker says is there, ms. */
const ARRIVAL_MS = 2_000;

/** Made by `rabbit.queue(name, options)`. */
export class RabbitQueue<B = unknown> implements Queue<B> {
  readonly name: string;
  readonly supports: QueueSupports;
  private readonly parts: QueueParts<B>;
  private readonly holdings = new Holdings();
  private readonly lane: Lane;
  private readonly sender: Publisher;
  private readonly mover: Publisher;
  private readonly intake: Intake;
  private readonly neighbours: Neighbours;
  private acks = 0;
  private beginSeen = false;
  private looping = false;
  /** The epoch whose window somebody has waited for. */
  private askedIn = -1;
  private givingUp = false;
  private countless = false;
  /** Until then what was on hand of a lost channel may be nowhere: neither here nor back in the queue. */
  private backBy = Number.NEGATIVE_INFINITY;
  /** Settlements that came too late. */
  stale = 0;

  constructor(name: string, parts: QueueParts<B>) {
    this.name = name;
    this.parts = parts;
    const { options, link, suspects } = parts;
    this.supports = {
      countsCrashes: options.type !== "classic" || suspects !== null || options.ledger !== undefined,
      countsStarts: options.ledger !== undefined,
      delays: parts.rungs.length > 0,
      atomicBury: false,
      generations: true,
    };
    const { confirmMs } = parts;
    this.sender = new Publisher(link, `sending to queue '${name}'`, confirmMs);
    this.mover = new Publisher(link, `retrying from queue '${name}'`, confirmMs);
    this.lane = new Lane(link, {
      what: `consuming queue '${name}'`,
      confirm: false,
      setup: (channel, epoch) => this.intake.setup(channel, epoch),
      lost: (why) => this.lost(why),
    });
    this.intake = new Intake(this.lane, this.holdings, options.prefetch !== undefined, {
      queue: name,
      suspects,
      prefetch: options.prefetch ?? DEFAULT_PREFETCH,
      ledger: options.ledger ?? null,
      ledgerKey: (held) => this.ledgerKey(held),
      logger: parts.logger,
      now: parts.now,
      move: (held, verdict) => this.move(held, verdict),
    });
    this.neighbours = new Neighbours(name, () => this.intake.consumers);
    if (!this.supports.countsCrashes) {
      parts.logger.warn(
        `queue '${name}' is classic: RabbitMQ cannot count the crashes of a consumer there. ` +
          "Use a quorum queue, the suspects queue of setUpTopology, or a ledger",
      );
    }
  }

  /**
   * Sends a body, or a letter's message in its next life. Resolves with the id once the broker has it on this queue.
   * @throws DloError UNROUTABLE (no such queue), REFUSED, TIMED_OUT, NOT_CONNECTED. After the last two it may be
   * there all the same: sending again under the same id is safe.
   */
  async send(message: B | Resend<B>, id?: string): Promise<string> {
    if (id === undefined && isResend<B>(message)) {
      const { content, options } = resendOf(message, this.parts.codec, this.parts.link.user);
      await this.sender.publish("", this.name, content, options);
      return message.id;
    }
    const { content, contentType } = this.parts.codec.encode(message as B);
    const messageId = id ?? uuidv7();
    await this.sender.publish("", this.name, content, {
      messageId,
      persistent: true,
      ...(contentType === undefined ? {} : { contentType }),
    });
    return messageId;
  }

  /**
   * The next message; null when nothing is waiting. With a window (`prefetch`, or a loop that waits with `ready`) it
   * answers at once from what has arrived.
   */
  receive(): Message<B> | null | Promise<Message<B> | null> {
    const held = this.intake.next();
    if (held) return messageOf(held, this.parts.codec);
    this.intake.want();
    // A window that is open is filled by the broker: what is not here is not there, or on its way.
    if (this.looping || (this.intake.push && this.askedIn === this.lane.epoch)) return null;
    return this.intake.push ? this.receivePushed() : this.receivePulled();
  }

  private async receivePulled(): Promise<Message<B> | null> {
    const { suspects } = this.parts;
    try {
      for (;;) {
        const channel = await this.lane.ready(this.parts.confirmMs);
        const epoch = this.lane.epoch;
        if (suspects !== null && this.holdings.byReceipt.size === 0) {
          if (!(await this.intake.takeSuspect(channel, epoch))) await this.intake.leaveSuspects(channel);
        }
        if (!this.holdings.has()) {
          const message = await channel.get(this.name);
          if (!message) return null;
          await this.intake.arrive(message, channel, "work");
        }
        const held = this.intake.next();
        if (held) return messageOf(held, this.parts.codec);
      }
    } catch (error) {
      throw explain(error, `receiving from queue '${this.name}'`);
    }
  }

  /** The first look on a channel, while the window opens: null only when the broker says it has nothing. */
  private async receivePushed(): Promise<Message<B> | null> {
    const until = performance.now() + ARRIVAL_MS;
    for (;;) {
      const channel = await this.lane.ready(this.parts.confirmMs);
      try {
        const waiting = await this.waiting(channel, [], (_, name) => channel.checkQueue(name));
        const held = this.intake.next();
        if (held || this.intake.isOpen) this.askedIn = this.lane.epoch;
        if (held) return messageOf(held, this.parts.codec);
        if (this.intake.quiet() || (waiting === 0 && this.intake.isOpen)) return null;
        if (performance.now() > until) return null;
      } catch (error) {
        throw explain(error, `receiving from queue '${this.name}'`);
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** Ready messages of the queue and what lies beside it, in the order in which messages move on. */
  private async waiting(channel: Channel, ladder: readonly Rung[], look: typeof lookAt): Promise<number> {
    this.intake.flush();
    let count = 0;
    for (const name of [...ladder.map(({ queue }) => queue), this.name, this.parts.suspects])
      if (name !== null) count += (await look(channel, name)).messageCount;
    return count;
  }

  /** @throws DloError STALE_DELIVERY when its channel has gone or it was settled before; the broker has it then. */
  ack(id: string, receipt?: Receipt): void | PromiseLike<void> {
    const held = this.need(id, receipt);
    this.settle(held, "ack");
    return this.parts.options.ledger?.forget(this.ledgerKey(held));
  }

  /**
   * Back to the queue's end, counted; with `delayMs` by way of the ladder. A crash between confirm and ack leaves a
   * second copy under the same id.
   * @throws DloError STALE_DELIVERY; what a publish throws, and the message is then still in flight.
   */
  async retry(id: string, receipt?: Receipt, options: RetryOptions = {}): Promise<void> {
    const held = this.need(id, receipt);
    const delayMs = options.delayMs ?? 0;
    if (delayMs <= 0 && this.mayRequeue(held)) {
      const { receiveCount: counted, forgiven, firstAt } = held;
      this.holdings.remember(held, { counted, forgiven, firstAt });
      this.settle(held, "requeue");
    } else {
      await this.republish(held, this.name, {
        counted: held.receiveCount,
        delayMs,
        started: true,
        error: options.error,
      });
    }
    await this.parts.options.ledger?.end(this.ledgerKey(held), true);
  }

  /** Back to the queue's end, not counted. A crash between confirm and ack leaves a second copy under the same id. */
  async release(id: string, receipt?: Receipt): Promise<void> {
    const held = this.need(id, receipt);
    await this.republish(held, this.name, { counted: held.receiveCount - 1, started: held.begun });
    if (held.begun) await this.parts.options.ledger?.end(this.ledgerKey(held), false);
  }

  /** Notes that the handler is about to start: durably with a ledger, else for this process only. */
  begin(id: string, receipt?: Receipt): Message<B> | PromiseLike<Message<B>> {
    const held = this.need(id, receipt);
    this.beginSeen = true;
    held.begun = true;
    const noted = this.parts.options.ledger?.begin(
      this.ledgerKey(held),
      this.parts.now(),
      held.receiveCount - 1,
    );
    if (noted === undefined) return messageOf(held, this.parts.codec);
    const after = (entry: { counted: number; starts: number }): Message<B> => {
      held.receiveCount = Math.max(held.receiveCount, entry.counted);
      held.starts = entry.starts;
      const message = messageOf(held, this.parts.codec);
      held.shown = { ...message, receiveCount: held.receiveCount, starts: entry.starts };
      return held.shown as Message<B>;
    };
    return isThenable(noted) ? noted.then(after) : after(noted);
  }

  /** Gives this consumer's deliveries up, as if its process had died; RabbitMQ does it itself for real deaths. */
  async recover(): Promise<void> {
    if (!this.lane.channel) return;
    this.givingUp = true;
    try {
      await this.lane.restart("recover");
    } finally {
      this.givingUp = false;
    }
  }

  /** @throws DloError CONFLICT when the broker would give a message up before the consumer does. */
  accepts(maxAttempts: number): Promise<void> {
    return this.parts.accepts(maxAttempts);
  }

  /** @throws DloError CONFLICT when consumers, of whatever process, work here with another maxAttempts. */
  join(maxAttempts: number): Promise<() => Promise<void>> {
    const { link, confirmMs, logger } = this.parts;
    return joinWorkers(link, this.name, maxAttempts, { limitMs: confirmMs, logger });
  }

  /** Waiting here, on the ladder and among the suspects, and in flight in this process. */
  async pending(): Promise<number> {
    const channel = await this.lane.ready(this.parts.confirmMs);
    try {
      const look = async (): Promise<number> =>
        (await this.waiting(channel, this.parts.rungs, lookAt)) + this.holdings.byReceipt.size;
      return await surely(look, () => this.backBy);
    } catch (error) {
      throw explain(error, `looking at queue '${this.name}'`);
    }
  }

  async ready(signal: AbortSignal): Promise<void> {
    this.looping = true;
    await this.intake.waitForWork(signal);
  }

  /**
   * Stops taking deliveries, gives back what was never started (uncounted), and closes the channels so that every
   * ack has arrived. Handlers still running should be awaited before: their messages come back otherwise.
   */
  async close(): Promise<void> {
    await this.intake.stop();
    const onHand = [...this.holdings.byReceipt.values()];
    const back = onHand
      .filter(({ out }) => !out)
      .map((held) =>
        this.republish(held, held.lane === "work" ? this.name : (this.parts.suspects as string), {
          counted: held.receiveCount - 1,
          started: false,
        }),
      );
    for (const result of await Promise.allSettled(back)) {
      if (result.status === "rejected") this.parts.logger.warn((result.reason as Error).message);
    }
    this.intake.flush();
    const { channel } = this.lane;
    if (channel && this.acks > ACKS_AT_ONCE / 2) await calm(channel, this.name).catch(() => {});
    await this.lane.close();
    await Promise.all([this.sender.close(), this.mover.close()]);
  }

  /** The delivery of these bytes that is out under this id; the dead-letter store writes where it came from. */
  peek(id: string, generation: number, raw: Uint8Array | undefined): Held | undefined {
    for (const held of this.holdings.byReceipt.values()) {
      if (!held.out || held.id !== id || held.generation !== generation) continue;
      if (raw === undefined || Buffer.compare(held.message.content, raw) === 0) return held;
    }
    return undefined;
  }

  private need(id: string, receipt: Receipt | undefined): Held {
    const held = this.holdings.find(id, receipt);
    if (held && !held.settling && this.lane.channel === held.settler.channel) return held;
    this.stale++;
    throw new DloError(
      "STALE_DELIVERY",
      `message '${cutBytes(id, 80)}' of queue '${this.name}' is not in flight here any more; the broker hands it out again`,
    );
  }

  /** Together with what else is settled in this turn; at once where one message is taken at a time. */
  private settle(held: Held, fate: "ack" | "requeue"): void {
    this.intake.beforeSettling(held);
    held.settler.settle(held.message, fate);
    if (!this.intake.push) held.settler.flush();
    this.acks++;
    this.holdings.drop(held);
    this.intake.settled();
  }

  /** Whether `basic.reject` with requeue is a retry: it goes to the back, and the broker counts it. */
  private mayRequeue(held: Held): boolean {
    const { options, link } = this.parts;
    if (options.type === "classic" || options.deliveryLimit !== undefined) return false;
    if (held.lane !== "work" || !/^3\./.test(link.server.version)) return false;
    if (held.message.fields.redelivered && held.brokerCount === undefined && !this.countless) {
      this.countless = true;
      this.parts.logger.warn(`queue '${this.name}': RabbitMQ counts no returns there; is it classic?`);
    }
    return !this.countless && this.neighbours.absent(held.settler.channel);
  }

  private async move(held: Held, verdict: Exclude<Verdict, { take: "run" }>): Promise<void> {
    if (verdict.take === "isolate") {
      await this.republish(held, this.parts.suspects as string, { counted: verdict.counted, started: false });
    } else {
      await this.republish(held, this.name, { counted: held.own, delayMs: verdict.delayMs, started: false });
    }
  }

  /** Publish to where it shall be next, wait for the confirm, then ack here: never the other way round. */
  private async republish(held: Held, queue: string, how: HopPlan): Promise<void> {
    held.settling = true;
    try {
      const { rungs, link, now, options: given } = this.parts;
      const hop = hopOf(held, how, {
        rungs,
        user: link.user,
        now: now(),
        ledgered: given.ledger !== undefined,
      });
      await this.mover.publish("", hop.rung?.queue ?? queue, held.message.content, hop.options);
    } catch (error) {
      held.settling = false;
      throw error;
    }
    if (!this.holdings.byReceipt.has(held.receipt)) return; // its channel went: a copy stays, under the same id
    this.settle(held, "ack");
  }

  /** The channel has gone with everything on hand. No process died, so only `recover` makes suspects of it. */
  private lost(_why: string): void {
    this.intake.reset();
    if (this.intake.wanted) this.backBy = performance.now() + RETURN_MS;
    for (const held of this.holdings.clear()) {
      const started = held.begun || (held.out && !this.beginSeen);
      if (held.settling) continue;
      this.holdings.remember(held, {
        counted: started ? held.receiveCount : held.receiveCount - 1,
        forgiven: held.forgiven + (started ? 0 : 1),
        firstAt: held.firstAt,
        crashed: started && this.givingUp,
      });
    }
  }

  private ledgerKey(held: Held): string {
    return `${this.name}\n${held.key}`; // no NUL: SQLite drivers cut texts there
  }
}
