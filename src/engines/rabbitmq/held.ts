/** What this process has on hand of one queue: waiting in the local buffer, or with a handler. */
import type { ConsumeMessage, GetMessage } from "amqplib";
import type { Message } from "../../core/index.ts";
import type { Known, Verdict } from "./arrivals.ts";
import { type Codec, idOf, shownProperties } from "./codec.ts";
import { applicationHeaders, H, type Headers, whole } from "./headers.ts";
import type { Settler } from "./settler.ts";

/** One unsettled delivery. */
export interface Held {
  readonly receipt: string;
  readonly id: string;
  /** Id and generation: the key of what is remembered about it. */
  readonly key: string;
  readonly message: ConsumeMessage | GetMessage;
  /** Of the channel it came by. */
  readonly settler: Settler;
  readonly lane: "work" | "suspects";
  readonly generation: number;
  /** Counted starts before the last publish. */
  readonly own: number;
  readonly brokerCount: number | undefined;
  readonly firstAt: number;
  receiveCount: number;
  suspect: boolean;
  /** All starts, where somebody counted them. */
  starts: number | undefined;
  /** Returns in `brokerCount` that were no starts. */
  forgiven: number;
  /** Given out by `receive`. */
  out: boolean;
  /** Its handler was entered, as far as `begin` tells. */
  begun: boolean;
  /** As a handler sees it, once it was made. */
  shown: Message | null;
  /** A settlement is on its way: no second one. */
  settling: boolean;
}

/** How much is remembered of messages that went back; beyond it the oldest become suspects, which is safe. */
const MOST_KNOWN = 50_000;

export class Holdings {
  readonly byReceipt: Map<string, Held> = new Map();
  private readonly byId: Map<string, string> = new Map();
  private readonly known: Map<string, Known> = new Map();
  /** Delivered, not yet given out, in order. */
  buffer: Held[] = [];
  /** The one suspect delivered, not yet given out. */
  suspect: Held | null = null;
  /** Given out and not settled. */
  out = 0;
  /** A suspect is out: nothing else is given out meanwhile. */
  suspectOut = false;

  take(
    message: ConsumeMessage | GetMessage,
    settler: Settler,
    epoch: number,
    lane: Held["lane"],
    now: number,
  ): Held {
    const headers = message.properties.headers as Headers | undefined;
    const id = idOf(message);
    const generation = whole(headers?.[H.generation]) ?? 1;
    const key = `${generation}\n${id}`;
    const count = message.fields.redelivered
      ? (whole(headers?.["x-acquired-count"]) ?? whole(headers?.["x-delivery-count"]))
      : undefined;
    const held: Held = {
      receipt: `${lane === "work" ? "w" : "s"}${epoch}.${message.fields.deliveryTag}`,
      id,
      key,
      message,
      settler,
      lane,
      generation,
      own: whole(headers?.[H.count]) ?? 0,
      brokerCount: count,
      firstAt: this.known.get(key)?.firstAt ?? whole(headers?.[H.firstAt]) ?? now,
      receiveCount: 1,
      suspect: false,
      starts: whole(headers?.[H.starts]),
      forgiven: 0,
      out: false,
      begun: false,
      shown: null,
      settling: false,
    };
    settler.taken(message);
    this.byReceipt.set(held.receipt, held);
    return held;
  }

  /** What is remembered of it; used once. */
  recall(held: Held): Known | undefined {
    const known = this.known.get(held.key);
    if (!known) return undefined;
    this.known.delete(held.key);
    held.forgiven = known.forgiven;
    return known;
  }

  /** The broker will hand it out again although no process died. */
  remember(held: Held, known: Known): void {
    this.known.delete(held.key);
    this.known.set(held.key, known);
    if (this.known.size > MOST_KNOWN) {
      for (const oldest of this.known.keys()) {
        this.known.delete(oldest);
        break;
      }
    }
  }

  accept(held: Held, verdict: Verdict & { take: "run" }): void {
    held.receiveCount = verdict.receiveCount;
    held.suspect = verdict.suspect;
    if (held.lane === "suspects") this.suspect = held;
    else this.buffer.push(held);
  }

  /** The next one to give out: the window first, then, with the window empty, the suspect; one suspect at a time. */
  next(): Held | null {
    const held = this.fromBuffer() ?? (this.suspectOut ? null : this.suspect);
    if (!held) return null;
    if (held === this.suspect) this.suspect = null;
    if (held.suspect) this.suspectOut = true;
    held.out = true;
    this.out++;
    this.byId.set(held.id, held.receipt);
    return held;
  }

  private fromBuffer(): Held | undefined {
    if (!this.suspectOut) return this.buffer.shift();
    const at = this.buffer.findIndex((held) => !held.suspect);
    return at < 0 ? undefined : this.buffer.splice(at, 1)[0];
  }

  has(): boolean {
    if (!this.suspectOut) return this.buffer.length > 0 || this.suspect !== null;
    return this.buffer.some((held) => !held.suspect);
  }

  /** By receipt, or the last one given out under this id. */
  find(id: string, receipt?: string | number): Held | undefined {
    const key = receipt ?? this.byId.get(id);
    const held = key === undefined ? undefined : this.byReceipt.get(String(key));
    return held?.out && held.id === id ? held : undefined;
  }

  drop(held: Held): void {
    if (!this.byReceipt.delete(held.receipt)) return;
    if (this.byId.get(held.id) === held.receipt) this.byId.delete(held.id);
    if (!held.out) return;
    this.out--;
    if (held.suspect) this.suspectOut = false;
  }

  /** Everything on hand is void: its channel has gone. Answers what it was. */
  clear(): Held[] {
    const all = [...this.byReceipt.values()];
    this.byReceipt.clear();
    this.byId.clear();
    this.buffer = [];
    this.suspect = null;
    this.out = 0;
    this.suspectOut = false;
    return all;
  }
}

/** A delivery as a handler sees it; made once. */
export function messageOf<B>(held: Held, codec: Codec<B>): Message<B> {
  held.shown ??= show(held, codec);
  return held.shown as Message<B>;
}

function show<B>(held: Held, codec: Codec<B>): Message<B> {
  const { content } = held.message;
  const properties = shownProperties(held.message.properties);
  const headers = applicationHeaders(held.message.properties.headers as Headers | undefined);
  let body: B;
  let undecodable: string | undefined;
  try {
    body = codec.decode(content, properties);
  } catch (error) {
    body = content as unknown as B;
    undecodable = String((error as Error)?.message ?? error).slice(0, 200);
  }
  const message: { -readonly [K in keyof Message<B>]: Message<B>[K] } = {
    id: held.id,
    body,
    receiveCount: held.receiveCount,
    firstReceivedAt: held.firstAt,
    generation: held.generation,
    receipt: held.receipt,
    properties,
    raw: content,
  };
  if (headers !== undefined) message.headers = headers;
  if (held.suspect) message.suspect = true;
  if (held.starts !== undefined) message.starts = held.starts;
  if (undecodable !== undefined) message.undecodable = undecodable;
  return message;
}
