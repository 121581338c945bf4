/**
 * UTF-8 without a host: the pure rooms have no TextDecoder. Nothing is lost on the way: a byte that is not part
 * of valid UTF-8 becomes the lone surrogate U+DC00 + byte (0xDC80 to 0xDCFF), and such a surrogate becomes that
 * byte again. Valid UTF-8 never decodes to a lone surrogate, so the two directions are exact inverses for every
 * byte sequence.
 */

const chars = String.fromCharCode;

/** Text of `bytes[start, end)`; undecodable bytes come out as lone surrogates U+DC80..U+DCFF. */
export function decodeUtf8(bytes: Uint8Array, start = 0, end: number = bytes.length): string {
  let text = "";
  let at = start;
  // Eight at a time: fewer calls and fewer string joins than one by one, and no array in between.
  while (at + 8 <= end) {
    const a = bytes[at] as number;
    const b = bytes[at + 1] as number;
    const c = bytes[at + 2] as number;
    const d = bytes[at + 3] as number;
    const e = bytes[at + 4] as number;
    const f = bytes[at + 5] as number;
    const g = bytes[at + 6] as number;
    const h = bytes[at + 7] as number;
    if ((a | b | c | d | e | f | g | h) > 0x7f) return text + decodeMixed(bytes, at, end);
    text += chars(a, b, c, d, e, f, g, h);
    at += 8;
  }
  while (at < end) {
    const byte = bytes[at] as number;
    if (byte > 0x7f) return text + decodeMixed(bytes, at, end);
    text += chars(byte);
    at++;
  }
  return text;
}

function decodeMixed(bytes: Uint8Array, start: number, end: number): string {
  let text = "";
  let at = start;
  while (at < end) {
    const byte = bytes[at] as number;
    if (byte < 0x80) {
      text += chars(byte);
      at++;
      continue;
    }
    const length = sequenceLength(bytes, at, end);
    if (length === 0) {
      text += chars(0xdc00 + byte);
      at++;
      continue;
    }
    text += String.fromCodePoint(codePoint(bytes, at, length));
    at += length;
  }
  return text;
}

/** Length of the well-formed multi-byte sequence at `at`; 0 when it is not one (Unicode table 3-7). */
function sequenceLength(bytes: Uint8Array, at: number, end: number): number {
  const first = bytes[at] as number;
  const length =
    first >= 0xc2 && first <= 0xdf ? 2 : first >> 4 === 0xe ? 3 : first >= 0xf0 && first <= 0xf4 ? 4 : 0;
  if (length === 0 || at + length > end) return 0;
  const second = bytes[at + 1] as number;
  const low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  if (second < low || second > high) return 0;
  for (let i = 2; i < length; i++) if (((bytes[at + i] as number) & 0xc0) !== 0x80) return 0;
  return length;
}

function codePoint(bytes: Uint8Array, at: number, length: number): number {
  let point = (bytes[at] as number) & (length === 2 ? 0x1f : length === 3 ? 0x0f : 0x07);
  for (let i = 1; i < length; i++) point = (point << 6) | ((bytes[at + i] as number) & 0x3f);
  return point;
}

/** How many bytes {@link encodeUtf8} makes of it. */
export function utf8Length(text: string): number {
  let length = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) length += 1;
    else if (unit < 0x800) length += 2;
    else if (unit < 0xd800 || unit > 0xdfff) length += 3;
    else if (pairAt(text, i)) {
      length += 4;
      i++;
    } else length += isEscape(unit) ? 1 : 3;
  }
  return length;
}

const pairAt = (text: string, i: number): boolean => {
  const high = text.charCodeAt(i);
  const low = text.charCodeAt(i + 1);
  return high >= 0xd800 && high <= 0xdbff && low >= 0xdc00 && low <= 0xdfff;
};

const isEscape = (unit: number): boolean => unit >= 0xdc80 && unit <= 0xdcff;

/** Bytes of a text: the inverse of {@link decodeUtf8}. Any other lone surrogate becomes U+FFFD. */
export function encodeUtf8(text: string): Uint8Array {
  const bytes = new Uint8Array(utf8Length(text));
  writeUtf8(bytes, 0, text);
  return bytes;
}

/** Writes a text at `at` and answers where it ends. The room must be there ({@link utf8Length}). */
export function writeUtf8(target: Uint8Array, at: number, text: string): number {
  let to = at;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) target[to++] = unit;
    else if (unit < 0x800) {
      target[to++] = 0xc0 | (unit >> 6);
      target[to++] = 0x80 | (unit & 0x3f);
    } else if (isEscape(unit)) target[to++] = unit - 0xdc00;
    else if (pairAt(text, i)) {
      const point = text.codePointAt(i++) as number;
      target[to++] = 0xf0 | (point >> 18);
      target[to++] = 0x80 | ((point >> 12) & 0x3f);
      target[to++] = 0x80 | ((point >> 6) & 0x3f);
      target[to++] = 0x80 | (point & 0x3f);
    } else {
      const whole = unit >= 0xd800 && unit <= 0xdfff ? 0xfffd : unit;
      target[to++] = 0xe0 | (whole >> 12);
      target[to++] = 0x80 | ((whole >> 6) & 0x3f);
      target[to++] = 0x80 | (whole & 0x3f);
    }
  }
  return to;
}
