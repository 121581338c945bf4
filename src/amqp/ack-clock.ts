import type { DeliveryTag, Unsettled } from "../broker/index.ts";

/** Marks kept over one time limit: how exactly the age of a delivery is known. */
const MARKS = 64;

interface Mark {
  /** Every delivery up to this tag had gone out... */
  readonly tag: DeliveryTag;
  /** ...at this time. */
  readonly at: number;
}

/** The most that passes between two looks: a process that was stopped, or a clock that was set, makes no ack late. */
const STEP_MS = 1_000;

/**
 * How long the oldest delivery of a channel has been out, without a note per delivery: now and then it is marked how
 * far the tags are. A delivery is taken for as young as it can be, so nobody is closed too early; too late by one
 * few looks and a 64th of the limit. It must be late at two looks in a row, as acks may lie unread in the socket at
 * the first.
 */
export class AckClock {
  readonly #limitMs: number;
  #marks: Mark[] = [];
  #lookedAt = 0;
  #time = 0;
  #wasLate = false;

  /** @param limitMs - 0: no limit. */
  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** One look at what the channel holds now; true when its oldest delivery is over the limit. */
  late(unsettled: Unsettled | null, now: number): boolean {
    if (this.#limitMs === 0) return false;
    this.#time += Math.min(Math.max(0, now - this.#lookedAt), STEP_MS);
    this.#lookedAt = now;
    const isLate = unsettled !== null && this.#isOver(unsettled, this.#time);
    const both = isLate && this.#wasLate;
    this.#wasLate = isLate;
    if (unsettled === null) this.#marks = [];
    return both;
  }

  #isOver(unsettled: Unsettled, now: number): boolean {
    const { oldest, latest } = unsettled;
    const done = this.#marks.findIndex(({ tag }) => tag >= oldest);
    this.#marks.splice(0, done === -1 ? this.#marks.length : done);
    const last = this.#marks.at(-1);
    if (last === undefined || (latest > last.tag && now - last.at >= this.#limitMs / MARKS)) {
      this.#marks.push({ tag: latest, at: now });
    }
    // The first mark is the first time that the oldest one is known to have been out.
    return now - (this.#marks[0] as Mark).at >= this.#limitMs;
  }
}
