/** What RabbitMQ tells of a queue's messages, and when to believe it. */
import type { Channel, Replies } from "amqplib";
import { DloError } from "../../core/index.ts";

/**
 * RabbitMQ gives a quorum queue 250 ms to tell its counts, and answers 0 and 0 for one that did not (a disk that is
 * slow for a moment, a leader that is elected): so an answer of that kind that took so long is asked for again.
 */
const ANSWER_MS = 150;
/** For how long, and how long between two questions, ms. */
const PATIENCE_MS = 10_000;
const PAUSE_MS = 50;

/**
 * Ready messages and consumers of a queue, 0 only where there are none.
 * @throws DloError TIMED_OUT when the queue tells RabbitMQ nothing for ten seconds; amqplib's error when it is missing
 */
export async function lookAt(
  channel: Pick<Channel, "checkQueue" | "checkExchange">,
  queue: string,
): Promise<Replies.AssertQueue> {
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    const askedAt = performance.now();
    const found = await channel.checkQueue(queue);
    const took = performance.now() - askedAt;
    if (found.messageCount > 0 || found.consumerCount > 0 || took < ANSWER_MS) return found;
    if (took - (await farness(channel)) < ANSWER_MS) return found;
    if (performance.now() > until)
      throw new DloError(
        "TIMED_OUT",
        `queue '${queue}' does not tell RabbitMQ what it holds (asked for ${PATIENCE_MS / 1000} s); is its leader up?`,
      );
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/**
 * How long an answer takes that needs no queue, ms: as long where the broker is far or this process busy. The shortest
 * of three, for others ask on this channel too, and one answer waits for the one before.
 */
async function farness(channel: Pick<Channel, "checkExchange">): Promise<number> {
  let shortest = Number.POSITIVE_INFINITY;
  for (let time = 0; time < 3; time++) {
    const askedAt = performance.now();
    await channel.checkExchange("amq.direct");
    shortest = Math.min(shortest, performance.now() - askedAt);
  }
  return shortest;
}

/** How long RabbitMQ is given to see that a connection has gone and to take back what was on hand there, ms. */
export const RETURN_MS = 1_000;

/**
 * A count that is 0 only when nothing is there. What moves on while it is counted is caught by a second look: it is on
 * its way for less than one takes. And until RabbitMQ misses a lost connection (`backBy`, by `performance.now`), it
 * shows what was on hand there neither as waiting nor to anybody else.
 */
export async function surely(look: () => Promise<number>, backBy: () => number): Promise<number> {
  for (;;) {
    const from = performance.now();
    const count = (await look()) || (await look());
    if (count > 0 || from > backBy()) return count;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
