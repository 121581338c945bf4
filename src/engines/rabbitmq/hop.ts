/** What a message carries on its way to the next queue. Pure. */
import type { Options } from "amqplib";
import type { Resend } from "../../ports/index.ts";
import { type Cargo, type Codec, cargoOf, hopOptions } from "./codec.ts";
import { cutBytes, H, type Headers } from "./headers.ts";
import type { Held } from "./held.ts";
import { type Rung, rungFor } from "./topology.ts";

/** How a delivery goes on. */
export interface HopPlan {
  /** Starts that count by then. */
  readonly counted: number;
  /** Its handler had been started this time. */
  readonly started: boolean;
  readonly delayMs?: number;
  readonly error?: string | undefined;
}

interface Surroundings {
  readonly rungs: readonly Rung[];
  readonly user: string;
  /** Epoch ms. */
  readonly now: number;
  /** A ledger counts starts, this one included. */
  readonly ledgered: boolean;
}

/** The rung to wait on, if any, and the publish options. */
export function hopOf(
  held: Held,
  how: HopPlan,
  around: Surroundings,
): { rung: Rung | undefined; options: Options.Publish } {
  const delayMs = how.delayMs ?? 0;
  const rung = delayMs > 0 ? rungFor(around.rungs, delayMs) : undefined;
  const headers = (held.message.properties.headers ?? {}) as Headers;
  // All starts are only told apart from the counted ones once they differ.
  const differ = held.starts !== undefined || how.counted < held.receiveCount;
  const starts = differ ? startsAfter(held, how.started && !around.ledgered) : 0;
  const own = {
    [H.count]: how.counted,
    [H.firstAt]: held.firstAt,
    [H.starts]: starts === 0 ? undefined : starts,
    [H.generation]: held.generation > 1 ? held.generation : undefined,
    [H.id]: held.message.properties.messageId === held.id ? undefined : held.id,
    [H.dueAt]: rung && rung.delayMs < delayMs ? around.now + delayMs : undefined,
    [H.error]: how.error === undefined ? headers[H.error] : cutBytes(how.error, 512),
    [H.exchange]: headers[H.exchange] ?? held.message.fields.exchange,
    [H.routingKey]: headers[H.routingKey] ?? held.message.fields.routingKey,
  };
  return { rung, options: hopOptions(cargoOf(held.message), own, around.user) };
}

function startsAfter(held: Held, oneMore: boolean): number {
  return (held.starts ?? held.receiveCount - 1) + (oneMore ? 1 : 0);
}

/** A letter's message in its next life: as it was first published, and which life it is. */
export function resendOf<B>(
  letter: Resend<B>,
  codec: Codec<B>,
  user: string,
): { content: Uint8Array; options: Options.Publish } {
  const encoded: ReturnType<Codec<B>["encode"]> = letter.raw
    ? { content: letter.raw }
    : codec.encode(letter.body);
  const { contentType } = encoded;
  const properties: Record<string, unknown> = {
    ...(contentType === undefined ? {} : { contentType }),
    ...(letter.properties ?? { deliveryMode: 2 }),
  };
  const own: Record<string, unknown> = {};
  const generation = letter.generation ?? 1;
  if (generation > 1) own[H.generation] = generation;
  // A message that came without an id keeps none: the one we made for it travels in a header.
  if (letter.properties === undefined || letter.properties["messageId"] === letter.id) {
    properties["messageId"] = letter.id;
  } else own[H.id] = letter.id;
  const cargo: Cargo = { content: encoded.content, properties, headers: letter.headers };
  return { content: encoded.content, options: hopOptions(cargo, own, user, true) };
}

/** Whether `send` was given a letter's message rather than a body. */
export function isResend<B>(message: unknown): message is Resend<B> {
  if (typeof message !== "object" || message === null) return false;
  const { id } = message as { id?: unknown };
  return typeof id === "string" && "body" in message;
}

/** Whether an answer is still to come. */
export function isThenable<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as { then?: unknown } | null)?.then === "function";
}
