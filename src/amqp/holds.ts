import type { Alarm } from "../broker/index.ts";
import type { AmqpLimits } from "./limits.ts";
import type { Transport } from "./transport.ts";

/** Past this many times `writeHighBytes` of answers that are not read, no more requests are read either. */
const UNREAD_ANSWERS = 4;

/**
 * When a connection is not read from: because its peer takes no answers, or because it publishes and the broker
 * is short of memory or disk.
 */
export class Holds {
  /** Held by an alarm. */
  blocked = false;
  paused = false;
  readonly #transport: Transport;
  readonly #limits: AmqpLimits;
  readonly #tell: (reason: string | null) => void;
  #publishing = false;

  /** `tell`: sends connection.blocked with the reason, or unblocked (null). */
  constructor(transport: Transport, limits: AmqpLimits, tell: (reason: string | null) => void) {
    this.#transport = transport;
    this.#limits = limits;
    this.#tell = tell;
  }

  /** More bytes wait in the socket than deliveries should add to. */
  get congested(): boolean {
    return this.#transport.waiting > this.#limits.writeHighBytes;
  }

  /** Something was written. */
  wrote(): void {
    if (!this.paused && this.#transport.waiting > UNREAD_ANSWERS * this.#limits.writeHighBytes) this.#pause();
  }

  /** The peer has taken everything. */
  drained(): void {
    if (!this.blocked) this.release();
  }

  /** Reads again, whatever held it. */
  release(): void {
    if (!this.paused) return;
    this.paused = false;
    this.#transport.resume();
  }

  /** It has published: from now on alarms are its business. */
  published(alarms: () => readonly Alarm[]): void {
    if (this.#publishing) return;
    this.#publishing = true;
    this.alarm(alarms());
  }

  alarm(alarms: readonly Alarm[]): void {
    if (!this.#publishing || alarms.length > 0 === this.blocked) return;
    this.blocked = alarms.length > 0;
    if (this.blocked) this.#pause();
    else this.release();
    this.#tell(this.blocked ? `low on ${alarms.join(" & ")}` : null);
  }

  #pause(): void {
    this.paused = true;
    this.#transport.pause();
  }
}
