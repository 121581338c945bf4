/**
 * A queue of the broker as the consumer's port. One handle is one consumer process in the eyes of the broker: what
 * it holds comes back when it is closed (as after a crash: what was begun is counted and suspect), and `recover`
 * gives back what this handle holds.
 *
 * A delivery: received -> begun (start counted, durable) -> acked, retried, released, buried
 *             received -> acked, retried (counts as a start), released
 * Settling anything that is not held (any more) is refused with STALE_DELIVERY.
 */
import { type Properties, type Reply, SeqMap } from "../../broker/index.ts";
import { type Attempt, type DeadLetter, DloError, type Message, type Receipt } from "../../core/index.ts";
import type { DeadLetters, Queue, QueueSupports, Resend, RetryOptions } from "../../ports/index.ts";
import { encodeBody } from "./body.ts";
import { attemptOf, type Held, keepLetter } from "./bury.ts";
import type { DeadLetterStore } from "./dead-letters.ts";
import { declare } from "./declare.ts";
import type { Host } from "./host.ts";
import { newId } from "./ids.ts";
import { isResend, messageOf, toProperties, withGeneration } from "./message.ts";
import { checkId, checkName, type Outgoing } from "./names.ts";
import type { QueueDeclaration } from "./options.ts";
import type { QueueServices } from "./services.ts";
import { type Sent, takeBack } from "./take-back.ts";
import { checkDelay } from "./time.ts";
import type { Connection, Vhost } from "./vhost.ts";

type Got = Extract<Reply, { type: "got" }>;
const NO_DELAY = { delayMs: 0 };

export class EmbeddedQueue<B = unknown> implements Queue<B> {
  readonly name: string;
  readonly supports: QueueSupports = {
    countsCrashes: true,
    countsStarts: true,
    delays: true,
    atomicBury: true,
    generations: true,
  };
  readonly #vhost: Vhost;
  readonly #services: QueueServices;
  readonly #connection: Connection;
  #channel: number;
  /** By delivery tag, oldest first. */
  readonly #held = new SeqMap<Held>();
  /** The turn in which the last receive found nothing. */
  #emptyAt = -1;

