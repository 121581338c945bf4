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
import { Channels } from "./channels.ts";
import { FrameParser } from "./frames.ts";
import { Greeting, PROTOCOL } from "./greeting.ts";
import { type ConnectionContext, Handshake } from "./handshake.ts";
import { Holds } from "./holds.ts";
import * as m from "./methods.ts";
import { Pace } from "./pace.ts";
import { asAmqpError } from "./refusals.ts";
import type { Session } from "./session.ts";
import type { Transport } from "./transport.ts";
import { Access, type User } from "./users.ts";
import { BODY, HEADER, HEARTBEAT, METHOD, readU32, Writer } from "./wire.ts";

type State = "greeting" | "handshake" | "open" | "closing" | "ended";

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
  readonly #channels = new Channels();
  #state: State = "greeting";
  #greeting: Greeting | null = new Greeting();
  #host: HostConnection | null = null;
  #session: Session | null = null;
  /** The stream cannot be trusted any more. */
  #deaf = false;
  readonly #holds: Holds;
  /** close-ok was sent. */
  #answered = false;

  constructor(context: ConnectionContext, transport: Transport) {
    const now = context.now();
    this.#context = context;
    this.#transport = transport;
    this.#parser = new FrameParser(this, context.shared.limits.frameBytes);
    this.#pace = new Pace(context.shared.limits, now);
    this.#holds = new Holds(transport, context.shared.limits, (reason) => this.#tellBlocked(reason));
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
    return this.#holds.blocked;
  }

  // ---- bytes in

  /** Bytes from the peer, cut anywhere. Never throws. */
  receive(chunk: Uint8Array): void {
    if (this.#state === "ended" || this.#deaf) return;
    this.#pace.heard = true;
    try {
      if (this.#greeting !== null) this.#greet(this.#greeting, chunk);
      else this.#parser.push(chunk);
    } catch (error) {
      // Only the parser throws here: where the next frame begins is unknown from now on.
      this.#deaf = true;
      this.fail(error as AmqpError, 0);
    }
    this.flush();
  }

  #greet(greeting: Greeting, chunk: Uint8Array): void {
    const behind = greeting.push(chunk);
    if (behind === "more") return;
    this.#greeting = null;
    if (behind === "other") {
      this.writer.raw(PROTOCOL);
      this.#finish("end");
      return;
    }
    this.#state = "handshake";
    this.handshake = new Handshake(this.#context, this);
    if (behind.length > 0) this.#parser.push(behind);
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
      if (this.#session === null) {
        throw new AmqpError(503, `a frame for channel ${number} before the connection is open`);
      }
      this.#channels.open(this.#session, type, method, number, this.handshake?.channelMax ?? 0);
    } catch (error) {
      this.fail(error, method);
    }
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
    // Promises nothing that a commit would have to keep.
    m.writeConnectionOpenOk(this.writer, 0);
  }

  #makeSession(host: HostConnection, access: Access): Session {
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
      published: () => this.#holds.published(() => this.#context.host.alarms?.() ?? []),
      flush: () => this.flush(),
      channelClosed: (number) => this.#channels.forget(number),
      fail: (error, method) => this.fail(error, method),
    };
  }

  // ---- what the host lets go

  effect(effect: OutwardEffect): void {
    this.#channels.effect(effect);
  }

  /** Writes to the socket what has gathered. */
  flush(): void {
    this.#channels.confirms();
    if (!this.writer.empty) {
      this.#pace.said = true;
      this.#transport.write(this.writer.take());
      this.#holds.wrote();
    }
    if (this.#channels.takeCreditDue()) this.#grantSoon();
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

  /** The socket has taken everything. */
  drained(): void {
    this.#holds.drained();
    this.#grantSoon();
  }

  /** After the host's callbacks are through: granting is a command, and brings the next deliveries. */
  #grantSoon(): void {
    queueMicrotask(() => {
      if (this.#state === "open" && !this.#holds.congested) this.#channels.grant();
    });
  }

  /** The host is short of something, or no longer: a connection that publishes is held, and told. */
  alarm(alarms: readonly Alarm[]): void {
    if (this.#state !== "open") return;
    this.#holds.alarm(alarms);
    this.flush();
  }

  /** At once, not after the next commit: with a full disk that may be a long time off. */
  #tellBlocked(reason: string | null): void {
    if (this.handshake?.can("connection.blocked") !== true) return;
    if (reason === null) m.writeConnectionUnblocked(this.writer, 0);
    else m.writeConnectionBlocked(this.writer, 0, reason);
  }

  // ---- time

  /** Heartbeats and time limits; called every `TICK_MS`. */
  tick(now: number): void {
    if (this.#state === "ended") return;
    if (this.#answered) {
      this.#finish("end");
      return;
    }
    const due = this.#pace.tick(now, this.#transport.waiting, !this.#holds.paused);
    if (due === "nothing" || due === "beat") {
      if (this.#state !== "open") return;
      if (due === "beat") this.writer.heartbeat();
      if (this.#channels.late(now)) {
        this.fail(new AmqpError(320, "the body of a message did not arrive in time"), m.BasicPublishId);
      }
      this.#channels.closeOverdue(now, this.#context);
      this.flush();
      return;
    }
    if (this.#state !== "closing") {
      this.#context.log(CUT[due], { from: this.#transport.remoteAddress, state: this.#state });
    }
    this.#finish("destroy");
  }

  // ---- the end

  /** Closes with this error, once everything before it has been answered; the peer has `closeMs` to agree. */
  fail(thrown: unknown, method: number): void {
    if (this.#state === "closing" || this.#state === "ended") return;
    const error = asAmqpError(thrown);
    const told = error instanceof AmqpError ? error : new AmqpError(541, "an internal error occurred");
    if (told !== error)
      this.#context.log("an internal error closed a connection", {
        error: String((error as Error)?.stack ?? error),
      });
    this.#state = "closing";
    this.#pace.closing(this.#context.now());
    this.#holds.release();
    this.#release();
    this.#later(() => {
      this.#channels.confirms();
      m.writeConnectionClose(this.writer, 0, told.code, told.message, method >>> 16, method & 0xffff);
    });
  }

  /** The server is going down. */
  shutdown(): void {
    if (this.#state === "greeting") this.#finish("destroy");
    else if (this.#answered) this.#finish("end");
    else this.fail(new AmqpError(320, "broker forced connection closure with reason 'shutdown'"), 0);
    this.flush();
  }

  /**
   * The client closes. The socket stays until it closes that too, or the next tick: clients with several threads
   * may say close twice, and expect an answer each time.
   */
  #answerClose(): void {
    const wasOpen = this.#state === "open";
    this.#state = "closing";
    this.#pace.closing(this.#context.now());
    if (wasOpen) this.#release(true);
    this.#later(() => {
      this.#channels.confirms();
      m.writeConnectionCloseOk(this.writer, 0);
      this.#answered = true;
    });
  }

  /** The peer will send no more; what was answered still goes out. */
  peerEnded(): void {
    this.#finish("end");
  }

  /** The socket has closed. */
  gone(): void {
    this.#finish("destroy");
  }

  /** `clean`: the client said connection.close; what it held is under no suspicion then. */
  #release(clean = false): void {
    this.#channels.release();
    this.#host?.close({ clean });
  }

  #finish(how: "end" | "destroy"): void {
    if (this.#state === "ended") return;
    const held = this.#state === "open";
    this.#state = "ended";
    if (held) this.#release();
    if (how === "end") this.flush();
    this.#channels.clear();
    this.#transport[how]();
  }
}
