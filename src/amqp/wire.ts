import { AmqpError, encodeProperties, HeaderTable, type Properties } from "../broker/index.ts";
import { decodeUtf8, utf8Length, writeUtf8 } from "../core/index.ts";

/** Frame types and the byte every frame ends with. */
export const METHOD = 1;
export const HEADER = 2;
export const BODY = 3;
export const HEARTBEAT = 8;
export const FRAME_END = 0xce;
/** Bytes of a frame besides its payload: type, channel, size in front, the end byte behind. */
export const FRAME_OVERHEAD = 8;
/** Every peer must take frames up to this size before anything is negotiated. */
export const FRAME_MIN_SIZE = 4096;
export const CLASS_BASIC = 60;

/** How many decoded names are remembered: exchange, key and tag of one publisher repeat for ever. */
const NAMES = 256;

/** Reads the arguments of one method. One instance serves a whole server: it keeps nothing between methods. */
export class Reader {
  #bytes: Uint8Array = new Uint8Array(0);
  #at = 0;
  #end = 0;
  #bits = 0;
  #bit = 8;
  readonly #names: { bytes: Uint8Array; text: string }[] = new Array(NAMES);

  reset(bytes: Uint8Array, start: number, end: number): void {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = end;
    this.#bit = 8;
  }

  /** Nothing may be left. */
  done(): void {
    if (this.#at !== this.#end) {
      throw new AmqpError(502, `${this.#end - this.#at} bytes behind a method's last argument`);
    }
    this.#bytes = NOTHING;
  }

  #take(length: number): number {
    const at = this.#at;
    if (at + length > this.#end) throw new AmqpError(502, "a method ends inside its arguments");
    this.#at = at + length;
    this.#bit = 8;
    return at;
  }

  octet(): number {
    return this.#bytes[this.#take(1)] as number;
  }

