/**
 * How many attempts the processes that work on a queue give. RabbitMQ has no place where consumers tell each other
 * anything, but it declares no queue anew with another argument: so each running consumer declares `<queue>.workers`
 * with its maxAttempts as the length limit, and consumes it. No message ever comes there. The queue goes with the last
 * consumer, or, when the broker died under them, a minute later.
 */
import type { Channel } from "amqplib";
import { DloError } from "../../core/index.ts";
import type { Logger } from "../../ports/index.ts";
import { clashIn } from "./faults.ts";
import { Lane, type Link } from "./link.ts";

/** The queue goes when it was not used for so long, ms. */
const UNUSED_MS = 60_000;
/** A consumer that stops is gone for the broker a moment later. */
const PATIENCE_MS = 1_000;

export const workersOf = (queue: string): string => `${queue}.workers`;

/**
 * Answers what ends it. Where the broker cannot be asked (not connected, no permission) that is logged and stops nobody.
 * @throws DloError CONFLICT naming both numbers, when consumers with another maxAttempts work on the queue.
 */
export async function joinWorkers(
  link: Link,
  queue: string,
  maxAttempts: number,
  options: { readonly limitMs: number; readonly logger: Logger },
): Promise<() => Promise<void>> {
  const lane = new Lane(link, {
    what: `joining the workers of queue '${queue}'`,
    confirm: false,
    setup: (channel) => declare(channel, queue, maxAttempts, () => void lane.restart("cancelled")),
  });
  const leave = (): Promise<void> => lane.close();
  if (!link.model) return leave; // once it is up
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      await lane.ready(options.limitMs);
      return leave;
    } catch (error) {
      const { code, message } = error as DloError;
      if (code === "NOT_CONNECTED") return leave;
      if ((code === "CONFLICT" || code === "QUEUE_NOT_FOUND") && performance.now() < until) {
        await new Promise((resolve) => setTimeout(resolve, PATIENCE_MS / 10));
        continue;
      }
      await leave();
      if (code === "CONFLICT") throw error;
      options.logger.warn(
        `whether others work on queue '${queue}' with another maxAttempts is not known: ${message}`,
      );
      return leave;
    }
  }
}

async function declare(
  channel: Channel,
  queue: string,
  maxAttempts: number,
  cancelled: () => void,
): Promise<void> {
  const name = workersOf(queue);
  try {
    await channel.assertQueue(name, {
      durable: true,
      autoDelete: true,
      arguments: {
        "x-queue-type": "classic",
        "x-max-length": maxAttempts,
        "x-overflow": "reject-publish",
        "x-expires": UNUSED_MS,
      },
    });
  } catch (error) {
    const clash = clashIn((error as Error).message);
    if (clash === null) throw error;
    if (clash.argument !== "x-max-length")
      throw new DloError("REFUSED", `'${name}' is a queue of somebody else's`, { cause: error });
    throw new DloError(
      "CONFLICT",
      `queue '${queue}' has consumers with maxAttempts ${clash.current}, this one asks for ${maxAttempts}; ` +
        "expected the same number (it changes when all of them have stopped)",
      { cause: error },
    );
  }
  await channel.consume(name, (message) => message ?? cancelled(), { noAck: true });
}
