import { AmqpError, decodeProperties, type Properties } from "../broker/index.ts";
import type { BasicPublish } from "./methods.ts";
import type { Shared } from "./session.ts";
import { CLASS_BASIC, readU32 } from "./wire.ts";

/** Class, weight and 64-bit size in front of the property list. */
const HEADER_HEAD = 12;
/** A longer property list is hardly the same twice, and is not kept. */
const REMEMBERED = 512;
const EMPTY = new Uint8Array(0);
const { copy } = Buffer.prototype;

/** The bytes [start, end) in memory of their own, without a view made on the way. */
function copyOf(bytes: Uint8Array, start: number, end: number): Buffer {
  const own = Buffer.allocUnsafe(end - start);
  copy.call(bytes, own, 0, start, end);
  return own;
}

function sameBytes(list: Uint8Array, bytes: Uint8Array, start: number, end: number): boolean {
  if (list.length !== end - start) return false;
  for (let i = 0; i < list.length; i++) if (list[i] !== bytes[start + i]) return false;
  return true;
}

/**
 * Puts the content of one publish together: idle -> (method) header awaited -> (header) body awaited -> idle.
 * Anything else is a 505. Everything kept is copied: the frames' bytes belong to the socket's buffer.
 */
export class ContentAssembly {
  readonly #shared: Shared;
  #method: BasicPublish | null = null;
  #properties: Readonly<Properties> | null = null;
  #list: Uint8Array = EMPTY;
  #listed: Readonly<Properties> | null = null;
  #size = 0;
  #received = 0;
  #pieces: Uint8Array[] = [];
  /** Epoch ms of the first tick that found this content unfinished; 0: none yet. */
  #seenAt = 0;

  constructor(shared: Shared) {
    this.#shared = shared;
  }

  /** A publish is waiting for the rest of its content. */
  get busy(): boolean {
    return this.#method !== null;
  }

  begin(method: BasicPublish): void {
    this.#method = method;
    this.#seenAt = 0;
  }

  /** @throws AmqpError 505 out of order, 502 malformed, 406 too large. Answers true when there is no body. */
  header(bytes: Uint8Array, start: number, end: number): boolean {
    if (this.#method === null || this.#properties !== null) {
      throw new AmqpError(505, "expected method frame, got content header frame instead");
    }
    if (end - start < HEADER_HEAD + 2) throw new AmqpError(502, "malformed content header: it ends too soon");
    const classId = readU32(bytes, start) >>> 16;
    if (classId !== CLASS_BASIC) {
      throw new AmqpError(
        505,
        `expected content header for class ${CLASS_BASIC}, got one for class ${classId} instead`,
      );
    }
    const size = readU32(bytes, start + 4) * 0x100000000 + readU32(bytes, start + 8);
    const { messageBytes } = this.#shared.limits;
    if (size > messageBytes) {
      throw new AmqpError(406, `message size ${size} is larger than configured max size ${messageBytes}`);
    }
    this.#properties = this.#decoded(bytes, start + HEADER_HEAD, end);
    this.#size = size;
    this.#received = 0;
    return size === 0;
  }

  /** Most publishers send one property list over and over: it is decoded once, and never changed by anybody. */
  #decoded(bytes: Uint8Array, start: number, end: number): Readonly<Properties> {
    const list = this.#list;
    if (this.#listed !== null && sameBytes(list, bytes, start, end)) return this.#listed;
    this.#list = copyOf(bytes, start, end);
    this.#listed = null;
    const properties = decodeProperties(this.#list);
    if (this.#list.length <= REMEMBERED) this.#listed = properties;
    return properties;
  }

  /** @throws AmqpError 505 out of order, 501 too long, 506 beyond what may be unfinished. True when complete. */
  body(bytes: Uint8Array, start: number, end: number): boolean {
    if (this.#properties === null) {
      const expected = this.#method === null ? "method frame" : `content header for class ${CLASS_BASIC}`;
      throw new AmqpError(505, `expected ${expected}, got content body frame instead`);
    }
    const length = end - start;
    if (this.#received + length > this.#size) {
      throw new AmqpError(
        501,
        `a content of ${this.#size} bytes was announced and at least ${this.#received + length} came`,
      );
    }
    if (length > 0) {
      this.#pieces.push(copyOf(bytes, start, end));
      this.#received += length;
    }
    const complete = this.#received === this.#size;
    if (!complete) this.#account(length);
    return complete;
  }

  #account(length: number): void {
    const shared = this.#shared;
    if (shared.unfinished + length > shared.limits.unfinishedBytes) {
      throw new AmqpError(506, `more than ${shared.limits.unfinishedBytes} bytes of unfinished messages`);
    }
    shared.unfinished += length;
    this.#counted += length;
  }

  #counted = 0;

  /** The complete content; idle again. */
  take(): { method: BasicPublish; properties: Readonly<Properties>; body: Uint8Array } {
    const method = this.#method as BasicPublish;
    const properties = this.#properties as Properties;
    const pieces = this.#pieces;
    const body =
      pieces.length === 1 ? (pieces[0] as Uint8Array) : pieces.length === 0 ? EMPTY : Buffer.concat(pieces);
    this.reset();
    return { method, properties, body };
  }

  reset(): void {
    this.#shared.unfinished -= this.#counted;
    this.#counted = 0;
    this.#method = null;
    this.#properties = null;
    if (this.#pieces.length > 0) this.#pieces = [];
  }

  /** True when the content has been unfinished for `bodyMs`. */
  late(now: number): boolean {
    if (this.#method === null) return false;
    if (this.#seenAt === 0) this.#seenAt = now;
    return now - this.#seenAt > this.#shared.limits.bodyMs;
  }
}
