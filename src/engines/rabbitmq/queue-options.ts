import type { Codec } from "./codec.ts";
import type { Ledger } from "./ledger.ts";

/** How a queue is consumed. */
export interface RabbitQueueOptions<B = unknown> {
  /** Quorum unless said. A classic queue cannot count crashes; see the docs. */
  readonly type?: "quorum" | "classic";
  /** Retry delays of the ladder, ms, ascending; must be those of `setUpTopology`. Empty: retries without delay. */
  readonly delays?: readonly number[];
  /** False: no suspects queue; redelivered messages are handled in the window and counted by the broker's count. */
  readonly suspects?: boolean;
  /** Deliveries leased at once. Absent: one by one until the consumer waits for work, then 100. */
  readonly prefetch?: number;
  /** The queue's x-delivery-limit, where it has one. */
  readonly deliveryLimit?: number;
  /** Records handler starts; see {@link openLedger}. */
  readonly ledger?: Ledger;
  /** How bodies are read and written; JSON by content type unless given. */
  readonly codec?: Codec<B>;
}
