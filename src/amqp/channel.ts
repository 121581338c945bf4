/**
 * One channel.
 *
 *   open ------ channel.close from the client --> gone (close-ok sent after the commit)
 *   open ------ an error of ours --> closing (channel.close sent; everything ignored but close and close-ok) --> gone
 *
 * Commands are submitted as they come; what is answered is written after the host's commit, in their order.
 */
import { AmqpError, type ChannelId, type Command, type OutwardEffect, type Reply } from "../broker/index.ts";
import { AckClock } from "./ack-clock.ts";
import { ContentAssembly } from "./content.ts";
import { DeliveryCredit } from "./credit.ts";
import * as m from "./methods.ts";
import { asAmqpError } from "./refusals.ts";
import { ReplyTo } from "./reply-to.ts";
import type { Session } from "./session.ts";

type Handler = (channel: Channel, session: Session) => void;
type Deliver = Extract<OutwardEffect, { type: "deliver" }>;
type Return = Extract<OutwardEffect, { type: "return" }>;

export class Channel {
  readonly number: number;
  readonly id: ChannelId;
  readonly session: Session;
  /** The queue last declared here: what an empty queue name means. */
  lastQueue: string | null = null;
  /** Where answers to this channel's requests go, and the consumer's tag. */
  reply: { address: string; tag: string } | null = null;
  readonly credit: DeliveryCredit;
  readonly #content: ContentAssembly;
  readonly #handlers: ReadonlyMap<number, Handler>;
  readonly #acks: AckClock;
  /** Direct answers of the open transaction; null: the channel has no transactions. */
  #answers: (() => void)[] | null = null;
  #closing = false;
  // Confirms of one commit that have not been written: tags from..to, all the same verdict.
  #confirmFrom = 0;
  #confirmTo = 0;
  #confirmOk = true;
  /** Every tag up to here has its verdict: only then may `multiple` be used. */
  #settledUpTo = 0;

  constructor(number: number, session: Session, handlers: ReadonlyMap<number, Handler>) {
    this.number = number;
    this.session = session;
    this.#handlers = handlers;
    this.#content = new ContentAssembly(session.shared);
    this.#acks = new AckClock(session.shared.limits.ackTimeoutMs);
    this.id = session.host.openChannel();
    this.credit = new DeliveryCredit(this.id, session);
  }

  submit(command: Command): Reply {
    return this.session.host.submit(command);
  }

  /** Writes an answer once everything submitted so far is durable. */
  after(write: () => void): void {
    this.session.host.afterCommit(write);
  }

  /** Submits, with the answer going out before the command's own effects: a consumer's tag before its messages. */
  answerFirst(write: () => void, command: Command): void {
    let done = false;
    this.after(() => {
      if (done) write();
    });
    this.submit(command);
    done = true;
  }

  /** A method frame; its arguments are in the shared reader. */
  method(id: number): void {
    if (this.#closing) {
      this.#whileClosing(id);
      return;
    }
    try {
      if (this.#content.busy) {
        throw new AmqpError(
          505,
          "expected content header for class 60, got non content header frame instead",
        );
      }
      if (id === m.BasicPublishId) this.#content.begin(m.readBasicPublish(this.session.shared.reader));
      else this.#other(id);
    } catch (error) {
      this.fail(error, id);
    }
  }

