/** A held message becomes a letter: its exact head and, where nobody else needs it, the very row its body lies in. */
import { hostname } from "node:os";
import type { Attempt, DeadLetter, Message } from "../../core/index.ts";
import { encodeHead } from "./content.ts";
import type { DeadLetterStore } from "./dead-letters.ts";
import type { Journal } from "./journal.ts";
import { generationOf } from "./message.ts";

const HOST = hostname();

/** A delivery that a handle holds. */
export interface Held {
  readonly tag: number;
  readonly seq: number;
  readonly message: Message;
  /** When its handler was begun; 0: not begun. */
  startedAt: number;
}

/**
 * How a start ended, as the living holder tells it: a crash that it is told of was in a process of the handler's own,
 * and nobody else was in that.
 */
export function attemptOf(
  held: Held,
  outcome: "failed" | "crashed" | "interrupted",
  cause: string | undefined,
  end: { readonly at: number; readonly inFlight: number },
): Attempt {
  return {
    n: held.message.receiveCount,
    startedAt: held.startedAt,
    endedAt: end.at,
    host: HOST,
    pid: process.pid,
    outcome,
    ...(cause === undefined ? {} : { cause }),
    company: outcome === "crashed" || end.inFlight <= 1 ? "solo" : "shared",
  };
}

export function keepLetter(
  journal: Journal,
  held: Held,
  entry: DeadLetter,
  history: readonly Attempt[],
  store: DeadLetterStore,
): void {
  const content = journal.contents.get(held.seq);
  // An entry with another body than its message (an edited one) is written as it is.
  const own = entry.raw === undefined && Object.is(entry.body, held.message.body);
  const canTake = own && content.body.length > 0 && journal.isSoleOwner(held.seq);
  let isShared = false;
  const takeBody = (): number => {
    isShared = true;
    return journal.shareBody(held.seq);
  };
  try {
    store.keep(
      {
        ...entry,
        generation: entry.generation ?? generationOf(content.properties),
        ...(entry.history === undefined && history.length > 0 ? { history } : {}),
      },
      {
        head: encodeHead(content),
        bytes: own ? { bytes: content.body, contentType: content.properties.contentType ?? "" } : null,
        takeBody: canTake ? takeBody : null,
      },
    );
  } catch (error) {
    // No room for it: the message keeps its body to itself.
    if (isShared) journal.unshareBody(held.seq);
    throw error;
  }
}
