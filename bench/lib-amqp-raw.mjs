// A client for benches that costs next to nothing: frames are built once, answers are counted, nothing else.
import { connect } from "node:net";

const END = 0xce;
const PROTOCOL = Buffer.from("414d515000000901", "hex");

const frame = (type, channel, payload) => {
  const bytes = Buffer.alloc(payload.length + 8);
  bytes[0] = type;
  bytes.writeUInt16BE(channel, 1);
  bytes.writeUInt32BE(payload.length, 3);
  payload.copy(bytes, 7);
  bytes[bytes.length - 1] = END;
  return bytes;
};
const short = (text) => Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);
const long = (bytes) => {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(bytes.length);
  return Buffer.concat([head, Buffer.from(bytes)]);
};
const u16 = (n) => Buffer.from([n >> 8, n & 255]);
const u32 = (n) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(n);
  return bytes;
};
const entry = (key, type, value) => Buffer.concat([short(key), Buffer.from(type), value]);
const method = (channel, classId, methodId, ...args) =>
  frame(1, channel, Buffer.concat([u16(classId), u16(methodId), ...args]));

/** A publish of a persistent message with its content. */
export function publishFrames(exchange, key, body) {
  const header = Buffer.concat([
    u16(60),
    u16(0),
    u32(0),
    u32(body.length),
    u16(0x9000),
    short("text/plain"),
    Buffer.from([2]),
  ]);
  return Buffer.concat([
    method(1, 60, 40, u16(0), short(exchange), short(key), Buffer.from([0])),
    frame(2, 1, header),
    frame(3, 1, body),
  ]);
}

export const ack = (tag, multiple = false) =>
  method(1, 60, 80, u32(0), u32(tag), Buffer.from([multiple ? 1 : 0]));
export const reject = (tag) => method(1, 60, 90, u32(0), u32(tag), Buffer.from([0]));

export class Raw {
  /** Called with (method id, payload start, bytes) for every method frame. */
  onMethod = () => {};
  /** Called for every delivered body. */
  onBody = () => {};
  #rest = null;
  #waiting = [];

  static async open(url, vhost = "/") {
    const { hostname, port, username, password } = new URL(url);
    const raw = new Raw();
    raw.socket = connect({ host: hostname, port: Number(port), noDelay: true });
    raw.socket.on("data", (chunk) => raw.#data(chunk));
    raw.socket.on("error", (error) => {
      raw.failed = error;
    });
    await new Promise((done, failed) => raw.socket.once("connect", done).once("error", failed));
    raw.socket.write(PROTOCOL);
    await raw.next(10, 10);
    const credentials = `\0${username || "guest"}\0${password || "guest"}`;
    raw.socket.write(method(0, 10, 11, long(""), short("PLAIN"), long(credentials), short("en_US")));
    await raw.next(10, 30);
    raw.socket.write(
      Buffer.concat([
        method(0, 10, 31, u16(2047), u32(131072), u16(0)),
        method(0, 10, 40, short(vhost), short(""), Buffer.from([0])),
      ]),
    );
    await raw.next(10, 41);
    raw.socket.write(method(1, 20, 10, short("")));
    await raw.next(20, 11);
    return raw;
  }

  next(classId, methodId) {
    return new Promise((done, failed) => {
      const timer = setTimeout(() => failed(new Error(`no answer ${classId}.${methodId}`)), 20_000);
      this.#waiting.push({
        id: classId * 65536 + methodId,
        done: (value) => {
          clearTimeout(timer);
          done(value);
        },
      });
    });
  }

  call(bytes, classId, methodId) {
    const answer = this.next(classId, methodId);
    this.socket.write(bytes);
    return answer;
  }

  queue(name, deadLettersTo) {
    const table =
      deadLettersTo === undefined
        ? Buffer.alloc(0)
        : Buffer.concat([
            entry("x-dead-letter-exchange", "S", long("")),
            entry("x-dead-letter-routing-key", "S", long(deadLettersTo)),
          ]);
    return this.call(method(1, 50, 10, u16(0), short(name), Buffer.from([2]), long(table)), 50, 11);
  }

  confirms() {
    return this.call(method(1, 85, 10, Buffer.from([0])), 85, 11);
  }

  async consume(name, prefetch) {
    await this.call(method(1, 60, 10, u32(0), u16(prefetch), Buffer.from([0])), 60, 11);
    await this.call(method(1, 60, 20, u16(0), short(name), short("c"), Buffer.from([0]), long("")), 60, 21);
  }

  deleteQueue(name) {
    return this.call(method(1, 50, 40, u16(0), short(name), Buffer.from([0])), 50, 41);
  }

  close() {
    this.socket.destroy();
  }

  #data(chunk) {
    const bytes = this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= 8) {
      const size = bytes.readUInt32BE(at + 3);
      if (bytes.length - at < size + 8) break;
      const type = bytes[at];
      if (type === 1) this.#method(bytes.readUInt32BE(at + 7), at + 11, bytes);
      else if (type === 3) this.onBody(bytes, at + 7);
      at += size + 8;
    }
    this.#rest = at === bytes.length ? null : bytes.subarray(at);
  }

  #method(id, at, bytes) {
    if (id === 0x000a0032 || id === 0x00140028) {
      this.failed = new Error(
        `closed by the broker: ${bytes.toString("latin1", at + 3, at + 3 + bytes[at + 2])}`,
      );
    }
    if (this.#waiting.length > 0 && this.#waiting[0].id === id) this.#waiting.shift().done(bytes);
    else this.onMethod(id, at, bytes);
  }
}

export const tagAt = (bytes, at) => bytes.readUInt32BE(at + 4);
