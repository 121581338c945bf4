/**
 * A letter's id is a uuid of version 7 that holds the letter's number: time, number, and some bits of the data
 * file. So ids are in order of death, unique across files, and need no index of their own.
 */

const SALT_BITS = 22n;
const LOW_BITS = 40n;
const LOW_MASK = (1n << LOW_BITS) - 1n;
const PATTERN = /^([0-9a-f]{8})-([0-9a-f]{4})-7([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})$/;

/** Numbers go to 2^52, `salt` is 22 bits of the file. */
export function letterId(n: number, keptAt: number, salt: number): string {
  const number = BigInt(n);
  const time = keptAt.toString(16).padStart(12, "0");
  const high = (number >> LOW_BITS).toString(16).padStart(3, "0");
  const low = ((2n << 62n) | ((number & LOW_MASK) << SALT_BITS) | BigInt(salt)).toString(16);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${high}-${low.slice(0, 4)}-${low.slice(4)}`;
}

/** The number in a letter's id; null for anything that is no letter id. */
export function letterNumber(id: string): { n: number; keptAt: number } | null {
  const parts = PATTERN.exec(id);
  if (parts === null) return null;
  const [, timeHigh, timeLow, high, lowHigh, lowLow] = parts as unknown as string[];
  const low = (BigInt(`0x${lowHigh}${lowLow}`) & ((1n << 62n) - 1n)) >> SALT_BITS;
  const n = Number((BigInt(`0x${high}`) << LOW_BITS) | low);
  return { n, keptAt: Number.parseInt(`${timeHigh}${timeLow}`, 16) };
}
