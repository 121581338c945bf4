import type { DeathReason, MessageState, Seq } from "./types.ts";

/**
 * One message in one queue while the machine works on it. Waiting messages without a history are not kept as
 * objects but packed (ready.ts); an Entry is made when a message is taken out or has something to remember.
 */
export class Entry implements MessageState {
  seq: Seq;
  position: number;
  size: number;
  expiresAt: number;
  priority = 0;
  redelivered = false;
  deliveryCount = 0;
  starts = 0;
  firstReceivedAt = 0;
  dueAt = 0;
  suspect = false;
  inCompany = false;
  hold: 0 | 1 | 2 = 0;
  failures = 0;
  died = false;
  retained: DeathReason | null = null;
  /** Has a row in the journal. */
  persistent: boolean;

  constructor(seq: Seq, position: number, size: number, expiresAt: number, persistent: boolean) {
    this.seq = seq;
    this.position = position;
    this.size = size;
    this.expiresAt = expiresAt;
    this.persistent = persistent;
  }
}

/** A copy of the state for an effect, which must not change after it was given out. */
export function stateOf(e: Entry): MessageState {
  return {
    seq: e.seq,
    position: e.position,
    size: e.size,
    expiresAt: e.expiresAt,
    priority: e.priority,
    redelivered: e.redelivered,
    deliveryCount: e.deliveryCount,
    starts: e.starts,
    firstReceivedAt: e.firstReceivedAt,
    dueAt: e.dueAt,
    suspect: e.suspect,
    inCompany: e.inCompany,
    hold: e.hold,
    failures: e.failures,
    died: e.died,
    retained: e.retained,
  };
}

/** The entry of a state that came back from a journal. */
export function entryFrom(state: MessageState): Entry {
  const e = new Entry(state.seq, state.position, state.size, state.expiresAt, true);
  e.priority = state.priority;
  e.redelivered = state.redelivered;
  e.deliveryCount = state.deliveryCount;
  e.starts = state.starts;
  e.firstReceivedAt = state.firstReceivedAt;
  e.dueAt = state.dueAt;
  e.suspect = state.suspect;
  e.inCompany = state.inCompany;
  e.hold = state.hold;
  e.failures = state.failures;
  e.died = state.died;
  e.retained = state.retained;
  return e;
}

/** True when nothing but the packed columns is worth keeping. */
export function isPlain(e: Entry): boolean {
  return (
    e.deliveryCount === 0 &&
    e.starts === 0 &&
    e.firstReceivedAt === 0 &&
    e.failures === 0 &&
    !e.suspect &&
    !e.inCompany &&
    e.hold === 0 &&
    e.dueAt === 0
  );
}
