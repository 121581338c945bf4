/** How a message's head (exchange, keys, properties) is written, and the bounded cache of contents. */
import {
  type Content,
  type ContentStore,
  decodeProperties,
  propertiesLength,
  SeqMap,
  writeProperties,
} from "../../broker/index.ts";
import { decodeUtf8, utf8Length, writeUtf8 } from "../../core/index.ts";

const HAS_KEYS = 1;

/** flags, exchange (8-bit length), routing key (same), [CC and BCC as 32-bit length and JSON], properties. */
export function encodeHead(content: Content): Uint8Array {
  const { properties } = content;
  const exchange = utf8Length(content.exchange);
  const key = utf8Length(content.routingKey);
  const keys = content.keys === undefined ? "" : JSON.stringify(content.keys);
  const keysLength = keys === "" ? 0 : 4 + Buffer.byteLength(keys);
  const head = Buffer.allocUnsafe(3 + exchange + key + keysLength + propertiesLength(properties));
  head[0] = keys === "" ? 0 : HAS_KEYS;
  head[1] = exchange;
  writeUtf8(head, 2, content.exchange);
  head[2 + exchange] = key;
  writeUtf8(head, 3 + exchange, content.routingKey);
  let at = 3 + exchange + key;
  if (keys !== "") {
    head.writeUInt32LE(keysLength - 4, at);
    head.write(keys, at + 4);
    at += keysLength;
  }
  // In place: an array of its own for each head would be memory of its own, to be had and given back.
  writeProperties(head, at, properties);
  return head;
}

/** Where a message was published to: mostly the same as the one before, which need not be decoded again. */
type Named = Pick<Content, "exchange" | "routingKey">;
let lastBytes = new Uint8Array(0);
let last: Named = { exchange: "", routingKey: "" };

function decodeNames(head: Uint8Array, exchange: number, end: number): Named {
  let at = end - 1;
  if (lastBytes.length === end) while (at > 0 && lastBytes[at] === head[at]) at--;
  if (at > 0) {
    last = {
      exchange: decodeUtf8(head, 2, 2 + exchange),
      routingKey: decodeUtf8(head, 3 + exchange, end),
    };
    lastBytes = new Uint8Array(head.subarray(0, end)); // a copy, also of a Buffer
  }
  return last;
}

export function decodeHead(head: Uint8Array, body: Uint8Array): Content {
  const exchange = head[1] as number;
  const at = 3 + exchange + (head[2 + exchange] as number);
  const named = decodeNames(head, exchange, at);
  if (((head[0] as number) & HAS_KEYS) === 0)
    // Spelled out, it is of one shape with those that come from a client; all that follows is faster for it.
    return {
      exchange: named.exchange,
      routingKey: named.routingKey,
      properties: decodeProperties(head.subarray(at)),
      body,
    };
  const view = Buffer.from(head.buffer, head.byteOffset, head.byteLength);
  const end = at + 4 + view.readUInt32LE(at);
  return {
    ...named,
    keys: JSON.parse(view.toString("utf8", at + 4, end)) as NonNullable<Content["keys"]>,
    properties: decodeProperties(head.subarray(end)),
    body,
  };
}

// Head, objects and map entry of a cached content, roughly; bodies come on top.
const ENTRY_BYTES = 600;

/** Reads a content from the file; `found` is told what was read with it because it is likely to be asked for next. */
export type ReadContent = (seq: number, found: (seq: number, content: Content) => void) => Content;

/**
 * Contents in memory. Those not in the file yet (or never: transient messages) are held; the others are kept in
 * a cache of a fixed number of bytes and read again when needed. The cache is two maps: when the young one holds half
 * of the bytes it becomes the old one, and what was old is let go as a whole. (One map and a place to go on from in
 * it would keep everything it ever held: an iterator holds on to all that its map has outgrown.)
 */
export class ContentCache implements ContentStore {
  readonly #held = new SeqMap<Content>();
  readonly #limit: number;
  readonly #read: ReadContent;
  /** Told of each message that goes. */
  onDelete: (seq: number) => void = () => {};
  /** The highest number any message had, also one that is never written. */
  highest = 0;
  #young = new SeqMap<Content>();
  #old = new SeqMap<Content>();
  #youngBytes = 0;

  constructor(limitBytes: number, read: ReadContent) {
    this.#limit = limitBytes;
    this.#read = read;
  }

  put(seq: number, content: Content): void {
    this.#held.set(seq, content);
    if (seq > this.highest) this.highest = seq;
  }

  get(seq: number): Content {
    const content = this.#find(seq);
    if (content !== undefined) return content;
    const loaded = this.#read(seq, (found, other) => {
      if (this.#find(found) === undefined) this.#keep(found, other);
    });
    this.#keep(seq, loaded);
    return loaded;
  }

  #find(seq: number): Content | undefined {
    return this.#held.get(seq) ?? this.#young.get(seq) ?? this.#old.get(seq);
  }

  delete(seq: number): void {
    this.onDelete(seq);
    if (this.#held.delete(seq) === undefined && this.#young.delete(seq) === undefined) this.#old.delete(seq);
  }

  /** The content lies in the file now. `keep`: it will be asked for soon. */
  written(seq: number, keep = true): void {
    const content = this.#held.delete(seq);
    if (keep && content !== undefined) this.#keep(seq, content);
  }

  #keep(seq: number, content: Content): void {
    this.#young.set(seq, content);
    // What goes is not taken off: its bytes may be part of a piece that was read in one with others that stay.
    this.#youngBytes += content.body.length + ENTRY_BYTES;
    if (this.#youngBytes * 2 <= this.#limit) return;
    this.#old = this.#young;
    this.#young = new SeqMap();
    this.#youngBytes = 0;
  }
}
