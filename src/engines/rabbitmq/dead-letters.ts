/**
 * A RabbitMQ queue as a dead-letter store. A queue cannot be searched: what is there is known for what this process
 * put or read; a second copy of a letter (a crash between put and ack) is shown once, by id and generation.
 */
import type { Channel, ConsumeMessage, GetMessage } from "amqplib";
import {
  type DeadLetter,
  DloError,
  type EarlierLife,
  isOfQueue,
  MAX_EARLIER_LIVES,
} from "../../core/index.ts";
import type { DeadLetters, Logger } from "../../ports/index.ts";
import { consumeWhole, mayLook } from "./browse.ts";
import { type Cargo, type Codec, cargoOf, hopOptions, idOf, shownProperties } from "./codec.ts";
import { lookAt } from "./counts.ts";
import { applicationHeaders, cutBytes, envelope, H, type Headers, hopHeaders, readDeath } from "./headers.ts";
import type { Held } from "./held.ts";
import { digestOf, Known, kindOf } from "./known.ts";
import type { Link } from "./link.ts";
import { Publisher } from "./publisher.ts";
import { backAgain, onOwnChannel } from "./topology.ts";

/** How a dead-letter queue is used. */
export interface RabbitDeadLettersOptions<B = unknown> {
  /** Publish to this exchange instead of the queue itself; the routing key is the queue's name. */
  readonly exchange?: string;
  readonly codec?: Codec<B>;
}

export interface DeadLettersParts<B> {
  readonly link: Link;
  readonly logger: Logger;
  readonly confirmMs: number;
  readonly now: () => number;
  readonly exchange: string;
  readonly codec: Codec<B>;
  /** A queue's delivery limit by the management API; null: none, undefined: not known. */
  readonly managedLimit: (queue: string) => Promise<number | null | undefined>;
  /** The delivery a letter is made from, where it is still on hand. */
  readonly origin: (
    queue: string | undefined,
    id: string,
    generation: number,
    raw: Uint8Array | undefined,
  ) => Held | undefined;
}

/** Remembered ids; the oldest are forgotten, and a letter of theirs is then put again, to be collapsed by key. */
const MOST_KNOWN = 100_000;

/** After so long without a delivery the rest is taken to be with another reader, ms. */
const ELSEWHERE_MS = 1_000;

/** Made by `rabbit.deadLetters(name)`. */
export class RabbitDeadLetters<B = unknown> implements DeadLetters<B> {
  readonly name: string;
  private readonly parts: DeadLettersParts<B>;
  private readonly publisher: Publisher;
  /** Known to be here, or to have been (removed). */
  private readonly seen = new Known(MOST_KNOWN);
  private readonly here = new Known(MOST_KNOWN);

  constructor(name: string, parts: DeadLettersParts<B>) {
    this.name = name;
    this.parts = parts;
    this.publisher = new Publisher(parts.link, `dead-lettering to '${name}'`, parts.confirmMs);
  }

  /**
   * Resolves once the broker has the letter: the message as it was, and its story in `x-dlo-...` headers.
   * @throws DloError UNROUTABLE, REFUSED, TIMED_OUT, NOT_CONNECTED. Do not ack the message then.
   */
  async put(entry: DeadLetter<B>): Promise<void> {
    const generation = entry.generation ?? 1;
    if (this.has(entry.id, generation, entry.body, entry.sourceQueue)) return;
    const origin = this.parts.origin(entry.sourceQueue, entry.id, generation, entry.raw);
    const cargo = origin ? cargoOf(origin.message) : this.cargo(entry);
    const story: Record<string, unknown> = envelope(entry as DeadLetter);
    if (cargo.properties["messageId"] === entry.id) delete story[H.id];
    if (origin) {
      const before = (origin.message.properties.headers ?? {}) as Headers;
      story[H.exchange] = before[H.exchange] ?? origin.message.fields.exchange;
      story[H.routingKey] = cutBytes(String(before[H.routingKey] ?? origin.message.fields.routingKey), 255);
    }
    await this.publish(cargo, story);
    this.know(entry, generation);
  }

  private async publish(cargo: Cargo, story: Record<string, unknown>): Promise<void> {
    const { exchange, link } = this.parts;
    const send = (own: Record<string, unknown>): Promise<void> =>
      this.publisher.publish(exchange, this.name, cargo.content, hopOptions(cargo, own, link.user));
    try {
      await send(story);
    } catch (error) {
      if (!(error instanceof DloError) || error.code !== "BODY_TOO_LARGE") throw error;
      // The message's own headers leave no room: the reason and the queue alone, rather than no letter at all.
      const least = [H.reason, H.attempts, H.failedAt, H.id, H.source];
      await send(Object.fromEntries(least.map((name) => [name, story[name]])));
    }
  }

  private cargo(entry: DeadLetter<B>): Cargo {
    if (entry.raw) return { content: entry.raw, properties: entry.properties ?? {}, headers: entry.headers };
    const { content, contentType } = this.parts.codec.encode(entry.body);
    const made = {
      deliveryMode: 2,
      messageId: entry.id,
      ...(contentType === undefined ? {} : { contentType }),
    };
    return { content, properties: entry.properties ?? made, headers: entry.headers };
  }

  /** What this process knows: put, listed or removed here. A copy put by a process that died is not seen. */
  has(id: string, generation = 1, body?: B, sourceQueue?: string): boolean {
    const digest = body === undefined ? undefined : () => this.digest(body);
    return this.seen.generation(id, digest, sourceQueue) >= generation;
  }

  /** Of the body as this store's codec writes it; undefined where it cannot: then the id alone counts. */
  private digest(body: B): string | undefined {
    try {
      return digestOf(this.parts.codec.encode(body).content);
    } catch {
      return undefined;
    }
  }

