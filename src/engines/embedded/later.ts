/**
 * Settlements that may be written a moment later. An ack or a reject from a client is answered by nothing, so nobody
 * can tell whether it is in the file yet; written many at once they cost a fraction. A process that dies in that
 * moment leaves the message where it was, whole and known as delivered: it comes again.
 */

import type { Effect, JournalEffect } from "../../broker/index.ts";
import { emptiedSet } from "./emptied.ts";

/** The longest that one waits, and the most that wait. */
export const LATER_MS = 10;
export const LATER_MOST = 200;

export class Later {
  #waiting: JournalEffect[] = [];
  /** Queues that those waiting put messages into. */
  #into = new Set<number>();

  get size(): number {
    return this.#waiting.length;
  }

  /**
   * Takes in what a settlement leaves to be written, where all of it can wait: messages that go, those that go on to
   * another queue in their place, and nothing of those other queues yet. What is left to do at once is handed back:
   * that other messages were handed out. Null: the command is none of these, and nothing of it was taken.
   */
  take(effects: readonly Effect[], isReject: boolean): readonly Effect[] | null {
    let count = 0;
    let gone = 0;
    let into: number[] | undefined;
    for (const effect of effects) {
      if (effect.type === "message-gone") gone++;
      else if (effect.type === "message-put" && effect.from !== undefined) {
        into ??= [];
        into.push(effect.queueId);
      } else break;
      count++;
    }
    // A dead letter that lives in memory alone may be seen at once: then its message must not come again.
    if (gone === 0 || (isReject && count < 2 * gone)) return null;
    for (let i = count; i < effects.length; i++) {
      const effect = effects[i] as Effect;
      if (effect.type !== "queue-handed" && effect.type !== "deliver") return null;
      if (into?.includes(effect.queueId)) return null;
    }
    for (let i = 0; i < count; i++) this.#waiting.push(effects[i] as JournalEffect);
    if (into !== undefined) for (const queueId of into) this.#into.add(queueId);
    return effects.slice(count);
  }

  /** Must those waiting be written before, or with, this effect? */
  precede(effect: JournalEffect): boolean {
    if (this.#waiting.length === 0) return false;
    switch (effect.type) {
      case "message-put":
        return (
          this.#isInto(effect.queueId) || (effect.from !== undefined && this.#isInto(effect.from.queueId))
        );
      case "message-gone":
      case "message-state":
      case "queue-handed":
      case "queue-purged":
        return this.#isInto(effect.queueId);
      default:
        return true;
    }
  }

  #isInto(queueId: number): boolean {
    return this.#into.has(queueId);
  }

  /** All of them, oldest first; none wait any more. */
  drain(): readonly JournalEffect[] {
    const waiting = this.#waiting;
    if (waiting.length > 0) {
      this.#waiting = [];
      this.#into = emptiedSet(this.#into);
    }
    return waiting;
  }
}
