/**
 * How deliveries come in, so that a message that may kill runs alone.
 *
 *   pull:  one basic.get for each receive; the suspects queue first while nothing is out
 *   push:  probing  --the front is fresh, or nothing is there--> alone
 *          alone    --no suspect waits--> open
 *          open     --a message was isolated, or suspects were found waiting--> draining
 *          draining --the window is empty--> alone: one suspect is taken and given out --settled--> alone
 *   any    --channel gone--> idle, then pull or probing on the next channel
 *
 * While alone nothing but the suspect is leased: if it kills the process, nobody else is there to be counted. A
 * redelivered message of unknown history moves to the suspects queue (publish, confirm, ack); a crash between
 * confirm and ack leaves it in both, under one id.
 */
import type { Channel, ConsumeMessage, GetMessage } from "amqplib";
import { judge, type Verdict } from "./arrivals.ts";
import { H, type Headers, whole } from "./headers.ts";
import type { Held, Holdings } from "./held.ts";
import type { IntakeOptions } from "./intake-options.ts";
import type { LedgerEntry } from "./ledger.ts";
import type { Lane } from "./link.ts";
import { Settler } from "./settler.ts";
import { OneAtATime, Wakers } from "./wakers.ts";

/** How long a process that is alone waits for its turn at the suspects, ms; another's may take far longer. */
const TURN_MS = 250;

/** How often an open window looks for suspects left by a process that did not come back, ms. */
const LOOK_MS = 30_000;

export class Intake {
  readonly options: IntakeOptions;
  readonly holdings: Holdings;
  private readonly lane: Lane;
  push: boolean;
  private phase: "idle" | "probing" | "alone" | "open" | "draining" = "idle";
  /** Moves under way; nothing is given out before they are done. */
  private moving = 0;
  /** Something was moved to the suspects queue since the window opened. */
  private isolated = false;
  private tag: string | undefined;
  private suspectTag: string | undefined;
  private epoch = 0;
  private settler: Settler | null = null;
  private timer: NodeJS.Timeout | undefined;
  private readonly wakers = new Wakers();
  stopped = false;
  /** Somebody has received: what RabbitMQ has given us is nowhere else. */
  wanted = false;
  private decision = new OneAtATime();

  constructor(lane: Lane, holdings: Holdings, push: boolean, options: IntakeOptions) {
    this.lane = lane;
    this.holdings = holdings;
    this.push = push;
    this.options = options;
  }

  /** On each new channel, before it is used. @throws amqplib's error when a queue is missing. */
  async setup(channel: Channel, epoch: number): Promise<void> {
    this.epoch = epoch;
    this.decision = new OneAtATime();
    this.settler = new Settler(channel);
    await channel.checkQueue(this.options.queue);
    if (this.options.suspects !== null) await channel.checkQueue(this.options.suspects);
    channel.on("cancel", () => {});
    if (this.push && this.wanted) void this.startPush(channel, epoch);
  }

  /** Somebody receives: from now on deliveries may be leased. A queue that is only sent to never consumes. */
  want(): void {
    if (this.wanted) return;
    this.wanted = true;
    const { channel, epoch } = this.lane;
    if (this.push && channel) void this.startPush(channel, epoch);
  }

  /** Before a suspect is settled by a process that takes one message at a time: the next one is for anybody. */
  beforeSettling(held: Held): void {
    if (this.push || held.lane !== "suspects" || this.suspectTag === undefined) return;
    const tag = this.suspectTag;
    this.suspectTag = undefined;
    held.settler.channel.cancel(tag).catch(() => {});
  }

  /** The channel has gone, or is about to be closed. */
  reset(): void {
    this.flush();
    clearTimeout(this.timer);
    this.phase = "idle";
    this.tag = undefined;
    this.suspectTag = undefined;
    this.epoch = -1;
    this.settler = null;
    this.isolated = false;
  }

  /** Whether what is not on hand now will not come without a settlement: `receive` may answer null. */
  quiet(): boolean {
    if (this.moving > 0) return false;
    if (this.phase === "open") return this.holdings.byReceipt.size >= this.options.prefetch;
    return this.phase === "draining" || this.phase === "alone" ? this.holdings.out > 0 : false;
  }

  /** Consumers of the work queue that are ours. */
  get consumers(): number {
    return this.tag === undefined ? 0 : 1;
  }

  get isOpen(): boolean {
    return this.phase === "open" && this.moving === 0;
  }

  /** From single gets to a window. */
  toPush(): void {
    this.push = true;
    this.wanted = true;
    const { channel, epoch } = this.lane;
    if (channel) void this.startPush(channel, epoch);
  }

  private alive(channel: Channel, epoch: number): boolean {
    return (
      !this.stopped && this.epoch === epoch && (this.lane.channel === channel || this.lane.channel === null)
    );
  }

  private async startPush(channel: Channel, epoch: number): Promise<void> {
    if (this.phase !== "idle") return;
    this.phase = "probing";
    await this.guarded(epoch, async () => {
      await this.probe(channel, epoch);
      if (this.alive(channel, epoch)) await this.whenEmpty(channel, epoch);
    });
  }