  /**
   * Takes a letter this process put or listed out of the queue, and its earlier lives with it. Looks at every letter.
   * Of several messages under one id the one with this body and from this queue goes, or all. A crash in here leaves all of them.
   */
  async remove(id: string, generation?: number, body?: B, sourceQueue?: string): Promise<void> {
    if (!this.here.has(id, generation)) return;
    const wanted = body === undefined ? undefined : this.digest(body);
    await this.browse((letter) => {
      const digest = this.digestIn(letter);
      if (letter.id !== id || (wanted !== undefined && digest !== wanted)) return "keep";
      if (!isOfQueue(letter.sourceQueue, sourceQueue)) return "keep";
      if (generation !== undefined && (letter.generation ?? 1) > generation) return "keep";
      this.here.forget(id, kindOf(digest, letter.sourceQueue));
      return "remove";
    });
  }

  private kindIn(letter: DeadLetter<B>): string {
    return kindOf(this.digestIn(letter), letter.sourceQueue);
  }

  private digestIn(letter: DeadLetter<B>): string {
    return this.digest(letter.body) ?? "";
  }

  /**
   * All letters, oldest first, each message once: in its latest life, with the earlier ones told. Their order and place
   * in the queue stay.
   */
  async list(): Promise<readonly DeadLetter<B>[]> {
    const found = new Map<string, DeadLetter<B>>();
    await this.browse((letter) => {
      const generation = letter.generation ?? 1;
      const key = `${this.kindIn(letter)} ${letter.id}`;
      const before = found.get(key);
      const known = before?.generation ?? (before ? 1 : 0);
      if (generation > known) {
        found.delete(key);
        found.set(key, before ? withEarlier(letter, before) : letter);
      }
      this.know(letter, generation);
      return "keep";
    });
    return [...found.values()];
  }

  async get(id: string): Promise<DeadLetter<B> | null> {
    const all = await this.list();
    return all.filter((letter) => letter.id === id).at(-1) ?? null;
  }

  async close(): Promise<void> {
    await this.publisher.close();
  }

  private safeToLook = false;

  private know(letter: DeadLetter<B>, generation: number): void {
    const kind = this.kindIn(letter);
    this.seen.note(letter.id, kind, generation);
    this.here.note(letter.id, kind, generation);
  }

  /**
   * Looks at every letter that is there now, front to back. Closing the channel gives the kept ones back in their
   * order (each return raises the broker's delivery count, so the queue must have no delivery limit).
   */
  private async browse(look: (letter: DeadLetter<B>) => "keep" | "remove"): Promise<void> {
    const { model } = this.parts.link;
    if (!model)
      throw new DloError(
        "NOT_CONNECTED",
        `reading '${this.name}': no connection to ${this.parts.link.where}`,
      );
    if (!this.safeToLook) await mayLook(this.parts.link, this.name, () => this.parts.managedLimit(this.name));
    this.safeToLook = true;
    let kept = 0;
    await onOwnChannel(model, `reading '${this.name}'`, async (channel) => {
      const { messageCount } = await lookAt(channel, this.name);
      await eachMessage(channel, this.name, messageCount, (message) => {
        const keep = look(letterOf(message, this.parts.codec, this.parts.now())) === "keep";
        if (keep) kept++;
        else channel.ack(message);
        return keep;
      });
    });
    await backAgain(model, this.name, kept);
  }
}

/** The later letter of a message, telling of the life before. */
function withEarlier<B>(letter: DeadLetter<B>, before: DeadLetter<B>): DeadLetter<B> {
  const { generation = 1, reason, error, attempts, firstAttemptAt, failedAt } = before;
  const life: EarlierLife = { generation, reason, error, attempts, firstAttemptAt, failedAt };
  return {
    ...letter,
    earlier: [...(letter.earlier ?? before.earlier ?? []), life].slice(-MAX_EARLIER_LIVES),
  };
}

/** Shows `count` messages from the front; `show` answers whether it leaves the message unacked. */
async function eachMessage(
  channel: Channel,
  queue: string,
  count: number,
  show: (message: ConsumeMessage) => boolean,
): Promise<void> {
  if (count === 0) return;
  let seen = 0;
  let timer: NodeJS.Timeout | undefined;
  await new Promise<void>((resolve, reject) => {
    const rest = (): void => {
      // Another reader may hold a part of them.
      clearTimeout(timer);
      timer = setTimeout(resolve, ELSEWHERE_MS);
    };
    channel.once("close", () => reject(new DloError("NOT_CONNECTED", "the channel closed")));
    const onMessage = (message: ConsumeMessage | null): boolean => {
      if (message === null || seen >= count) return true;
      seen++;
      const keep = show(message);
      if (seen === count) resolve();
      else rest();
      return keep;
    };
    consumeWhole(channel, queue, count, onMessage).then(rest, reject);
  }).finally(() => clearTimeout(timer));
}

/** A dead-letter queue's message as a letter: our envelope, else the broker's x-death, else an unexplained arrival. */
export function letterOf<B>(
  message: ConsumeMessage | GetMessage,
  codec: Codec<B>,
  now: number,
): DeadLetter<B> {
  const headers = message.properties.headers as Headers | undefined;
  const properties = shownProperties(message.properties);
  const death = readDeath(headers, now) ?? {
    reason: "rejected" as const,
    error: null,
    attempts: 0,
    firstAttemptAt: now,
    failedAt: now,
  };
  let body: B;
  try {
    body = codec.decode(message.content, properties);
  } catch {
    body = message.content as unknown as B;
  }
  const own = applicationHeaders(headers);
  return {
    id: idOf(message),
    body,
    ...death,
    ...(own === undefined ? {} : { headers: hopHeaders(own, {}) }),
    properties,
    raw: message.content,
  };
}
