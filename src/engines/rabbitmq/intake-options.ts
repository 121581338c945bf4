import type { Logger } from "../../ports/index.ts";
import type { Verdict } from "./arrivals.ts";
import type { Held } from "./held.ts";
import type { Ledger } from "./ledger.ts";

/** What an intake needs of its queue. */
export interface IntakeOptions {
  readonly queue: string;
  /** The suspects queue; null: suspects are handed out where they are, with the broker's count. */
  readonly suspects: string | null;
  readonly prefetch: number;
  readonly ledger: Ledger | null;
  readonly ledgerKey: (held: Held) => string;
  readonly logger: Logger;
  readonly now: () => number;
  /** Moves to the suspects queue or the retry ladder, then acks. */
  readonly move: (held: Held, verdict: Exclude<Verdict, { take: "run" }>) => Promise<void>;
}
