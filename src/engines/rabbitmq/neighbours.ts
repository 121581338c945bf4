/**
 * Whether others consume the queue. A message we return to it may reach one of them, who cannot know that no process
 * died and takes it for a suspect: safe, but each of those runs alone. So with neighbours a retry is published instead.
 */
import type { Channel } from "amqplib";

/** How long a look is believed, ms. */
const BELIEVED_MS = 1_000;

export class Neighbours {
  private readonly queue: string;
  private readonly own: () => number;
  private none = false;
  private lookAt = 0;

  /** @param own how many of its consumers are ours just now. */
  constructor(queue: string, own: () => number) {
    this.queue = queue;
    this.own = own;
  }

  /** As of the last look; false before the first. Never waits: an old look is renewed meanwhile. */
  absent(channel: Channel): boolean {
    const now = performance.now();
    if (now >= this.lookAt) {
      this.lookAt = now + BELIEVED_MS;
      channel.checkQueue(this.queue).then(
        ({ consumerCount }) => (this.none = consumerCount <= this.own()),
        () => (this.none = false),
      );
    }
    return this.none;
  }
}
