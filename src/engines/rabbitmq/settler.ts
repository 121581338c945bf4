/**
 * Acks and returns of one channel. What is settled in one turn of the event loop leaves together: a run of deliveries
 * that share their fate, with nothing unsettled before it, is one frame (`multiple`), and one entry in the log of a
 * quorum queue. Everything else is settled one by one.
 */
import type { Channel, ConsumeMessage, GetMessage } from "amqplib";

type Delivery = ConsumeMessage | GetMessage;

/** One delivery that the broker still waits for. */
interface Open {
  readonly message: Delivery;
  fate: "ack" | "requeue" | null;
}

export class Settler {
  readonly channel: Channel;
  /** By tag, in the order of the tags. */
  private readonly open = new Map<number, Open>();
  /** The last tag seen; null once one came out of turn, for then "all up to this one" may mean one we do not know. */
  private last: number | null = 0;
  /** Decided since the last flush. */
  private decided: Open[] = [];

  constructor(channel: Channel) {
    this.channel = channel;
  }

  /** To be told of every delivery of the channel. */
  taken(message: Delivery): void {
    const { deliveryTag } = message.fields;
    this.last = this.last !== null && deliveryTag === this.last + 1 ? deliveryTag : null;
    this.open.set(deliveryTag, { message, fate: null });
  }

  /** Leaves with the next flush, at the end of this turn at the latest. Only the first fate counts. */
  settle(message: Delivery, fate: "ack" | "requeue"): void {
    const one = this.open.get(message.fields.deliveryTag);
    if (one === undefined || one.fate !== null) return;
    one.fate = fate;
    if (this.decided.push(one) === 1) process.nextTick(() => this.flush());
  }

  /** Writes what is decided, at once. */
  flush(): void {
    if (this.decided.length === 0) return;
    const decided = this.decided;
    this.decided = [];
    try {
      if (this.last !== null) this.flushFront();
      for (const { message, fate } of decided) {
        if (!this.open.delete(message.fields.deliveryTag)) continue;
        if (fate === "ack") this.channel.ack(message);
        else this.channel.nack(message, false, true);
      }
    } catch {
      // The channel has closed: the broker has what was not written, and hands it out again.
    }
  }

  /** The run at the front, as far as it is decided. */
  private flushFront(): void {
    let run: Open | null = null;
    for (const [tag, one] of this.open) {
      if (run !== null && one.fate !== run.fate) this.upTo(run);
      if (one.fate === null) return;
      run = one;
      this.open.delete(tag);
    }
    if (run !== null) this.upTo(run);
  }

  private upTo({ message, fate }: Open): void {
    if (fate === "ack") this.channel.ack(message, true);
    else this.channel.nack(message, true, true);
  }
}
