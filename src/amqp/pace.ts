import type { AmqpLimits } from "./limits.ts";

/** How often {@link Pace.tick} is called, at least. */
export const TICK_MS = 500;

/** What is due: nothing, a heartbeat of ours, or the end, and why. */
export type Due = "nothing" | "beat" | "time-up" | "silent" | "stalled";

/**
 * When a connection must say something and when it has been silent too long. Reading and writing only raise a
 * flag; the time is looked at once a tick.
 */
export class Pace {
  heartbeatSeconds = 0;
  heard = false;
  said = false;
  readonly #limits: AmqpLimits;
  #heardAt: number;
  #saidAt: number;
  /** When the present state must be over; 0: no limit. */
  #deadline: number;
  #stalledSince: number;
  #waiting = 0;

  constructor(limits: AmqpLimits, now: number) {
    this.#limits = limits;
    this.#heardAt = now;
    this.#saidAt = now;
    this.#stalledSince = now;
    this.#deadline = now + limits.handshakeMs;
  }

  /** The present state may last for ever. */
  noDeadline(): void {
    this.#deadline = 0;
  }

  /** From now on there are `closeMs` left. */
  closing(now: number): void {
    this.#deadline = now + this.#limits.closeMs;
  }

  /** `waiting`: bytes the peer has not taken. `reading`: whether we read; what we do not read we cannot miss. */
  tick(now: number, waiting: number, reading: boolean): Due {
    if (this.heard || !reading) this.#heardAt = now;
    if (this.said) this.#saidAt = now;
    this.heard = false;
    this.said = false;
    if (this.#deadline > 0 && now >= this.#deadline) return "time-up";
    if (waiting === 0 || waiting < this.#waiting) this.#stalledSince = now;
    this.#waiting = waiting;
    if (now - this.#stalledSince > this.#limits.stalledMs) return "stalled";
    const beatMs = this.heartbeatSeconds * 1000;
    if (beatMs === 0) return "nothing";
    if (now - this.#heardAt > 2 * beatMs + TICK_MS) return "silent";
    return now - this.#saidAt >= beatMs / 2 - TICK_MS && waiting === 0 ? "beat" : "nothing";
  }
}