  /** Takes the work queue's front by single gets until something is there that is surely no suspect. */
  private async probe(channel: Channel, epoch: number): Promise<void> {
    for (let taken = 0; taken < this.options.prefetch && this.alive(channel, epoch); ) {
      const message = await channel.get(this.options.queue);
      if (!message) return;
      const held = await this.arrive(message, channel, "work");
      if (held === null) continue;
      taken++;
      if (!message.fields.redelivered) return;
    }
  }

  /** With nothing on hand: what comes next. One at a time, or a window would be opened twice. */
  private whenEmpty(channel: Channel, epoch: number): Promise<void> {
    const more = (): boolean =>
      this.alive(channel, epoch) && this.phase !== "open" && this.holdings.byReceipt.size === 0;
    return this.decision.run(() => this.decide(channel, epoch), more);
  }

  /** The next suspect, or, when there is none, the full window. */
  private async decide(channel: Channel, epoch: number): Promise<void> {
    const { suspects } = this.options;
    if (suspects === null) return this.open(channel, epoch);
    this.phase = "alone";
    const others = this.holdings.byReceipt.size - (this.holdings.suspect ? 1 : 0);
    if (others > 0) {
      // What was probed runs first; if no suspect waits there is no need to hold the window for it.
      const { messageCount } = await channel.checkQueue(suspects);
      if (!this.alive(channel, epoch)) return;
      if (messageCount === 0 && !this.holdings.suspect) return this.open(channel, epoch);
      if (this.holdings.byReceipt.size > 0) {
        this.phase = "draining";
        return this.wakers.wake();
      }
    }
    if (await this.takeSuspect(channel, epoch)) return this.wakers.wake();
    await this.leaveSuspects(channel);
    await this.open(channel, epoch);
  }

