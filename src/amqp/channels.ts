import { AmqpError, type OutwardEffect } from "../broker/index.ts";
import { BASIC_METHODS } from "./basic-methods.ts";
import { Channel } from "./channel.ts";
import type { ConnectionContext } from "./handshake.ts";
import * as m from "./methods.ts";
import type { Session } from "./session.ts";
import { TOPOLOGY_METHODS } from "./topology-methods.ts";
import { METHOD } from "./wire.ts";

const HANDLERS: ReadonlyMap<number, (channel: Channel, session: Session) => void> = new Map([
  ...BASIC_METHODS,
  ...TOPOLOGY_METHODS,
]);

/** The channels of one open connection, by the wire's number and by the host's. */
export class Channels {
  readonly #byNumber = new Map<number, Channel>();
  readonly #byHostId = new Map<number, Channel>();
  /** Channels with confirms to write at the end of this commit. */
  #dirty: Channel[] = [];
  #creditDue = false;

  get size(): number {
    return this.#byNumber.size;
  }

  get(number: number): Channel | undefined {
    return this.#byNumber.get(number);
  }

  /** The first frame on a number that is not open: it must be channel.open. */
  open(session: Session, type: number, method: number, number: number, most: number): void {
    // The answer to a close of ours for a channel that the client closed at the same time.
    if (type === METHOD && method === m.ChannelCloseOkId) return;
    if (type !== METHOD || method !== m.ChannelOpenId) throw new AmqpError(504, "expected 'channel.open'");
    if (number > most || this.size >= most) {
      throw new AmqpError(
        530,
        `channel ${number}: number of channels opened (${this.size}) has reached the negotiated channel_max (${most})`,
      );
    }
    m.readChannelOpen(session.shared.reader);
    const channel = new Channel(number, session, HANDLERS);
    this.#byNumber.set(number, channel);
    this.#byHostId.set(channel.id, channel);
    channel.after(() => m.writeChannelOpenOk(session.writer, number));
  }

  /** The number is free again; effects of earlier commands still find the channel until they are through. */
  forget(number: number): void {
    const channel = this.#byNumber.get(number);
    if (channel === undefined) return;
    this.#byNumber.delete(number);
    channel.after(() => this.#byHostId.delete(channel.id));
  }

  effect(effect: OutwardEffect): void {
    if (!("channel" in effect)) return;
    const channel = this.#byHostId.get(effect.channel);
    if (channel === undefined) return;
    const clean = !channel.dirty;
    channel.effect(effect);
    if (clean && channel.dirty) this.#dirty.push(channel);
    if (channel.credit.low) this.#creditDue = true;
  }

  /** Writes the confirms that have gathered. */
  confirms(): void {
    if (this.#dirty.length === 0) return;
    for (const channel of this.#dirty) channel.flush();
    this.#dirty = [];
  }

  /** Whether a channel's deliveries have used up half of what it may be ahead; asking answers once. */
  takeCreditDue(): boolean {
    const due = this.#creditDue;
    this.#creditDue = false;
    return due;
  }

  grant(): void {
    for (const channel of this.#byNumber.values()) if (channel.credit.low) channel.credit.grant();
  }

  /** True when one of them has been waiting too long for a body. */
  late(now: number): boolean {
    let late = false;
    for (const channel of this.#byNumber.values()) if (channel.late(now)) late = true;
    return late;
  }

  /** Closes those that have held a delivery for too long, alone; what they hold goes back. */
  closeOverdue(now: number, { shared, log }: Pick<ConnectionContext, "shared" | "log">): void {
    const { ackTimeoutMs } = shared.limits;
    for (const channel of this.#byNumber.values()) {
      const queue = channel.overdue(now);
      if (queue === null) continue;
      log("an ack is late: its channel is closed", { channel: channel.number, queue, ackTimeoutMs });
      const text = `delivery acknowledgement on channel ${channel.number} timed out. Timeout value used: ${ackTimeoutMs} ms. It is set by --ack-timeout or limits.ackTimeoutMs`;
      channel.fail(new AmqpError(406, text), 0);
    }
  }

  /** The connection ends: no more commands; what was submitted may still be answered. */
  release(): void {
    for (const channel of this.#byNumber.values()) channel.forget();
    this.#byNumber.clear();
  }

  clear(): void {
    this.#byHostId.clear();
    this.#dirty = [];
  }
}
