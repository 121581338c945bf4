import { AmqpError } from "../broker/index.ts";
import { BODY, FRAME_END, FRAME_OVERHEAD, HEADER, HEARTBEAT, METHOD, readU32 } from "./wire.ts";

/** Takes whole frames; `bytes[start, end)` is the payload and only valid during the call. */
export interface FrameHandler {
  frame(type: number, channel: number, bytes: Uint8Array, start: number, end: number): void;
}

/** A frame's head must be complete before its size is known. */
const HEAD = 7;
/** An unfinished piece up to this size is copied, so that it does not hold on to the socket's whole buffer. */
const COPY_UPTO = 4096;

/**
 * Cuts a byte stream into frames, wherever the network cut it before. Type and size are checked as soon as the
 * head is there, so that nothing is collected for a frame that will be refused. After a throw the stream cannot
 * be trusted any more: do not push again.
 */
export class FrameParser {
  /** Largest frame with its overhead; set when negotiated. */
  frameMax: number;
  readonly #handler: FrameHandler;
  #rest: Uint8Array[] = NONE;
  #have = 0;
  #need = 0;

  constructor(handler: FrameHandler, frameMax: number) {
    this.#handler = handler;
    this.frameMax = frameMax;
  }

  /** @throws AmqpError 501 for a wrong type, size or end byte; whatever the handler throws. */
  push(chunk: Uint8Array): void {
    let bytes = chunk;
    if (this.#have > 0) {
      this.#rest.push(chunk);
      this.#have += chunk.length;
      if (this.#have < this.#need) return;
      bytes = Buffer.concat(this.#rest, this.#have);
      this.#rest = NONE;
      this.#have = 0;
    }
    let at = 0;
    while (at < bytes.length) {
      const left = bytes.length - at;
      const need = left < HEAD ? HEAD : this.#frameLength(bytes, at);
      if (left < need) {
        this.#keep(bytes, at, need);
        return;
      }
      const end = at + need - 1;
      if (bytes[end] !== FRAME_END) {
        throw new AmqpError(
          501,
          `a frame ends with 0x${(bytes[end] as number).toString(16)} instead of 0xce`,
        );
      }
      const channel = ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number);
      this.#handler.frame(bytes[at] as number, channel, bytes, at + HEAD, end);
      at = end + 1;
    }
  }

  #keep(bytes: Uint8Array, at: number, need: number): void {
    const rest = bytes.subarray(at);
    this.#rest = [rest.length <= COPY_UPTO ? Buffer.from(rest) : rest];
    this.#have = rest.length;
    this.#need = need;
  }

  #frameLength(bytes: Uint8Array, at: number): number {
    const type = bytes[at] as number;
    const size = readU32(bytes, at + 3);
    if (type !== METHOD && type !== HEADER && type !== BODY && type !== HEARTBEAT) {
      throw new AmqpError(501, `unknown frame type ${type}`);
    }
    if (size + FRAME_OVERHEAD > this.frameMax) {
      throw new AmqpError(
        501,
        `a frame of ${size + FRAME_OVERHEAD} bytes is above the frame_max of ${this.frameMax}`,
      );
    }
    return size + FRAME_OVERHEAD;
  }
}

const NONE: Uint8Array[] = [];
