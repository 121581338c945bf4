// A client that speaks frames: for tests that need to break rules no real client breaks.
import { connect, type Socket } from "node:net";
import { FrameParser } from "../../src/amqp/frames.ts";
import { BODY, HEADER, HEARTBEAT, METHOD, Reader, readU32, Writer } from "../../src/amqp/wire.ts";
import { HeaderTable, type Properties } from "../../src/broker/index.ts";
import * as c from "./amqp-methods.ts";

export const PROTOCOL = Buffer.from("414d515000000901", "hex");

/** A frame from the server, as tests compare it. */
export interface Seen {
  readonly channel: number;
  /** `queue.declare_ok`, or `header`, `body`, `heartbeat`. */
  readonly what: string;
  readonly args: Record<string, unknown>;
  readonly payload: Uint8Array;
}

const readers: Record<string, (from: Reader) => unknown> = {};
for (const [name, value] of Object.entries(c)) {
  if (name.startsWith("read")) readers[name.slice(4)] = value as (from: Reader) => unknown;
}

const pascal = (name: string) =>
  name
    .split(/[._]/)
    .map((word) => (word[0] as string).toUpperCase() + word.slice(1))
    .join("");

/** Bytes of what a callback writes. */
export function bytesOf(write: (to: Writer) => void): Buffer {
  const writer = new Writer();
  write(writer);
  return Buffer.concat(writer.take());
}

/** Turns the server's bytes into {@link Seen} frames and lets a test wait for them. */
export class Frames {
  readonly seen: Seen[] = [];
  readonly raw: Buffer[] = [];
  ended = false;
  readonly #reader = new Reader();
  readonly #parser: FrameParser;
  #wake: (() => void)[] = [];

  constructor() {
    this.#parser = new FrameParser(this, 0xffffffff);
  }

  push(bytes: Uint8Array): void {
    this.raw.push(Buffer.from(bytes));
    if (bytes[0] !== 0x41) this.#parser.push(bytes);
    this.notify();
  }

  notify(): void {
    for (const wake of this.#wake) wake();
    this.#wake = [];
  }

  frame(type: number, channel: number, bytes: Uint8Array, start: number, end: number): void {
    const payload = Uint8Array.from(bytes.subarray(start, end));
    if (type === METHOD) {
      const name = c.METHOD_NAMES.get(readU32(bytes, start)) as string;
      this.#reader.reset(bytes, start + 4, end);
      const args = (readers[pascal(name)] as (from: Reader) => Record<string, unknown>)(this.#reader) ?? {};
      this.seen.push({ channel, what: name, args, payload });
    } else {
      const what = { [HEADER]: "header", [BODY]: "body", [HEARTBEAT]: "heartbeat" }[type] as string;
      this.seen.push({ channel, what, args: {}, payload });
    }
  }

  /** The next frame of that name from `from` on; waits for it. Fails when the server has ended the stream. */
  async next(what: string, from = 0, withinMs = 5000): Promise<Seen> {
    const until = Date.now() + withinMs;
    for (;;) {
      const found = this.seen.slice(from).find((frame) => frame.what === what);
      if (found !== undefined) return found;
      if (this.ended || Date.now() > until) throw new Error(`no ${what}; came: ${this.names().join(", ")}`);
      await this.#change(until - Date.now());
    }
  }

  async end(withinMs = 5000): Promise<void> {
    const until = Date.now() + withinMs;
    while (!this.ended) {
      if (Date.now() > until)
        throw new Error(`the server did not end the connection; came: ${this.names().join(", ")}`);
      await this.#change(until - Date.now());
    }
  }

  #change(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  names(): string[] {
    return this.seen.map((frame) => frame.what);
  }
}

export interface LoginOptions {
  readonly user?: string;
  readonly password?: string;
  readonly mechanism?: string;
  readonly response?: Uint8Array;
  readonly capabilities?: Record<string, boolean>;
  readonly channelMax?: number;
  readonly frameMax?: number;
  readonly heartbeat?: number;
  readonly vhost?: string;
}

export const startOk = (o: LoginOptions = {}): Buffer =>
  bytesOf((to) =>
    c.writeConnectionStartOk(
      to,
      0,
      HeaderTable.fromObject({
        capabilities: o.capabilities ?? {
          consumer_cancel_notify: true,
          "connection.blocked": true,
          authentication_failure_close: true,
        },
      }),
      o.mechanism ?? "PLAIN",
      o.response ?? Buffer.from(`\0${o.user ?? "guest"}\0${o.password ?? "guest"}`),
      "en_US",
    ),
  );

export const tuneOk = (o: LoginOptions = {}): Buffer =>
  bytesOf((to) =>
    c.writeConnectionTuneOk(to, 0, o.channelMax ?? 2047, o.frameMax ?? 131072, o.heartbeat ?? 0),
  );

export const open = (o: LoginOptions = {}): Buffer =>
  bytesOf((to) => c.writeConnectionOpen(to, 0, o.vhost ?? "/"));

/** A publish with its content, as one client would send it. */
export const publish = (
  channel: number,
  exchange: string,
  key: string,
  body: Uint8Array | string,
  properties: Properties = {},
  mandatory = false,
): Buffer =>
  bytesOf((to) => {
    c.writeBasicPublish(to, channel, exchange, key, mandatory, false);
    to.content(channel, properties, typeof body === "string" ? Buffer.from(body) : body, 131072);
  });

/** The same over a real socket. */
export class RawClient {
  readonly frames = new Frames();
  readonly socket: Socket;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (chunk) => this.frames.push(chunk));
    socket.on("error", () => {});
    socket.on("close", () => {
      this.frames.ended = true;
      this.frames.notify();
    });
  }

  static async connect(port: number, host = "127.0.0.1"): Promise<RawClient> {
    const socket = connect({ port, host, noDelay: true });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return new RawClient(socket);
  }

  /** Connected, logged in and open. */
  static async open(port: number, options: LoginOptions = {}): Promise<RawClient> {
    const client = await RawClient.connect(port);
    client.send(PROTOCOL);
    await client.frames.next("connection.start");
    client.send(startOk(options));
    await client.frames.next("connection.tune");
    client.send(Buffer.concat([tuneOk(options), open(options)]));
    await client.frames.next("connection.open_ok");
    return client;
  }

  send(bytes: Uint8Array): void {
    this.socket.write(bytes);
  }

  write(write: (to: Writer) => void): void {
    this.send(bytesOf(write));
  }

  /** Sends and waits for the answer. */
  async call(write: (to: Writer) => void, answer: string): Promise<Seen> {
    const from = this.frames.seen.length;
    this.write(write);
    return this.frames.next(answer, from);
  }

  channel(number = 1): Promise<Seen> {
    return this.call((to) => c.writeChannelOpen(to, number), "channel.open_ok");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.socket.destroy();
    await this.frames.end();
  }
}
