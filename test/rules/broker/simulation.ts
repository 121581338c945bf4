/**
 * A seeded world of publishers, consumers, crashes, clock jumps and restarts around the machine, and the books that
 * say what must be true: every confirmed persistent message is in exactly one of handled, waiting, in flight, dead
 * (in the dead letter queue), or counted as lost. A restart may come after any command: the journal's rows are then
 * all that is left.
 */
import { type Effect, HeaderTable } from "../../../src/broker/index.ts";
import { dlx, quorum, text, World } from "../../unit/broker/world.ts";

export interface SimOptions {
  readonly seed: number;
  readonly steps: number;
  readonly compat: "3.x" | "4.x";
  /** Breaks the host on purpose: the checker must see it. */
  readonly fault?: "forget-a-put" | "forget-a-gone";
}

/** mulberry32: small, seeded, good enough to choose steps. */
function random(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const QUEUES: Record<string, Record<string, unknown>> = {
  plain: dlx("dead"),
  limited: dlx("dead", { "x-max-length": 4 }),
  refusing: dlx("dead", { "x-max-length": 3, "x-overflow": "reject-publish" }),
  timed: dlx("dead", { "x-message-ttl": 400 }),
  wait: dlx("plain", { "x-message-ttl": 150 }),
  retrying: dlx("wait"),
  quorum: quorum(dlx("dead", { "x-delivery-limit": 3 })),
  isolating: quorum(dlx("dead", { "x-delivery-limit": 2, "x-dlo-isolate-suspects": true })),
  safe: quorum({
    ...dlx("tight"),
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
  }),
  tight: { "x-max-length": 2, "x-overflow": "reject-publish" },
  priority: dlx("nowhere", { "x-max-priority": 3 }),
  circle: dlx("circle", { "x-message-ttl": 100 }),
  dead: {},
};
const TARGETS = Object.keys(QUEUES).filter((name) => name !== "dead" && name !== "tight");

interface Client {
  readonly connection: number;
  readonly channel: number;
  /** Deliveries not settled: tag -> body. */
  readonly held: Map<number, string>;
  begins: boolean;
}

export class Simulation {
  readonly #random: () => number;
  readonly #options: SimOptions;
  readonly #world: World;
  readonly #confirmed = new Set<string>();
  readonly #handled = new Map<string, number>();
  readonly #lost = new Map<string, number>();
  #clients: Client[] = [];
  #ids = 1000;
  #bodies = 0;
  #faulted = false;
  #publisher = 0;
  readonly log: string[] = [];

  constructor(options: SimOptions) {
    this.#options = options;
    this.#random = random(options.seed);
    this.#world = new World({ compat: options.compat });
    const write = this.#world.journal.write.bind(this.#world.journal);
    this.#world.journal.write = (effects) => write(this.#tamper(effects));
    for (const [name, args] of Object.entries(QUEUES)) this.#world.queue(name, args);
    this.#begin();
  }

  run(): void {
    for (let i = 0; i < this.#options.steps; i++) {
      this.#step();
      if (i % 10 === 0) this.#check();
    }
    this.#check();
  }

  #tamper(effects: readonly Effect[]): readonly Effect[] {
    const { fault } = this.#options;
    if (fault === undefined || this.#faulted || this.#random() < 0.9) return effects;
    const victim = { "forget-a-put": "message-put", "forget-a-gone": "message-gone" }[fault];
    const at = effects.findIndex((e) => e.type === victim);
    if (at < 0) return effects;
    this.#faulted = true;
    return effects.filter((_, i) => i !== at);
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)] as T;
  }

  #begin(): void {
    this.#clients = [];
    this.#publisher = this.#world.open(++this.#ids, this.#ids);
    this.#world.do({ type: "confirm-select", channel: this.#publisher });
  }

  #do(command: Parameters<World["do"]>[0]): void {
    const w = this.#world;
    const before = { deliveries: w.deliveries.length, lost: w.lost.length };
    w.do(command);
    for (const d of w.deliveries.slice(before.deliveries)) {
      this.#clients.find((c) => c.channel === d.channel)?.held.set(d.deliveryTag, text(d.content));
    }
    for (const l of w.lost.slice(before.lost)) {
      const body = text(l.content);
      this.#lost.set(body, (this.#lost.get(body) ?? 0) + 1);
    }
  }

  #step(): void {
    const dice = this.#random();
    if (dice < 0.34) this.#publish();
    else if (dice < 0.42) this.#join();
    else if (dice < 0.78) this.#settle();
    else if (dice < 0.84) this.#crash();
    else if (dice < 0.96) this.#time();
    else if (dice < 0.98) this.#jump();
    else this.#restart();
  }

  #publish(): void {
    const body = `m${++this.#bodies}`;
    const routingKey = this.#pick(TARGETS);
    const options = this.#random();
    const properties = {
      deliveryMode: 2,
      ...(options < 0.2 ? { expiration: String(Math.floor(this.#random() * 500)) } : {}),
      ...(options > 0.8 ? { priority: Math.floor(this.#random() * 5) } : {}),
      headers: HeaderTable.empty,
    };
    const delayMs = this.#random() < 0.15 ? Math.floor(this.#random() * 600) : 0;
    this.log.push(`publish ${body} to ${routingKey}`);
    // Before the command: a message handed out at once may be settled by what follows.
    this.#confirmed.add(body);
    this.#do({
      type: "publish",
      channel: this.#publisher,
      exchange: "",
      routingKey,
      properties,
      body: new TextEncoder().encode(body),
      ...(delayMs > 0 ? { delayMs } : {}),
    });
    const confirm = this.#world.effects.find((e) => e.type === "confirm");
    if (confirm?.type !== "confirm" || !confirm.ok) this.#confirmed.delete(body);
  }

  #join(): void {
    if (this.#clients.length > 6) return;
    const connection = ++this.#ids;
    const channel = this.#world.open(connection, connection);
    const client = { connection, channel, held: new Map<number, string>(), begins: this.#random() < 0.3 };
    this.#clients.push(client);
    this.log.push(`join ${connection}`);
    this.#do({ type: "qos", channel, prefetchCount: 1 + Math.floor(this.#random() * 4), global: false });
    this.#do({ type: "consume", channel, queue: this.#pick([...TARGETS, "tight"]), consumerTag: "" });
  }

  #settle(): void {
    const client = this.#clients.find((c) => c.held.size > 0 && this.#random() < 0.6);
    if (client === undefined) return;
    const deliveryTag = this.#pick([...client.held.keys()]);
    const body = client.held.get(deliveryTag) as string;
    const { channel } = client;
    if (client.begins && this.#random() < 0.7) this.#do({ type: "begin", channel, deliveryTag });
    client.held.delete(deliveryTag);
    const dice = this.#random();
    this.log.push(`settle ${body} ${dice.toFixed(2)}`);
    if (dice < 0.45) {
      this.#handled.set(body, (this.#handled.get(body) ?? 0) + 1);
      this.#do({ type: "ack", channel, deliveryTag });
    } else if (dice < 0.65) this.#do({ type: "reject", channel, deliveryTag, requeue: false });
    else if (dice < 0.8) this.#do({ type: "reject", channel, deliveryTag, requeue: true });
    else if (dice < 0.9)
      this.#do({ type: "retry", channel, deliveryTag, delayMs: Math.floor(this.#random() * 200) });
    else this.#do({ type: "release", channel, deliveryTag });
  }

  #crash(): void {
    const client = this.#clients.pop();
    if (client === undefined) return;
    this.log.push(`crash ${client.connection}`);
    this.#do({ type: "close-connection", connection: client.connection });
  }

  #time(): void {
    const end = this.#world.now + Math.floor(this.#random() * 200);
    for (let next = this.#world.broker.nextWakeAt(); next <= end; next = this.#world.broker.nextWakeAt()) {
      this.#world.now = Math.max(this.#world.now, next);
      this.#do({ type: "tick" });
    }
    this.#world.now = end;
  }

  /** The wall clock is set, forth or back. */
  #jump(): void {
    this.#world.now += Math.floor((this.#random() - 0.4) * 100_000);
    this.log.push(`jump to ${this.#world.now}`);
    this.#do({ type: "tick" });
  }

  #restart(): void {
    this.log.push("restart");
    const before = this.#world.lost.length;
    const waiting = this.#waiting();
    this.#world.restart(Math.floor(this.#random() * 300));
    for (const l of this.#world.lost.slice(before)) {
      const body = text(l.content);
      this.#lost.set(body, (this.#lost.get(body) ?? 0) + 1);
    }
    const after = this.#waiting();
    for (const [name, bodies] of waiting) {
      const still = new Set(after.get(name));
      const kept = bodies.filter((body) => still.has(body));
      const now = (after.get(name) ?? []).filter((body) => bodies.includes(body));
      if (String(kept) !== String(now))
        this.#fail(`a restart turned the order of ${name}: ${kept} is ${now}`);
    }
    this.#begin();
  }

  #waiting(): Map<string, string[]> {
    return new Map(Object.keys(QUEUES).map((name) => [name, this.#world.waiting(name)]));
  }

  #fail(why: string): never {
    throw new Error(`seed ${this.#options.seed}: ${why}\n${this.log.slice(-30).join("\n")}`);
  }

  /** Where every message is: in the machine, and in the journal, which must say the same. */
  #check(): void {
    const places = new Map<string, string[]>();
    const put = (body: string, place: string): void =>
      void places.set(body, [...(places.get(body) ?? []), place]);
    const w = this.#world;
    const snapshot = w.broker.snapshot();
    const seqs: number[] = [];
    for (const { queueId, state } of snapshot.messages) {
      seqs.push(state.seq);
      put(text(w.contents.get(state.seq)), `queue ${queueId}`);
    }
    for (const body of this.#handled.keys()) put(body, "handled");
    for (const body of this.#lost.keys()) put(body, "lost");
    for (const body of this.#confirmed) {
      const found = places.get(body) ?? [];
      if (found.length !== 1)
        this.#fail(`confirmed ${body} is in ${found.length} places: ${found.join(", ") || "none"}`);
    }
    for (const [body, n] of [...this.#handled, ...this.#lost])
      if (n !== 1) this.#fail(`${body} ended ${n} times`);
    const rows = [...w.journal.rows.keys()].sort((a, b) => a - b);
    if (String(rows) !== String(seqs.sort((a, b) => a - b)))
      this.#fail(`the journal holds ${rows}, the machine ${seqs}`);
    const counted = w.broker.queues().reduce((n, q) => n + q.ready + q.unacked + q.delayed + q.retained, 0);
    if (counted !== seqs.length) this.#fail(`queues count ${counted} messages, ${seqs.length} are there`);
  }
}
