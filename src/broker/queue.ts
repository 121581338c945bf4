import type { QueueArguments } from "./arguments.ts";
import { type Connection, type Consumer, ConsumerRing } from "./consumers.ts";
import { DelayHeap } from "./delays.ts";
import type { Entry } from "./entry.ts";
import type { Binding } from "./exchange.ts";
import type { QueueOptions } from "./policy.ts";
import { type Heap, PackedFifo, returnedHeap } from "./ready.ts";
import type { QueueRecord, Seq } from "./types.ts";

/**
 * One queue. A message in it is
 *   delayed (not due)  -> ready at its time
 *   ready              -> held (delivered), or dead (expired, maxlen)
 *   held               -> gone (ack), ready again (requeue, crash), delayed (retry), or dead (rejected, delivery_limit)
 *   retained           -> gone when its dead letter found a place (at-least-once)
 * Ready messages stand in levels by priority (one level without priorities); in each level those that came back and
 * those that never left are two lines in order of position, taken from as one. Suspects of an isolating queue stand apart.
 */
export class Queue {
  readonly record: QueueRecord;
  readonly args: QueueArguments;
  options: QueueOptions;
  policy: string | null = null;
  operatorPolicy: string | null = null;
  readonly incoming: Set<Binding> = new Set();
  readonly consumers: ConsumerRing = new ConsumerRing();
  /** The owner of an exclusive queue. */
  readonly owner: Connection | undefined;
  /** Holds the queue alone. */
  exclusiveConsumer: Consumer | undefined;
  /** The one served, of a queue with a single active consumer. */
  active: Consumer | undefined;

  ready = 0;
  readyBytes = 0;
  unacked = 0;
  unackedBytes = 0;
  delayed: DelayHeap | undefined;
  readonly suspects: Heap<Entry> = returnedHeap();
  /** The one suspect that is out, and with whom. */
  suspectOut: { entry: Entry; connection: Connection } | undefined;
  /** Deliveries out per connection; kept only where suspects are isolated. */
  readonly heldBy: Map<Connection, number> = new Map();
  retained: Entry[] = [];
  retainedBytes = 0;
  retryRetainedAt: number = Infinity;

  /** Quorum: publishers are refused until the queue has drained. */
  refusing = false;
  /** Quorum: the next place in front of everything that never left. */
  nextFront: number = FRONT;
  /** Journaled: all up to this position were handed out. */
  handedUpTo: number = -Infinity;
  /** End of the x-expires lease; Infinity while used. */
  leaseEndsAt: number = Infinity;
  /** When the machine must look at it next, as scheduled. */
  wakeAt: number = Infinity;
  touched = false;
  deleted = false;

  readonly #levels: (Level | undefined)[];
  #top = 0;

  constructor(
    record: QueueRecord,
    args: QueueArguments,
    options: QueueOptions,
    owner: Connection | undefined,
  ) {
    this.record = record;
    this.args = args;
    this.options = options;
    this.owner = owner;
    this.#levels = new Array((args.maxPriority ?? 0) + 1);
  }

  get quorum(): boolean {
    return this.record.type === "quorum";
  }

  get isolates(): boolean {
    return this.args.isolateSuspects === true;
  }

  get prioritized(): boolean {
    return this.#levels.length > 1;
  }

  /** Its messages and itself survive a restart. */
  get stored(): boolean {
    return this.record.durable && !this.record.exclusive;
  }

  /** The level a message with this priority goes to. */
  levelOf(priority: number | undefined): number {
    return Math.min(priority ?? 0, this.#levels.length - 1);
  }

  /** To the end of its level. */
  pushBack(e: Entry): void {
    if (this.isolates && e.suspect) this.suspects.push(e);
    else this.#level(e.priority).fifo.push(e);
    this.#came(e);
  }

  /** To its own place among those that came back. */
  putBack(e: Entry): void {
    if (this.isolates && e.suspect) this.suspects.push(e);
    else this.#level(e.priority).returned.push(e);
    this.#came(e);
  }

  /** Deadline of the message that is next; 0: none. */
  headExpiresAt(): number {
    const level = this.#topLevel();
    if (level === undefined) return 0;
    const returned = returnedFirst(level);
    return returned === undefined ? level.fifo.headExpiresAt() : returned.expiresAt;
  }

  /** Takes the next message out; suspects only through {@link takeSuspect}. */
  takeHead(): Entry | undefined {
    const level = this.#topLevel();
    if (level === undefined) return undefined;
    const e = returnedFirst(level) === undefined ? level.fifo.shift() : level.returned.pop();
    if (e !== undefined) this.#left(e);
    return e;
  }

  /** Takes the messages out again that came last, all or none: not when anything has happened to one. */
  takeBack(seqs: readonly Seq[]): readonly Entry[] {
    const fifo = this.#levels[0]?.fifo;
    if (fifo === undefined) return [];
    const taken: Entry[] = [];
    for (const seq of seqs.toReversed()) {
      const e = fifo.popIf(seq);
      if (e === undefined) {
        for (const back of taken.reverse()) fifo.push(back);
        return [];
      }
      taken.push(e);
    }
    for (const e of taken) this.#left(e);
    return taken;
  }

  takeSuspect(): Entry | undefined {
    const e = this.suspects.pop();
    if (e !== undefined) this.#left(e);
    return e;
  }

  delays(): DelayHeap {
    this.delayed ??= new DelayHeap();
    return this.delayed;
  }

  /** Every ready message, in the order in which they would come out; suspects first. */
  *readyEntries(): Generator<Entry> {
    const sorted = (heap: Heap<Entry>): Entry[] => [...heap.items()].sort((a, b) => a.position - b.position);
    yield* sorted(this.suspects);
    for (let i = this.#levels.length - 1; i >= 0; i--) {
      const level = this.#levels[i];
      if (level === undefined) continue;
      yield* merged(sorted(level.returned), level.fifo);
    }
  }

  #level(priority: number): Level {
    let level = this.#levels[priority];
    if (level === undefined) {
      level = { returned: returnedHeap(), fifo: new PackedFifo(priority) };
      this.#levels[priority] = level;
    }
    if (priority > this.#top) this.#top = priority;
    return level;
  }

  #topLevel(): Level | undefined {
    for (;;) {
      const level = this.#levels[this.#top];
      if (level !== undefined && (level.returned.length > 0 || level.fifo.length > 0)) return level;
      if (this.#top === 0) return undefined;
      this.#top--;
    }
  }

  #came(e: Entry): void {
    this.ready++;
    this.readyBytes += e.size;
  }

  #left(e: Entry): void {
    this.ready--;
    this.readyBytes -= e.size;
  }
}

/** Far below every real position: those in front of the queue are counted up from here. */
export const FRONT: number = -(2 ** 52);

/** Both halves of a level are in order; together they are in order of position. */
function* merged(returned: readonly Entry[], fifo: PackedFifo): Generator<Entry> {
  let next = 0;
  for (const e of fifo.entries()) {
    for (; next < returned.length && (returned[next] as Entry).position < e.position; next++) {
      yield returned[next] as Entry;
    }
    yield e;
  }
  for (; next < returned.length; next++) yield returned[next] as Entry;
}

/**
 * The message that came back, when it is the next. Nearly always it is; but after a restart the line of those that
 * never left begins with what had been put in front before it.
 */
function returnedFirst(level: Level): Entry | undefined {
  const returned = level.returned.peek();
  return returned !== undefined && returned.position < level.fifo.headPosition() ? returned : undefined;
}

interface Level {
  readonly returned: Heap<Entry>;
  readonly fifo: PackedFifo;
}
