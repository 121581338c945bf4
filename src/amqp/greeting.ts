/** "AMQP" 0 0 9 1: what a client sends first, and what a client of anything else is answered. */
export const PROTOCOL: Uint8Array = Uint8Array.of(0x41, 0x4d, 0x51, 0x50, 0, 0, 9, 1);

/** Collects the first eight bytes of a connection. */
export class Greeting {
  #have: Uint8Array = new Uint8Array(0);

  /** What is behind a right greeting; "more" while it may still become one; "other" when it is not one. */
  push(chunk: Uint8Array): Uint8Array | "more" | "other" {
    const have = Buffer.concat([this.#have, chunk]);
    const length = Math.min(have.length, PROTOCOL.length);
    for (let i = 0; i < length; i++) if (have[i] !== PROTOCOL[i]) return "other";
    this.#have = have;
    return have.length < PROTOCOL.length ? "more" : have.subarray(PROTOCOL.length);
  }
}
