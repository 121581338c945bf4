// Orders that are cancelled when nobody pays in time, by a waiting queue with a time to live and a dead-letter
// exchange: no timer, no table that is polled. The names are those of the usual Spring AMQP example.
//
//   order.create -> order.topic.exchange -> order.delay.queue (nobody consumes; TTL = time to pay)
//                                              | expired, dead-lettered with the key order.cancel
//                                              v
//                   order.topic.exchange -> order.dl.queue -> cancelled, unless it was paid
//
// The broker and the orders share one data file, so both survive a restart, and a message that comes twice (the
// process died between the cancellation and its ack) finds the order cancelled and changes nothing.
import { type EmbeddedBroker, openBroker } from "dead-letter-office";

export const ORDER_EXCHANGE = "order.topic.exchange";
export const DELAYED_QUEUE = "order.delay.queue";
export const DEAD_LETTER_QUEUE = "order.dl.queue";
export const MAIN_ROUTING_KEY = "order.create";
export const DL_ROUTING_KEY = "order.cancel";

/** How long a customer has to pay. */
export const TIME_TO_PAY = "30 minutes";

export type OrderState = "placed" | "paid" | "cancelled";

export interface DeskOptions {
  readonly file: string;
  /** Milliseconds or text such as "30 minutes". */
  readonly timeToPay?: number | string;
  readonly onCancelled?: (id: string) => void;
}

type Channel = Awaited<ReturnType<EmbeddedBroker["createConfirmChannel"]>>;

export class OrderDesk {
  readonly #broker: EmbeddedBroker;
  readonly #channel: Channel;
  readonly #onCancelled: (id: string) => void;

  private constructor(broker: EmbeddedBroker, channel: Channel, onCancelled: (id: string) => void) {
    this.#broker = broker;
    this.#channel = channel;
    this.#onCancelled = onCancelled;
  }

  /** Opens the desk on a data file, and goes on where the last one ended. */
  static async open({
    file,
    timeToPay = TIME_TO_PAY,
    onCancelled = () => {},
  }: DeskOptions): Promise<OrderDesk> {
    const broker = openBroker({ file });
    const channel = await broker.createConfirmChannel();
    const desk = new OrderDesk(broker, channel, onCancelled);
    await channel.assertExchange(ORDER_EXCHANGE, "topic");
    await channel.assertQueue(DELAYED_QUEUE, {
      messageTtl: timeToPay,
      deadLetterExchange: ORDER_EXCHANGE,
      deadLetterRoutingKey: DL_ROUTING_KEY,
    });
    await channel.assertQueue(DEAD_LETTER_QUEUE);
    await channel.bindQueue(DELAYED_QUEUE, ORDER_EXCHANGE, MAIN_ROUTING_KEY);
    await channel.bindQueue(DEAD_LETTER_QUEUE, ORDER_EXCHANGE, DL_ROUTING_KEY);
    await channel.prefetch(10);
    await channel.consume(DEAD_LETTER_QUEUE, (message) => {
      if (message) void desk.#expired(message);
    });
    return desk;
  }

  /**
   * Takes an order; resolves when its time to pay and then the order are on the disk. The clock starts first: a
   * death in between leaves an order that nobody was promised and that is cancelled, never one that waits for ever.
   */
  async place(id: string): Promise<void> {
    if (this.state(id) !== null) throw new Error(`order ${id} exists`);
    this.#channel.publish(ORDER_EXCHANGE, MAIN_ROUTING_KEY, Buffer.from(JSON.stringify({ order: id })), {
      persistent: true,
      messageId: id,
      contentType: "application/json",
    });
    await this.#channel.waitForConfirms();
    if (this.state(id) !== null) throw new Error(`order ${id} ran out of time while it was placed`);
    await this.#set(id, "placed");
  }

  /** True when it was paid in time; false when it is too late, or there is no such order. */
  async pay(id: string): Promise<boolean> {
    if (this.state(id) !== "placed") return false;
    await this.#set(id, "paid");
    return true;
  }

  /** What became of it; null when there is no such order. */
  state(id: string): OrderState | null {
    return this.#broker.meta.get(`order:${id}`) as OrderState | null;
  }

  async #set(id: string, state: OrderState): Promise<void> {
    await this.#broker.meta.set(`order:${id}`, state);
  }

  async #expired(message: Parameters<Channel["ack"]>[0] & { content: Buffer }): Promise<void> {
    const { order } = JSON.parse(message.content.toString()) as { order: string };
    try {
      const state = this.state(order);
      if (state !== "paid" && state !== "cancelled") {
        await this.#set(order, "cancelled");
        this.#onCancelled(order);
      }
      this.#channel.ack(message);
    } catch {
      this.#channel.nack(message, false, true);
    }
  }

  async close(): Promise<void> {
    await this.#broker.close();
  }
}