  short(): number {
    const at = this.#take(2);
    return ((this.#bytes[at] as number) << 8) | (this.#bytes[at + 1] as number);
  }

  long(): number {
    return readU32(this.#bytes, this.#take(4));
  }

  /** Above 2^53 an approximation: no tag or size gets there. */
  longlong(): number {
    const at = this.#take(8);
    return readU32(this.#bytes, at) * 0x100000000 + readU32(this.#bytes, at + 4);
  }

  bit(): boolean {
    if (this.#bit > 7) {
      this.#bits = this.octet();
      this.#bit = 0;
    }
    return (this.#bits & (1 << this.#bit++)) !== 0;
  }

  shortstr(): string {
    const length = this.octet();
    if (length === 0) return "";
    const at = this.#take(length);
    const bytes = this.#bytes;
    const slot =
      (length * 31 +
        (bytes[at] as number) * 7 +
        (bytes[at + length - 1] as number) * 17 +
        (bytes[at + (length >> 1)] as number)) &
      (NAMES - 1);
    const known = this.#names[slot];
    if (known !== undefined && sameBytes(known.bytes, bytes, at, length)) return known.text;
    const text = decodeUtf8(bytes, at, at + length);
    this.#names[slot] = { bytes: bytes.slice(at, at + length), text };
    return text;
  }

  /** A copy: the socket's buffer moves on. */
  longstr(): Uint8Array {
    const length = this.long();
    const at = this.#take(length);
    return Uint8Array.prototype.slice.call(this.#bytes, at, at + length);
  }

  table(): HeaderTable {
    return HeaderTable.fromBytes(this.longstr());
  }
}

const NOTHING = new Uint8Array(0);

function sameBytes(known: Uint8Array, bytes: Uint8Array, at: number, length: number): boolean {
  if (known.length !== length) return false;
  for (let i = 0; i < length; i++) if (known[i] !== bytes[at + i]) return false;
  return true;
}

export function readU32(bytes: Uint8Array, at: number): number {
  return (
    (bytes[at] as number) * 0x1000000 +
    (((bytes[at + 1] as number) << 16) | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number))
  );
}

/** Small pieces are gathered in blocks of this size; a body at least a quarter of it goes out uncopied. */
const BLOCK = 32 * 1024;
const UNCOPIED = BLOCK / 4;
/** Blocks kept for reuse, by all connections together. */
const KEPT_BLOCKS = 16;
const freeBlocks: Buffer[] = [];

/**
 * Collects one connection's outgoing bytes until the turn's end. Holds no memory while empty.
 * {@link Writer.take} hands the pieces over; they belong to the socket then.
 */
export class Writer {
  #block: Buffer | null = null;
  /** Where the part not yet in `#pieces` begins. */
  #from = 0;
  #at = 0;
  #pieces: Uint8Array[] = [];
  #frame = 0;
  #bits = -1;
  #bit = 0;

  get empty(): boolean {
    return this.#block === null && this.#pieces.length === 0;
  }

  /** The pieces in order; the writer is empty afterwards. */
  take(): Uint8Array[] {
    const block = this.#block;
    if (block !== null) {
      const part = block.subarray(this.#from, this.#at);
      this.#block = null;
      if (this.#from === 0 && part.length <= UNCOPIED) {
        // Mostly a few small frames: copied, so that the block need not travel with the socket.
        if (part.length > 0) this.#pieces.push(Buffer.from(part));
        if (freeBlocks.length < KEPT_BLOCKS) freeBlocks.push(block);
      } else if (part.length > 0) this.#pieces.push(part);
    }
    const pieces = this.#pieces;
    if (pieces.length > 0) this.#pieces = [];
    return pieces;
  }

  #room(length: number): void {
    if (this.#block !== null) {
      if (this.#at + length <= this.#block.length) return;
      this.#cut();
    }
    this.#block =
      length > BLOCK ? Buffer.allocUnsafeSlow(length) : (freeBlocks.pop() ?? Buffer.allocUnsafeSlow(BLOCK));
    this.#from = 0;
    this.#at = 0;
  }

  #cut(): void {
    const block = this.#block as Buffer;
    if (this.#at > this.#from) this.#pieces.push(block.subarray(this.#from, this.#at));
    this.#from = this.#at;
  }

  /** Begins a method frame of at most `bytes` bytes of arguments. */
  begin(channel: number, method: number, bytes: number): void {
    this.#room(bytes + 4 + FRAME_OVERHEAD);
    this.#frame = this.#at;
    this.#head(METHOD, channel, 0);
    this.long(method);
  }

  end(): void {
    this.#flushBits();
    const block = this.#block as Buffer;
    setU32(block, this.#frame + 3, this.#at - this.#frame - 7);
    block[this.#at++] = FRAME_END;
  }

  #head(type: number, channel: number, size: number): void {
    const block = this.#block as Buffer;
    const at = this.#at;
    block[at] = type;
    block[at + 1] = channel >> 8;
    block[at + 2] = channel;
    setU32(block, at + 3, size);
    this.#at = at + 7;
  }

  octet(value: number): void {
    (this.#block as Buffer)[this.#at++] = value;
  }

  short(value: number): void {
    this.octet(value >> 8);
    this.octet(value);
  }

  long(value: number): void {
    setU32(this.#block as Buffer, this.#at, value);
    this.#at += 4;
  }

  longlong(value: number): void {
    setU32(this.#block as Buffer, this.#at, Math.floor(value / 0x100000000));
    setU32(this.#block as Buffer, this.#at + 4, value >>> 0);
    this.#at += 8;
  }

  /** Bits of one run share a byte; a run ends with the frame (no method has two runs, nor anything but bits behind). */
  bit(value: boolean): void {
    if (this.#bits < 0) {
      this.#bits = this.#at++;
      this.#bit = 0;
      (this.#block as Buffer)[this.#bits] = 0;
    }
    if (value)
      (this.#block as Buffer)[this.#bits] =
        ((this.#block as Buffer)[this.#bits] as number) | (1 << this.#bit);
    this.#bit++;
  }

  #flushBits(): void {
    this.#bits = -1;
  }

  /** At most 255 bytes: longer text is cut, as in reply texts it may be. */
  shortstr(text: string): void {
    this.#flushBits();
    const block = this.#block as Buffer;
    const start = this.#at + 1;
    const length = text.length;
    if (length <= 255) {
      let i = 0;
      while (i < length) {
        const unit = text.charCodeAt(i);
        if (unit > 0x7f) break;
        block[start + i++] = unit;
      }
      if (i === length) {
        block[this.#at] = length;
        this.#at = start + length;
        return;
      }
    }
    this.#longText(text);
  }

  #longText(text: string): void {
    let cut = text;
    while (utf8Length(cut) > 255) cut = cut.slice(0, -1);
    const end = writeUtf8(this.#block as Buffer, this.#at + 1, cut);
    (this.#block as Buffer)[this.#at] = end - this.#at - 1;
    this.#at = end;
  }

  longstr(bytes: Uint8Array): void {
    this.#flushBits();
    this.long(bytes.length);
    (this.#block as Buffer).set(bytes, this.#at);
    this.#at += bytes.length;
  }

  table(table: HeaderTable): void {
    this.longstr(table.bytes);
  }

  heartbeat(): void {
    this.#room(FRAME_OVERHEAD);
    this.#head(HEARTBEAT, 0, 0);
    this.octet(FRAME_END);
  }

  /** The header and body frames of a content; bodies are split to the negotiated frame size. */
  content(channel: number, properties: Readonly<Properties>, body: Uint8Array, frameMax: number): void {
    const list = encodeProperties(properties);
    this.#room(list.length + 12 + FRAME_OVERHEAD);
    this.#head(HEADER, channel, list.length + 12);
    this.long(CLASS_BASIC * 0x10000);
    this.longlong(body.length);
    const block = this.#block as Buffer;
    block.set(list, this.#at);
    this.#at += list.length;
    this.octet(FRAME_END);
    const most = frameMax - FRAME_OVERHEAD;
    for (let from = 0; from < body.length; from += most) {
      this.#bodyFrame(channel, body, from, Math.min(body.length, from + most));
    }
  }

  #bodyFrame(channel: number, body: Uint8Array, from: number, to: number): void {
    const size = to - from;
    const whole = size === body.length;
    if (size < UNCOPIED) {
      this.#room(size + FRAME_OVERHEAD);
      this.#head(BODY, channel, size);
      (this.#block as Buffer).set(whole ? body : body.subarray(from, to), this.#at);
      this.#at += size;
    } else {
      this.#room(FRAME_OVERHEAD);
      this.#head(BODY, channel, size);
      this.#cut();
      this.#pieces.push(whole ? body : body.subarray(from, to));
      this.#room(1);
    }
    this.octet(FRAME_END);
  }

  /** Bytes that are no frame: the protocol header. */
  raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    (this.#block as Buffer).set(bytes, this.#at);
    this.#at += bytes.length;
  }
}

function setU32(target: Uint8Array, at: number, value: number): void {
  target[at] = value >>> 24;
  target[at + 1] = value >>> 16;
  target[at + 2] = value >>> 8;
  target[at + 3] = value;
}