  /** @internal Declares the queue where it does not exist. */
  constructor(
    vhost: Vhost,
    services: QueueServices,
    name: string,
    declaration: QueueDeclaration | undefined,
  ) {
    this.#vhost = vhost;
    this.#services = services;
    this.name = checkName(name);
    const sink = { effect: () => {}, flush: () => {}, ended: () => this.#held.clear() };
    this.#connection = vhost.connect(sink, "queue");
    this.#channel = this.#connection.openChannel();
    declare(vhost, this.#connection, this.#channel, { name: this.name, declaration });
    // What a durable queue takes shows in its journal; of another one only a confirm tells.
    if (vhost.queueInfo(this.name)?.record.durable !== true)
      this.#connection.submit({ type: "confirm-select", channel: this.#channel });
  }

  /**
   * Sends a body, under an id of its own or the given one; resolves to the id once it is durable. A replay
   * (`{ id, body, generation }` with a generation over 1) is sent once, however often it is called. A crash
   * before it resolves leaves the message either sent or not.
   * @throws DloError BAD_BODY, BODY_TOO_LARGE, BAD_ARGUMENT, DISK_FULL, REFUSED (the queue is full and refuses)
   */
  send(message: B | Resend<B>, id?: string): Promise<string> {
    try {
      const sent = this.#send(message, id, NO_DELAY);
      return this.#services.committed(sent.id, this.takeBack([sent]));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Sends many in one transaction; resolves to their ids. All or none of them, also in a crash. */
  async sendMany(messages: readonly Outgoing<B>[]): Promise<string[]> {
    const sent = this.#vhost.host.committer.atomically(() =>
      messages.map(({ body, id }) => this.#sendBody(body, id, NO_DELAY)),
    );
    return this.#services.committed(
      sent.map(({ id }) => id),
      this.takeBack(sent),
    );
  }

  /** @internal Sends now, durable with this turn's commit. */
  sendDelayed(body: B, id: string | undefined, delayMs: number): { id: string; seq: number } {
    return { id: this.#sendBody(body, id, { delayMs }).id, seq: this.#vhost.lastSeq };
  }

  /** @internal How to undo sends of this turn, see {@link takeBack}. */
  takeBack(sent: readonly Sent[]): (() => boolean) | undefined {
    const where = { connection: this.#connection, channel: this.#channel, queue: this.name };
    return takeBack(this.#vhost.journal, where, sent);
  }

  /** @internal */
  submitDelayed(type: "delayed-cancel" | "delayed-release", seq: number): void {
    this.#connection.submit({ type, channel: this.#channel, queue: this.name, seq });
  }

  /** @internal Which broker it belongs to. */
  get host(): Host {
    return this.#vhost.host;
  }

  #send(message: B | Resend<B>, id: string | undefined, how: { delayMs: number }): Sent {
    if (id !== undefined || !isResend(message)) return this.#sendBody(message as B, id, how);
    const { generation = 1, headers, properties, raw } = message;
    if (generation === 1 && headers === undefined && properties === undefined && raw === undefined)
      return this.#sendBody(message.body as B, message.id, how);
    const { maxBodyBytes } = this.#services;
    if (raw !== undefined && raw.length > maxBodyBytes)
      throw new DloError(
        "BODY_TOO_LARGE",
        `${this.#where}: the body has ${raw.length} bytes, the limit is ${maxBodyBytes}`,
      );
    const encoded =
      raw === undefined
        ? encodeBody(message.body, maxBodyBytes, this.#where)
        : { bytes: raw, contentType: undefined };
    const { resends } = this.#services;
    if (generation > 1 && resends.has(this.name, message.id, generation, encoded.bytes))
      return { id: message.id, seq: 0 };
    const base = toProperties(properties ?? {}, headers);
    if (encoded.contentType !== undefined && raw === undefined) base.contentType = encoded.contentType;
    const { expiration: _expired, ...kept } = base;
    const full = { ...kept, messageId: checkId(message.id), deliveryMode: 2 };
    const seq = this.#vhost.host.committer.atomically(() => {
      const put = this.publish(withGeneration(full, generation), encoded.bytes, how.delayMs);
      if (generation === 1) return put;
      resends.add(this.name, message.id, generation, encoded.bytes);
      return 0;
    });
    return { id: message.id, seq };
  }

  #sendBody(body: B, id: string | undefined, how: { delayMs: number }): Sent {
    const { bytes, contentType } = encodeBody(body, this.#services.maxBodyBytes, this.#where);
    const messageId = id === undefined ? newId() : checkId(id);
    return {
      id: messageId,
      seq: this.publish({ messageId, contentType, deliveryMode: 2 }, bytes, how.delayMs),
    };
  }

  get #where(): string {
    return `queue '${this.name}'`;
  }

  /**
   * @internal Publishes to this queue as it is; throws when the queue is gone or refuses. Answers the message's number,
   * where it was put there and nothing else came of it; else 0.
   */
  publish(properties: Properties, body: Uint8Array, delayMs: number): number {
    const { effects } = this.#connection.submitAll({
      type: "publish",
      channel: this.#channel,
      exchange: "",
      routingKey: this.name,
      mandatory: true,
      properties,
      body,
      delayMs,
    });
    // Accepted, it was put into this queue or handed over at once; no confirm needs to be asked for.
    for (const effect of effects) {
      if (effect.type === "deliver" || (effect.type === "confirm" && effect.ok)) return 0;
      if (effect.type === "message-put" && effect.from === undefined)
        return effects.length === 1 ? effect.state.seq : 0;
      if (effect.type === "return") throw new DloError("QUEUE_NOT_FOUND", `queue '${this.name}' was deleted`);
    }
    throw new DloError("REFUSED", `queue '${this.name}' is full and refuses new messages`);
  }

  /** The next message, now held by this handle; null when nothing is ready. Nothing is written by it. */
  receive(): Message<B> | null {
    const reply = this.#connection.submit({ type: "get", channel: this.#channel, queue: this.name });
    if (reply.type !== "got") {
      this.#emptyAt = this.#services.turn();
      return null;
    }
    return this.#hold(reply);
  }

  /** Up to `count` messages. */
  receiveMany(count: number): Message<B>[] {
    const messages: Message<B>[] = [];
    while (messages.length < count) {
      const message = this.receive();
      if (message === null) break;
      messages.push(message);
    }
    return messages;
  }

  #hold(got: Got): Message<B> {
    const { state, content, deliveryTag } = got;
    const id = content.properties.messageId ?? `${this.name}#${state.seq}`;
    const counts = { receiveCount: state.starts + 1, firstReceivedAt: state.firstReceivedAt };
    const message = messageOf(id, content, counts, deliveryTag);
    const interrupted = this.#services.evidence.interrupted(this.#vhost.journal.rowOf(state.seq));
    // Said only where it is more than the receive count tells.
    if (interrupted > 0) message.starts = state.starts + interrupted;
    const held: Held = { tag: deliveryTag, seq: state.seq, message, startedAt: 0 };
    this.#held.set(deliveryTag, held);
    if (state.suspect) {
      message.suspect = true;
      this.#services.evidence.addCrash(this.#row(held), state.starts, state.firstReceivedAt);
    }
    return message as Message<B>;
  }

