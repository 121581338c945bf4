/**
 * What to do with a delivery, by what is known of it. Pure.
 *
 * RabbitMQ counts returns of a whole window, not handler starts (a lease is not a delivery): when a process dies
 * with 20 messages on hand, all 20 come back counted. So a message that comes back for a reason we do not know is a
 * suspect, and is tried alone from the suspects queue, where the broker's count is a count of its own starts.
 */

/** Everything known about one delivery. Times are epoch ms. */
export interface Arrival {
  /** From the work queue, or from the queue of suspects (one at a time). */
  readonly lane: "work" | "suspects";
  readonly redelivered: boolean;
  /** `x-acquired-count ?? x-delivery-count`; undefined on classic queues and on first deliveries. */
  readonly brokerCount: number | undefined;
  /** Counted starts before it was last published, from our own header. */
  readonly own: number;
  /** Not to be handled before. */
  readonly dueAt: number | undefined;
  readonly now: number;
  /** What this process remembers of it: it went back without a crash. */
  readonly known: Known | undefined;
  /** What the ledger says, where there is one. */
  readonly ledger: { readonly counted: number; readonly open: boolean } | undefined;
  /** Whether a suspects queue is there. */
  readonly isolates: boolean;
}

/** How a message left this process the last time, when no process died. */
export interface Known {
  /** Counted starts by then. */
  readonly counted: number;
  /** Returns the broker counted though no handler had started. */
  readonly forgiven: number;
  /** Epoch ms. */
  readonly firstAt: number;
  /** Its handler had started and the consumer was given up (`recover`): as if the process had died. */
  readonly crashed?: boolean;
}

export type Verdict =
  | { readonly take: "run"; readonly receiveCount: number; readonly suspect: boolean }
  /** Move it to the suspects queue, with this many counted starts. */
  | { readonly take: "isolate"; readonly counted: number }
  /** Too early: back to the retry ladder for the rest. */
  | { readonly take: "later"; readonly delayMs: number };

/** A retry queue may release a little early by the clocks of two machines; that much is let pass. */
const EARLY_MS = 250;

/** Decides; see the table in docs/reference/rabbitmq.md. */
export function judge(it: Arrival): Verdict {
  if (it.dueAt !== undefined && it.lane === "work" && it.dueAt - it.now > EARLY_MS) {
    return { take: "later", delayMs: it.dueAt - it.now };
  }
  if (it.ledger !== undefined) {
    const counted = Math.max(it.own, it.ledger.counted);
    const aCrash = it.ledger.open && (it.known === undefined || it.known.crashed === true);
    if (!aCrash || it.lane === "suspects") return run(counted, it.lane === "suspects");
    return it.isolates ? { take: "isolate", counted } : run(counted, true);
  }
  const returns = it.redelivered ? (it.brokerCount ?? 1) : 0;
  if (it.lane === "suspects") return run(it.own + Math.max(0, returns - (it.known?.forgiven ?? 0)), true);
  if (!it.redelivered) return run(it.own, false);
  const counted = it.own + Math.max(0, returns - (it.known?.forgiven ?? 0));
  if (it.known && !it.known.crashed) return run(Math.max(counted, it.known.counted), false);
  return it.isolates ? { take: "isolate", counted } : run(counted, true);
}

const run = (counted: number, suspect: boolean): Verdict => ({
  take: "run",
  receiveCount: counted + 1,
  suspect,
});