  #other(id: number): void {
    const handler = this.#handlers.get(id);
    if (handler !== undefined) {
      handler(this, this.session);
      return;
    }
    if (id === m.ChannelCloseId) {
      m.readChannelClose(this.session.shared.reader);
      this.#end();
      this.after(() => {
        this.flush();
        m.writeChannelCloseOk(this.session.writer, this.number);
      });
      return;
    }
    if (id === m.ChannelOpenId) throw new AmqpError(504, "second 'channel.open' seen");
    if (!m.METHOD_NAMES.has(id)) throw new AmqpError(540, `unknown method ${id >>> 16}.${id & 0xffff}`);
    throw new AmqpError(503, "unimplemented method");
  }

  #whileClosing(id: number): void {
    if (id === m.ChannelCloseId) {
      this.after(() => m.writeChannelCloseOk(this.session.writer, this.number));
      this.session.channelClosed(this.number);
    } else if (id === m.ChannelCloseOkId) this.session.channelClosed(this.number);
  }

  header(bytes: Uint8Array, start: number, end: number): void {
    if (this.#closing) return;
    try {
      if (this.#content.header(bytes, start, end)) this.#publish();
    } catch (error) {
      this.fail(error, m.BasicPublishId);
    }
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (this.#closing) return;
    try {
      if (this.#content.body(bytes, start, end)) this.#publish();
    } catch (error) {
      this.fail(error, m.BasicPublishId);
    }
  }

  #publish(): void {
    const { method, properties, body } = this.#content.take();
    const { access, shared } = this.session;
    access.check("write", "exchange", method.exchange);
    if (method.immediate) throw new AmqpError(540, "immediate=true");
    if (properties.userId !== undefined && properties.userId !== access.userName) {
      throw new AmqpError(
        406,
        `user_id property set to '${properties.userId}' but authenticated user was '${access.userName}'`,
      );
    }
    this.session.published();
    const sent = ReplyTo.address(properties, this.reply?.address ?? null);
    let { mandatory } = method;
    if (method.exchange === "" && ReplyTo.is(method.routingKey)) {
      const sink = shared.replyTo.find(method.routingKey);
      // The machine sees it too, as unroutable: so the confirm has its number, and a lost answer its return.
      if (sink !== undefined) {
        mandatory = false;
        const answer = () => sink(method.exchange, method.routingKey, sent, body);
        if (this.#answers === null) this.after(answer);
        else this.#answers.push(answer);
      }
    }
    this.submit({
      type: "publish",
      channel: this.id,
      exchange: method.exchange,
      routingKey: method.routingKey,
      mandatory,
      properties: sent,
      body,
    });
  }

  /** After tx.select, commit or rollback: what the transaction answered goes out, or is forgotten. */
  transaction(step: "tx-select" | "tx-commit" | "tx-rollback"): void {
    const answers = this.#answers ?? [];
    this.#answers = [];
    if (step === "tx-commit") for (const answer of answers) this.after(answer);
  }

  /** What the host let go after a commit. */
  effect(effect: OutwardEffect): void {
    switch (effect.type) {
      case "confirm":
        this.#confirm(effect.publishTag, effect.ok);
        return;
      case "deliver":
        this.#deliver(effect);
        return;
      case "return":
        this.#return(effect);
        return;
      case "consumer-cancelled":
        if (this.session.wantsCancels) {
          m.writeBasicCancel(this.session.writer, this.number, effect.consumerTag, true);
        }
        return;
      default:
    }
  }

  #deliver(effect: Deliver): void {
    const { writer, frameMax } = this.session;
    const { content } = effect;
    m.writeBasicDeliver(
      writer,
      this.number,
      effect.consumerTag,
      effect.deliveryTag,
      effect.redelivered,
      content.exchange,
      content.routingKey,
    );
    writer.content(this.number, content.properties, content.body, frameMax);
    this.credit.spent(content.body.length);
  }

  #return(effect: Return): void {
    const { writer, frameMax } = this.session;
    const { content } = effect;
    m.writeBasicReturn(writer, this.number, effect.code, effect.text, content.exchange, content.routingKey);
    writer.content(this.number, content.properties, content.body, frameMax);
  }

  #confirm(tag: number, ok: boolean): void {
    if (this.#confirmTo !== 0 && (this.#confirmOk !== ok || tag !== this.#confirmTo + 1)) this.flush();
    if (this.#confirmTo === 0) {
      this.#confirmFrom = tag;
      this.#confirmOk = ok;
    }
    this.#confirmTo = tag;
  }

  /** Whether confirms wait to be written. */
  get dirty(): boolean {
    return this.#confirmTo !== 0;
  }

  /** Writes the confirms gathered in this commit, as few frames as is true. */
  flush(): void {
    if (this.#confirmTo === 0) return;
    const { writer } = this.session;
    const first = this.#confirmFrom;
    const last = this.#confirmTo;
    const whole = first === this.#settledUpTo + 1;
    if (whole) this.#settledUpTo = last;
    const multiple = whole && last > first;
    for (let tag = multiple ? last : first; tag <= last; tag++) {
      if (this.#confirmOk) m.writeBasicAck(writer, this.number, tag, multiple);
      else m.writeBasicNack(writer, this.number, tag, multiple, false);
    }
    this.#confirmTo = 0;
  }

  /** Ends this channel, or the connection, by the error's reach. */
  fail(thrown: unknown, method: number): void {
    const error = asAmqpError(thrown);
    if (!(error instanceof AmqpError) || error.reach === "connection") {
      this.session.fail(error, method);
      return;
    }
    this.#closing = true;
    this.#release();
    this.after(() => {
      this.flush();
      m.writeChannelClose(
        this.session.writer,
        this.number,
        error.code,
        error.message,
        method >>> 16,
        method & 0xffff,
      );
    });
  }

  /** Closed by the client. */
  #end(): void {
    this.#release(true);
    this.session.channelClosed(this.number);
  }

  #release(clean = false): void {
    this.forget();
    this.submit({ type: "close-channel", channel: this.id, clean });
  }

  /** Lets go of what is not the host's, when the connection ends. */
  forget(): void {
    this.#content.reset();
    if (this.reply !== null) this.session.shared.replyTo.close(this.reply.address);
    this.reply = null;
  }

  /** The queue whose delivery has been out for longer than may be; then this channel is to be failed. */
  overdue(now: number): string | null {
    if (this.#closing) return null;
    const unsettled = this.session.host.unsettled?.(this.id) ?? null;
    return this.#acks.late(unsettled, now) ? (unsettled?.queue ?? null) : null;
  }

  /** True when a publish has been waiting too long for its body. */
  late(now: number): boolean {
    return this.#content.late(now);
  }
}
