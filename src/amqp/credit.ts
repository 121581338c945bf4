import type { ChannelId } from "../broker/index.ts";
import type { Session } from "./session.ts";

/** Deliveries a channel may be ahead of its socket, when messages are small. */
const MOST = 1024;

/**
 * How many deliveries the machine may push before the socket has taken the last ones: about `writeHighBytes`
 * worth of them, judged by the sizes seen. Keeps a consumer without prefetch from pulling a queue into memory.
 */
export class DeliveryCredit {
  readonly #channel: ChannelId;
  readonly #session: Session;
  #left = 0;
  #granted = 0;
  /** Moving average of body bytes; large at first, so that large messages are met with a small credit. */
  #average = 65536;

  constructor(channel: ChannelId, session: Session) {
    this.#channel = channel;
    this.#session = session;
  }

  /** Before the first consumer, and whenever the socket has taken what was sent. */
  grant(): void {
    if (this.#left > this.#granted / 2) return;
    const { writeHighBytes } = this.#session.shared.limits;
    this.#granted = Math.max(1, Math.min(MOST, Math.floor(writeHighBytes / (this.#average + 256))));
    this.#left = this.#granted;
    this.#session.host.submit({ type: "channel-credit", channel: this.#channel, credit: this.#granted });
  }

  /** One delivery was written. */
  spent(bytes: number): void {
    this.#left--;
    this.#average += (bytes - this.#average) / 16;
  }

  /** It is time to {@link grant} again. */
  get low(): boolean {
    return this.#granted > 0 && this.#left <= this.#granted / 2;
  }
}
