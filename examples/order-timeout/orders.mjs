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
import { openBroker } from "dead-letter-office";

export const ORDER_EXCHANGE = "order.topic.exchange";
export const DELAYED_QUEUE = "order.delay.queue";
export const DEAD_LETTER_QUEUE = "order.dl.queue";
export const MAIN_ROUTING_KEY = "order.create";
export const DL_ROUTING_KEY = "order.cancel";

/** How long a customer has to pay. */
export const TIME_TO_PAY = "30 minutes";

export class OrderDesk {
  #broker;
  #channel;
  #onCancelled;

  /**
   * Opens the desk on a data file.
   * @param {{ file: string, timeToPay?: number | string, onCancelled?: (id: string) => void }} options
   */
  static async open({ file, timeToPay = TIME_TO_PAY, onCancelled = () => {} }) {
    const desk = new OrderDesk();
    desk.#broker = openBroker({ file });
    desk.#onCancelled = onCancelled;
    desk.#channel = await desk.#broker.createConfirmChannel();
    await desk.#declare(timeToPay);
    await desk.#channel.prefetch(10);
    await desk.#channel.consume(DEAD_LETTER_QUEUE, (message) => desk.#expired(message));
    return desk;
  }

  async #declare(timeToPay) {
    const channel = this.#channel;
    await channel.assertExchange(ORDER_EXCHANGE, "topic");
    await channel.assertQueue(DELAYED_QUEUE, {
      messageTtl: timeToPay,
      deadLetterExchange: ORDER_EXCHANGE,
      deadLetterRoutingKey: DL_ROUTING_KEY,
    });
    await channel.assertQueue(DEAD_LETTER_QUEUE);
    await channel.bindQueue(DELAYED_QUEUE, ORDER_EXCHANGE, MAIN_ROUTING_KEY);
    await channel.bindQueue(DEAD_LETTER_QUEUE, ORDER_EXCHANGE, DL_ROUTING_KEY);
  }

  /** Takes an order; resolves when it and its time to pay are on the disk. */
  async place(id) {
    if (this.state(id) !== null) throw new Error(`order ${id} exists`);
    await this.#broker.meta.set(`order:${id}`, "placed");
    this.#channel.publish(ORDER_EXCHANGE, MAIN_ROUTING_KEY, Buffer.from(JSON.stringify({ order: id })), {
      persistent: true,
      messageId: id,
      contentType: "application/json",
    });
    await this.#channel.waitForConfirms();
  }

  /** True when it was paid in time; false when it is too late, or there is no such order. */
  async pay(id) {
    if (this.state(id) !== "placed") return false;
    await this.#broker.meta.set(`order:${id}`, "paid");
    return true;
  }

  /** placed, paid, cancelled, or null. */
  state(id) {
    return this.#broker.meta.get(`order:${id}`);
  }

  async #expired(message) {
    if (message === null) return;
    const { order } = JSON.parse(message.content.toString());
    try {
      if (this.state(order) === "placed") {
        await this.#broker.meta.set(`order:${order}`, "cancelled");
        this.#onCancelled(order);
      }
      this.#channel.ack(message);
    } catch {
      this.#channel.nack(message, false, true);
    }
  }

  async close() {
    await this.#broker.close();
  }
}