  /**
   * Waits for a suspect to be given to us, with nothing else on hand; false when none waits, or another process has
   * its turn (the queue has a single active consumer: one suspect at a time, whoever runs it).
   */
  async takeSuspect(channel: Channel, epoch: number): Promise<boolean> {
    const { suspects } = this.options;
    if (suspects === null || this.holdings.suspectOut) return false;
    if (this.holdings.suspect) return true;
    const { messageCount } = await channel.checkQueue(suspects);
    if (this.holdings.suspect) return true;
    if (messageCount === 0 || !this.alive(channel, epoch)) return false;
    if (this.suspectTag === undefined) {
      await channel.prefetch(1);
      const { consumerTag } = await channel.consume(
        suspects,
        (message) => void this.onSuspect(message, channel, epoch),
      );
      this.suspectTag = consumerTag;
    }
    const until = performance.now() + TURN_MS;
    while (!this.holdings.suspect && this.alive(channel, epoch) && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return this.holdings.suspect !== null;
  }

  /** Lets other processes have the suspects; one that arrives meanwhile is still ours. */
  async leaveSuspects(channel: Channel): Promise<void> {
    const tag = this.suspectTag;
    this.suspectTag = undefined;
    if (tag !== undefined) await channel.cancel(tag);
  }

  private async onSuspect(message: ConsumeMessage | null, channel: Channel, epoch: number): Promise<void> {
    if (message === null) return this.cancelled(this.options.suspects ?? "");
    if (this.epoch !== epoch) return;
    await this.guarded(epoch, async () => {
      await this.arrive(message, channel, "suspects");
      // It came while we were leaving: the window closes for it.
      if (this.phase === "open") await this.drain(channel, epoch);
      this.wakers.wake();
    });
  }

  private async open(channel: Channel, epoch: number): Promise<void> {
    if (!this.alive(channel, epoch)) return;
    this.phase = "open";
    await channel.prefetch(this.options.prefetch);
    const { consumerTag } = await channel.consume(
      this.options.queue,
      (message) => void this.onWork(message, channel, epoch),
    );
    this.tag = consumerTag;
    this.wakers.wake();
    if (this.isolated) return this.drain(channel, epoch);
    if (this.options.suspects !== null) this.lookLater(channel, epoch);
  }

  private lookLater(channel: Channel, epoch: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      void this.guarded(epoch, async () => {
        if (this.phase !== "open") return;
        const { messageCount } = await channel.checkQueue(this.options.suspects as string);
        if (messageCount > 0) await this.drain(channel, epoch);
        else this.lookLater(channel, epoch);
      });
    }, LOOK_MS);
    this.timer.unref();
  }

  /** Ends the window: what is in it still runs, then the suspects, one by one. */
  private async drain(channel: Channel, epoch: number): Promise<void> {
    if (this.phase !== "open" || this.tag === undefined) return;
    this.phase = "draining";
    this.isolated = false;
    const tag = this.tag;
    this.tag = undefined;
    await channel.cancel(tag);
    if (this.alive(channel, epoch) && this.holdings.byReceipt.size === 0)
      await this.whenEmpty(channel, epoch);
  }

  /** A delivery on hand was settled: what was waiting for that may go on. */
  settled(): void {
    this.wakers.wake();
    const channel = this.lane.channel;
    if (!channel || !this.push || this.stopped || this.holdings.byReceipt.size > 0) return;
    if (this.phase !== "draining" && this.phase !== "alone") return;
    const epoch = this.lane.epoch;
    void this.guarded(epoch, () => this.whenEmpty(channel, epoch));
  }

  private async guarded(epoch: number, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.fault(error, epoch);
    }
  }

  private async onWork(message: ConsumeMessage | null, channel: Channel, epoch: number): Promise<void> {
    if (message === null) return this.cancelled(this.options.queue);
    if (this.epoch !== epoch) return;
    const arrived = this.arrive(message, channel, "work");
    if (arrived instanceof Promise) await arrived.catch((error) => this.fault(error, epoch));
  }

  /** Judges a delivery and puts it where it belongs; null when it was moved away. Synchronous for a fresh one. */
  arrive(
    message: ConsumeMessage | GetMessage,
    channel: Channel,
    lane: Held["lane"],
  ): Held | null | Promise<Held | null> {
    const { settler } = this;
    if (settler?.channel !== channel) return null; // its channel went meanwhile
    const held = this.holdings.take(message, settler, this.epoch, lane, this.options.now());
    const { ledger } = this.options;
    if (!ledger) return this.place(held, undefined);
    const entry = ledger.look(this.options.ledgerKey(held));
    if (entry && typeof (entry as PromiseLike<unknown>).then === "function") {
      return (async () => this.place(held, (await entry) ?? undefined))();
    }
    return this.place(held, (entry as LedgerEntry | undefined) ?? undefined);
  }

  private place(held: Held, entry: LedgerEntry | undefined): Held | null | Promise<Held | null> {
    const headers = held.message.properties.headers as Headers | undefined;
    const verdict = judge({
      lane: held.lane,
      redelivered: held.message.fields.redelivered,
      brokerCount: held.brokerCount,
      own: held.own,
      dueAt: whole(headers?.[H.dueAt]),
      now: this.options.now(),
      known: this.holdings.recall(held),
      ledger: this.options.ledger ? (entry ?? { counted: 0, open: false }) : undefined,
      isolates: this.options.suspects !== null,
    });
    if (entry) held.starts = entry.starts;
    if (verdict.take === "run") {
      this.holdings.accept(held, verdict);
      this.wakers.wake();
      return held;
    }
    return this.moveAway(held, verdict);
  }

  private async moveAway(held: Held, verdict: Exclude<Verdict, { take: "run" }>): Promise<Held | null> {
    this.moving++;
    try {
      await this.options.move(held, verdict);
      if (verdict.take === "isolate") this.isolated = true;
      return null;
    } catch (error) {
      if (!this.holdings.byReceipt.has(held.receipt)) return null; // its channel went meanwhile
      // It cannot be moved: better handled where it is, alone in its process, than held for ever.
      const { queue, logger } = this.options;
      logger.warn(`queue '${queue}': ${(error as Error).message}; handled in its place`, { id: held.id });
      const counted = verdict.take === "isolate" ? verdict.counted : held.own;
      this.holdings.accept(held, {
        take: "run",
        receiveCount: counted + 1,
        suspect: verdict.take === "isolate",
      });
      return held;
    } finally {
      this.moving--;
      this.wakers.wake();
      const { channel, epoch } = this.lane;
      if (this.isolated && this.moving === 0 && channel) {
        void this.guarded(epoch, () => this.drain(channel, epoch));
      }
    }
  }

  /** The next delivery on hand, if it may be given out now. */
  next(): Held | null {
    return this.moving > 0 ? null : this.holdings.next();
  }

  /** What was settled leaves now: before the broker is asked how things stand, or the channel closes. */
  flush(): void {
    this.settler?.flush();
  }

  /** Resolves when `next` may have something. */
  async waitForWork(signal: AbortSignal): Promise<void> {
    this.toPush();
    while (!signal.aborted && !this.stopped && (this.moving > 0 || !this.holdings.has())) {
      await this.wakers.next(signal);
    }
  }

  /** No more deliveries; what is on hand stays. */
  async stop(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    this.wakers.wake();
    const channel = this.lane.channel;
    const tag = this.tag;
    this.tag = undefined;
    if (channel && tag !== undefined) await channel.cancel(tag).catch(() => {});
  }

  /** The broker ended our consumer: the queue was deleted, or its node left. A new channel finds out. */
  private cancelled(queue: string): void {
    if (this.stopped) return;
    this.options.logger.warn(`queue '${queue}': the broker cancelled the consumer`);
    void this.lane.restart("consumer cancelled by the broker");
  }

  private fault(error: unknown, epoch: number): void {
    if (this.stopped || this.epoch !== epoch) return;
    this.options.logger.warn(`queue '${this.options.queue}': ${(error as Error).message}`);
    void this.lane.restart("the consumer could not be set up");
  }
}
