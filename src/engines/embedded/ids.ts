/**
 * Message ids: uuids of version 7, in order of making. Randomness is fetched in bulk: a call each costs more than all
 * the rest. The text is made in one piece: joined from parts it would be put together again by whoever reads it.
 */
import { randomFillSync } from "node:crypto";
import { V7Generator } from "uuidv7";

const pool = new Uint32Array(1024);
let next: number = pool.length;

const generator: V7Generator = new V7Generator({
  nextUint32: () => {
    if (next === pool.length) {
      randomFillSync(pool);
      next = 0;
    }
    return pool[next++] as number;
  },
});

const DIGITS = Buffer.from("0123456789abcdef");
const text = Buffer.from("00000000-0000-0000-0000-000000000000");

export function newId(): string {
  const { bytes } = generator.generate();
  let at = 0;
  for (let i = 0; i < 16; i++) {
    const byte = bytes[i] as number;
    if (i === 4 || i === 6 || i === 8 || i === 10) at++;
    text[at++] = DIGITS[byte >> 4] as number;
    text[at++] = DIGITS[byte & 15] as number;
  }
  return text.toString("latin1");
}
