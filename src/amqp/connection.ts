/**
 * One connection, without a socket: bytes in, bytes out through a {@link Transport}.
 *
 *   greeting -> handshake   the protocol header came (what happens there: handshake.ts)
 *   handshake -> open       connection.open was granted; channels exist only here
 *   any -> closing          connection.close was sent (the client's fault, a shutdown) or is to be answered; all else
 *                           is ignored, for at most `closeMs`
 *   any -> ended            the close was agreed on, the peer went, or time ran out
 *
 * A wrong method for the state is a 503 (504 on an open connection); bytes that are no frame are a 501, after
 * which nothing more is read.
 */
import {
  type Alarm,
  AmqpError,
  type HostConnection,
  type HostSink,
  type OutwardEffect,
  type VirtualHost,
} from "../broker/index.ts";
import { BASIC_METHODS } from "./basic-methods.ts";
import { Channel } from "./channel.ts";
import { FrameParser } from "./frames.ts";
import { type ConnectionContext, Handshake } from "./handshake.ts";
import * as m from "./methods.ts";
import { Pace } from "./pace.ts";
import type { Session } from "./session.ts";
import { TOPOLOGY_METHODS } from "./topology-methods.ts";
import { Access, type User } from "./users.ts";
import { BODY, HEADER, HEARTBEAT, METHOD, readU32, Writer } from "./wire.ts";

/** The socket, as the connection sees it. */
export interface Transport {
  readonly remoteAddress: string | undefined;
  /** Bytes given to {@link write} that the peer has not taken yet. */
  readonly waiting: number;
  write(pieces: readonly Uint8Array[]): void;
  /** No more reading until {@link resume}. */
  pause(): void;
  resume(): void;
  /** Lets what was written go out, then closes. */
  end(): void;
  /** Cuts at once. */
  destroy(): void;
}

type State = "greeting" | "handshake" | "open" | "closing" | "ended";

const HANDLERS: ReadonlyMap<number, (channel: Channel, session: Session) => void> = new Map([
  ...BASIC_METHODS,
  ...TOPOLOGY_METHODS,
]);

/** "AMQP" 0 0 9 1. */
const PROTOCOL: Uint8Array = Uint8Array.of(0x41, 0x4d, 0x51, 0x50, 0, 0, 9, 1);

const CUT = {
  "time-up": "cut: the handshake took too long",
  silent: "cut: missed heartbeats from client",
  stalled: "cut: the peer does not read",
} as const;

export class Connection implements HostSink {
  readonly writer: Writer = new Writer();
  readonly openedAt: number;
  vhost = "";
  handshake: Handshake | null = null;
  readonly #context: ConnectionContext;
  readonly #transport: Transport;
  readonly #parser: FrameParser;
  readonly #pace: Pace;
  readonly #channels = new Map<number, Channel>();
  readonly #byHostId = new Map<number, Channel>();
  #state: State = "greeting";
  #greeting: Uint8Array = new Uint8Array(0);
  #host: HostConnection | null = null;
  #session: Session | null = null;
  /** Channels with confirms to write at the end of this commit. */
  #dirty: Channel[] = [];
  /** The stream cannot be trusted any more. */
  #deaf = false;
  #publishing = false;
  #blocked = false;
  #paused = false;
  #creditDue = false;

  constructor(context: ConnectionContext, transport: Transport) {
    const now = context.now();
    this.#context = context;
    this.#transport = transport;
    this.#parser = new FrameParser(this, context.shared.limits.frameBytes);
    this.#pace = new Pace(context.shared.limits, now);
    this.openedAt = now;
  }

  get state(): State {
    return this.#state;
  }

  get channelCount(): number {
    return this.#channels.size;
  }

  get remoteAddress(): string | undefined {
    return this.#transport.remoteAddress;
  }

  get blocked(): boolean {
    return this.#blocked;
  }

  // ---- bytes in