  #row(held: Held): number {
    return this.#vhost.journal.rowOf(held.seq);
  }

  /**
   * Counts a handler start; resolves when the count survives the death of this process. A crash before that
   * leaves it uncounted, after it counted and the message suspect.
   */
  begin(id: string, receipt?: Receipt): Promise<Message<B>> {
    try {
      const held = this.#find(id, receipt);
      this.#begin(held);
      return this.#services.committed(held.message as Message<B>);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Counts the starts of many in one transaction. */
  async beginMany(messages: readonly Message[]): Promise<void> {
    for (const { id, receipt } of messages) this.#begin(this.#find(id, receipt));
    return this.#services.committed(undefined);
  }

  #begin(held: Held): void {
    this.#connection.submit({ type: "begin", channel: this.#channel, deliveryTag: held.tag });
    held.startedAt = this.#vhost.host.now();
  }

  /** Done with it; resolves when that survives the death of this process. */
  ack(id: string, receipt?: Receipt): Promise<void> {
    try {
      this.#ack(this.#find(id, receipt));
      return this.#services.committed(undefined);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Settles many in one transaction. */
  async ackMany(messages: readonly Message[]): Promise<void> {
    for (const { id, receipt } of messages) this.#ack(this.#find(id, receipt));
    return this.#services.committed(undefined);
  }

  #ack(held: Held): void {
    this.#connection.submit({ type: "ack", channel: this.#channel, deliveryTag: held.tag });
    this.#forget(held);
  }

  /**
   * To the back of the queue, counted, not before `delayMs` from now; nothing behind it waits for that. A crash
   * before it resolves leaves it held, and it comes back as a suspect if it was begun.
   */
  async retry(id: string, receipt?: Receipt, options: RetryOptions = {}): Promise<void> {
    const delayMs = checkDelay("delayMs", options.delayMs ?? 0);
    const held = this.#find(id, receipt);
    this.#vhost.host.committer.atomically(() => {
      if (held.startedAt === 0) this.#begin(held);
      const { error, cause } = options;
      const outcome = error === undefined ? "crashed" : "failed";
      this.#services.evidence.add(this.#row(held), this.#attempt(held, outcome, error ?? cause));
      this.#connection.submit({ type: "retry", channel: this.#channel, deliveryTag: held.tag, delayMs });
      this.#forget(held);
    });
    return this.#services.committed(undefined);
  }

  /**
   * Back to its place, uncounted: a start made by `begin` is taken back from `receiveCount`. It stays known as an
   * interrupted one, in `starts` and in the letter's history, so that a message cannot be interrupted for ever. A
   * crash before this resolves leaves it held, and a suspect if it was begun.
   */
  async release(id: string, receipt?: Receipt): Promise<void> {
    const held = this.#find(id, receipt);
    this.#vhost.host.committer.atomically(() => {
      if (held.startedAt !== 0)
        this.#services.evidence.add(this.#row(held), this.#attempt(held, "interrupted", undefined));
      this.#connection.submit({ type: "release", channel: this.#channel, deliveryTag: held.tag });
      this.#forget(held);
    });
    return this.#services.committed(undefined);
  }

  /**
   * Keeps the entry and settles the message in one transaction; false when the store is of another broker. A
   * crash leaves both or neither.
   */
  async bury(
    id: string,
    receipt: Receipt | undefined,
    entry: DeadLetter<B>,
    deadLetters: DeadLetters<B>,
  ): Promise<boolean> {
    const store = this.#services.storeOf(deadLetters);
    if (store === undefined) return false;
    const held = this.#find(id, receipt);
    this.#vhost.host.committer.atomically(() => {
      this.#keep(held, entry, store);
      this.#ack(held);
    });
    return this.#services.committed(true);
  }

  #keep(held: Held, entry: DeadLetter<B>, store: DeadLetterStore): void {
    const history = [...this.#services.evidence.of(this.#row(held))];
    if (held.startedAt !== 0) {
      const outcome = entry.error === null ? "crashed" : "failed";
      history.push(this.#attempt(held, outcome, entry.error ?? entry.cause));
    }
    keepLetter(
      this.#vhost.journal,
      held,
      { ...entry, sourceQueue: this.#vhost.addressOf(entry.sourceQueue ?? this.name) },
      history,
      store,
    );
  }

  #attempt(held: Held, outcome: "failed" | "crashed" | "interrupted", cause: string | undefined): Attempt {
    return attemptOf(held, outcome, cause, { at: this.#vhost.host.now(), inFlight: this.#held.size });
  }

  /** Gives back what this handle holds, as after the death of its process. Answers how many. */
  recover(): number {
    const count = this.#held.size;
    if (count === 0) return 0;
    this.#connection.submit({ type: "close-channel", channel: this.#channel });
    this.#held.clear();
    this.#channel = this.#connection.openChannel();
    if (this.#vhost.queueInfo(this.name)?.record.durable !== true)
      this.#connection.submit({ type: "confirm-select", channel: this.#channel });
    return count;
  }

  /** Not settled yet: ready, delayed and held, by anybody. */
  pending(): number {
    const info = this.#vhost.queueInfo(this.name);
    return info === undefined ? 0 : info.ready + info.unacked + info.delayed;
  }

  /** Resolves when a message may be ready, or when the signal aborts. */
  ready(signal: AbortSignal): Promise<void> {
    const isReady = (): boolean => this.#vhost.waits(this.name, this.#channel);
    if (signal.aborted || (this.#services.turn() !== this.#emptyAt && isReady())) return Promise.resolve();
    return this.#services.waitFor(isReady, signal);
  }

  /** Ends this handle: what it holds goes back, as after a crash. Idempotent. */
  close(): void {
    this.#connection.close();
    this.#held.clear();
  }

  #find(id: string, receipt: Receipt | undefined): Held {
    if (receipt !== undefined) {
      const held = this.#held.get(receipt as number);
      if (held?.message.id === id) return held;
    } else for (const held of this.#held.values()) if (held.message.id === id) return held;
    this.#vhost.host.check();
    throw new DloError(
      "STALE_DELIVERY",
      `message ${JSON.stringify(id)} of queue '${this.name}' is not held by this consumer (any more)`,
    );
  }

  #forget(held: Held): void {
    this.#held.delete(held.tag);
  }
}