  /** Bytes from the peer, cut anywhere. Never throws. */
  receive(chunk: Uint8Array): void {
    if (this.#state === "ended" || this.#deaf) return;
    this.#pace.heard = true;
    try {
      if (this.#state === "greeting") this.#greet(chunk);
      else this.#parser.push(chunk);
    } catch (error) {
      // Only the parser throws here: where the next frame begins is unknown from now on.
      this.#deaf = true;
      this.fail(error as AmqpError, 0);
    }
    this.flush();
  }

  #greet(chunk: Uint8Array): void {
    const have = Buffer.concat([this.#greeting, chunk]);
    const length = Math.min(have.length, PROTOCOL.length);
    for (let i = 0; i < length; i++) {
      if (have[i] === PROTOCOL[i]) continue;
      // The protocol's answer to any other protocol: say which one is spoken here, and close.
      this.writer.raw(PROTOCOL);
      this.flush();
      this.#finish("end");
      return;
    }
    if (have.length < PROTOCOL.length) {
      this.#greeting = have;
      return;
    }
    this.#greeting = new Uint8Array(0);
    this.#state = "handshake";
    this.handshake = new Handshake(this.#context, this);
    if (have.length > PROTOCOL.length) this.#parser.push(have.subarray(PROTOCOL.length));
  }

  /** A whole frame from the parser. */
  frame(type: number, number: number, bytes: Uint8Array, start: number, end: number): void {
    if (this.#state === "ended") return;
    if (type === HEARTBEAT) {
      if (number !== 0 && this.#state !== "closing") {
        this.fail(new AmqpError(501, `a heartbeat on channel ${number}`), 0);
      }
      return;
    }
    let method = 0;
    if (type === METHOD) {
      if (end - start < 4) {
        this.fail(new AmqpError(502, "a method frame without a method"), 0);
        return;
      }
      method = readU32(bytes, start);
      this.#context.shared.reader.reset(bytes, start + 4, end);
    }
    if (number === 0) this.#onChannelZero(type, method);
    else this.#onChannel(type, method, number, bytes, start, end);
  }

  #onChannelZero(type: number, method: number): void {
    if (type !== METHOD) {
      this.fail(new AmqpError(505, "expected method frame, got a content frame on channel 0"), 0);
      return;
    }
    try {
      this.#connectionMethod(method);
    } catch (error) {
      this.fail(error, method);
    }
  }

  #onChannel(
    type: number,
    method: number,
    number: number,
    bytes: Uint8Array,
    start: number,
    end: number,
  ): void {
    const channel = this.#channels.get(number);
    if (channel !== undefined) {
      if (type === METHOD) channel.method(method);
      else if (type === BODY) channel.body(bytes, start, end);
      else if (type === HEADER) channel.header(bytes, start, end);
      return;
    }
    if (this.#state === "closing") return;
    try {
      this.#openChannel(type, method, number);
    } catch (error) {
      this.fail(error, method);
    }
  }

  #openChannel(type: number, method: number, number: number): void {
    if (this.#state !== "open" || this.#session === null) {
      throw new AmqpError(503, `a frame for channel ${number} before the connection is open`);
    }
    // A close that crossed ours, or the answer to it, for a channel that has gone meanwhile.
    if (type === METHOD && method === m.ChannelCloseOkId) return;
    if (type !== METHOD || method !== m.ChannelOpenId) throw new AmqpError(504, "expected 'channel.open'");
    const { channelMax } = this.handshake as Handshake;
    if (number > channelMax || this.#channels.size >= channelMax) {
      throw new AmqpError(
        530,
        `channel ${number}: number of channels opened (${this.#channels.size}) has reached the negotiated channel_max (${channelMax})`,
      );
    }
    m.readChannelOpen(this.#context.shared.reader);
    const channel = new Channel(number, this.#session, HANDLERS);
    this.#channels.set(number, channel);
    this.#byHostId.set(channel.id, channel);
    channel.after(() => m.writeChannelOpenOk(this.writer, number));
  }

  // ---- the connection's own methods

  #connectionMethod(method: number): void {
    const { reader } = this.#context.shared;
    if (method === m.ConnectionCloseId) {
      if (this.#state !== "closing") m.readConnectionClose(reader);
      this.#answerClose();
      return;
    }
    if (this.#state === "closing") {
      if (method === m.ConnectionCloseOkId) this.#finish("end");
      return;
    }
    if (this.#state === "handshake" && this.handshake?.method(method)) {
      this.#parser.frameMax = this.handshake.frameMax;
      return;
    }
    if (this.#state !== "open" || method !== m.ConnectionUpdateSecretId) throw this.#unexpected(method);
    m.readConnectionUpdateSecret(reader);
    this.#later(() => m.writeConnectionUpdateSecretOk(this.writer, 0));
  }

  #unexpected(method: number): AmqpError {
    const name = m.METHOD_NAMES.get(method);
    if (name === undefined) return new AmqpError(540, `unknown method ${method >>> 16}.${method & 0xffff}`);
    if (this.#state === "open") {
      return new AmqpError(504, `unexpected method ${name} in connection state running`);
    }
    return new AmqpError(503, `unexpected method ${name} in connection state ${this.handshake?.step}`);
  }

  hangUp(): void {
    this.#finish("end");
  }

  opened(vhost: VirtualHost, user: User): void {
    this.vhost = vhost.name;
    this.#host = vhost.connect(this);
    this.#session = this.#makeSession(this.#host, new Access(user, vhost.name));
    this.#state = "open";
    this.#pace.noDeadline();
    this.#pace.heartbeatSeconds = this.handshake?.heartbeatSeconds ?? 0;
    this.#later(() => m.writeConnectionOpenOk(this.writer, 0));
  }

  #makeSession(host: HostConnection, access: Access): Session {
    const connection = this;
    const { shared } = this.#context;
    const handshake = this.handshake as Handshake;
    return {
      shared,
      host,
      access,
      vhost: this.vhost,
      writer: this.writer,
      frameMax: handshake.frameMax,
      wantsCancels: handshake.can("consumer_cancel_notify"),
      get congested(): boolean {
        return connection.#transport.waiting > shared.limits.writeHighBytes;
      },
      published: () => {
        if (!this.#publishing) this.#publishes();
      },
      flush: () => this.flush(),
      channelClosed: (number) => this.#forget(number),
      fail: (error, method) => this.fail(error, method),
    };
  }

  #forget(number: number): void {
    const channel = this.#channels.get(number);
    if (channel === undefined) return;
    this.#channels.delete(number);
    // Effects of earlier commands are still to come, before what is written after the commit.
    this.#later(() => this.#byHostId.delete(channel.id));
  }

  // ---- what the host lets go

  effect(effect: OutwardEffect): void {
    if (!("channel" in effect)) return;
    const channel = this.#byHostId.get(effect.channel);
    if (channel === undefined) return;
    const clean = !channel.dirty;
    channel.effect(effect);
    if (clean && channel.dirty) this.#dirty.push(channel);
    if (channel.credit.low) this.#creditDue = true;
  }

  /** Writes to the socket what has gathered. */
  flush(): void {
    if (this.#dirty.length > 0) {
      for (const channel of this.#dirty) channel.flush();
      this.#dirty = [];
    }
    if (!this.writer.empty) {
      this.#pace.said = true;
      this.#transport.write(this.writer.take());
      this.#mind();
    }
    if (this.#creditDue) this.#grantSoon();
  }

  ended(why: Error): void {
    this.#host = null;
    const error = why instanceof AmqpError ? why : new AmqpError(320, "broker forced connection closure");
    this.fail(error, 0);
    this.flush();
  }

  /** In order with what the host answers; at once while there is no host. */
  #later(run: () => void): void {
    if (this.#host === null) run();
    else this.#host.afterCommit(run);
  }

  // ---- back-pressure

  /** The peer takes less than we write: past four times the mark not even its requests are read. */
  #mind(): void {
    if (!this.#paused && this.#transport.waiting > 4 * this.#context.shared.limits.writeHighBytes)
      this.#pause();
  }

  /** The socket has taken everything. */
  drained(): void {
    if (this.#paused && !this.#blocked) this.#unpause();
    this.#grantSoon();
  }

  /** After the host's callbacks are through: granting is a command, and brings the next deliveries. */
  #grantSoon(): void {
    this.#creditDue = false;
    queueMicrotask(() => {
      const session = this.#session;
      if (this.#state !== "open" || session === null || session.congested) return;
      for (const channel of this.#channels.values()) if (channel.credit.low) channel.credit.grant();
    });
  }

  #pause(): void {
    this.#paused = true;
    this.#transport.pause();
  }

  #unpause(): void {
    this.#paused = false;
    this.#transport.resume();
  }

  #publishes(): void {
    this.#publishing = true;
    this.alarm(this.#context.host.alarms?.() ?? []);
  }

  /** The host is short of something, or no longer: a connection that publishes is held, and told. */
  alarm(alarms: readonly Alarm[]): void {
    if (!this.#publishing || this.#state !== "open" || alarms.length > 0 === this.#blocked) return;
    this.#blocked = alarms.length > 0;
    const told = this.handshake?.can("connection.blocked") === true;
    if (this.#blocked) {
      this.#pause();
      if (told) this.#later(() => m.writeConnectionBlocked(this.writer, 0, `low on ${alarms.join(" & ")}`));
    } else {
      this.#unpause();
      this.#pace.heard = true;
      if (told) this.#later(() => m.writeConnectionUnblocked(this.writer, 0));
    }
  }

  // ---- time

  /** Heartbeats and time limits; called every `TICK_MS`. */
  tick(now: number): void {
    if (this.#state === "ended") return;
    const due = this.#pace.tick(now, this.#transport.waiting, !this.#paused);
    if (due === "nothing" || due === "beat") {
      if (this.#state !== "open") return;
      if (due === "beat") this.writer.heartbeat();
      this.#lateBodies(now);
      this.flush();
      return;
    }
    if (this.#state !== "closing") {
      this.#context.log(CUT[due], { from: this.#transport.remoteAddress, state: this.#state });
    }
    this.#finish("destroy");
  }

  #lateBodies(now: number): void {
    for (const channel of this.#channels.values()) {
      if (!channel.late(now)) continue;
      this.fail(new AmqpError(320, "the body of a message did not arrive in time"), m.BasicPublishId);
      return;
    }
  }

  // ---- the end

  /** Closes with this error, once everything before it has been answered; the peer has `closeMs` to agree. */
  fail(error: unknown, method: number): void {
    if (this.#state === "closing" || this.#state === "ended") return;
    const told = error instanceof AmqpError ? error : new AmqpError(541, "an internal error occurred");
    if (told !== error)
      this.#context.log("an internal error closed a connection", {
        error: String((error as Error)?.stack ?? error),
      });
    this.#state = "closing";
    this.#pace.closing(this.#context.now());
    if (this.#paused) this.#unpause();
    this.#release();
    this.#later(() => {
      m.writeConnectionClose(this.writer, 0, told.code, told.message, method >>> 16, method & 0xffff);
    });
  }

  /** The server is going down. */
  shutdown(): void {
    if (this.#state === "greeting") this.#finish("destroy");
    else this.fail(new AmqpError(320, "broker forced connection closure with reason 'shutdown'"), 0);
    this.flush();
  }

  #answerClose(): void {
    const wasOpen = this.#state === "open";
    this.#state = "closing";
    this.#pace.closing(this.#context.now());
    if (wasOpen) this.#release();
    this.#later(() => {
      m.writeConnectionCloseOk(this.writer, 0);
      this.flush();
      this.#finish("end");
    });
  }

  /** The peer has gone, in whatever way. */
  gone(): void {
    this.#finish("destroy");
  }

  #release(): void {
    for (const channel of this.#channels.values()) channel.forget();
    this.#channels.clear();
    this.#host?.close();
  }

  #finish(how: "end" | "destroy"): void {
    if (this.#state === "ended") return;
    const held = this.#state === "open";
    this.#state = "ended";
    if (held) this.#release();
    if (how === "end") this.flush();
    this.#byHostId.clear();
    this.#transport[how]();
  }
}
