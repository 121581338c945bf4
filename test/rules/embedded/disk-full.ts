/**
 * A seeded world around the real broker on a real file: senders, consumers, a client of another language, clock jumps,
 * deaths of the process (the file as it lies is opened by another broker), and spells in which the disk is full. The
 * books say what must be true whenever the file is looked at: a message whose send was confirmed is in exactly one of
 * handled, waiting, dead, lost; one whose send was refused is nowhere; one that was not answered is in one place at most.
 */
import { copyFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import type { Committer } from "../../../src/engines/embedded/committer.ts";
import type { EmbeddedQueue } from "../../../src/engines/embedded/queue.ts";
import type { Database } from "../../../src/engines/embedded/sqlite.ts";
import type { Vhost } from "../../../src/engines/embedded/vhost.ts";
import { type EmbeddedBroker, type Message, openBroker } from "../../../src/index.ts";

export interface DiskSimOptions {
  readonly seed: number;
  readonly steps: number;
  readonly folder: string;
  /** Breaks the engine on purpose: the books must see it. */
  readonly fault?: "refused-and-kept" | "told-too-early" | "told-wrongly";
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

interface Told {
  sent: "asked" | "confirmed" | "refused";
  /** How it was settled for good, and whether that was confirmed. */
  end?: "ack" | "bury";
  ended?: boolean;
}

interface Client {
  publish(queue: string, id: string, body: string): void;
  take(queue: string): void;
}

interface Inside {
  readonly committer: Committer;
  readonly file: { readonly db: Database };
}

const QUEUES = { work: {}, timed: { messageTtl: 1_000 } };
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));

export class DiskSimulation {
  /** How often what happened, so that a run in which nothing did is seen. */
  readonly seen = { confirmed: 0, refused: 0, full: 0, crashes: 0, lost: 0, dead: 0 };
  readonly log: string[] = [];
  readonly #options: DiskSimOptions;
  readonly #random: () => number;
  readonly #books = new Map<string, Told>();
  #broker: EmbeddedBroker;
  #file: string;
  #now = 1_700_000_000_000;
  #held: { readonly queue: EmbeddedQueue; readonly message: Message }[] = [];
  #queues = new Map<string, EmbeddedQueue>();
  #client: Client;
  #ids = 0;
  #spell = 0;
  #life = 0;

  constructor(options: DiskSimOptions) {
    this.#options = options;
    this.#random = random(options.seed);
    this.#file = join(options.folder, "0.db");
    this.#broker = this.#open();
    this.#client = this.#connect();
  }

  async run(): Promise<void> {
    for (let step = 0; step < this.#options.steps; step++) {
      this.#disk();
      for (let n = Math.floor(this.#random() * 6); n > 0; n--) this.#act();
      await turn();
      if (this.#random() < 0.03) await this.#crash();
    }
    await this.#crash();
    await this.#broker.close();
  }

  #open(): EmbeddedBroker {
    // Mostly without syncs: a death of the process loses what was not written, and that alone.
    const durability = this.#options.seed % 5 === 0 ? "full" : "process";
    const broker = openBroker({ file: this.#file, durability, clock: { now: () => this.#now } });
    this.#queues = new Map(
      Object.entries(QUEUES).map(([name, declaration]) => [name, broker.queue(name, declaration)]),
    );
    this.#break(inside(broker).committer);
    return broker;
  }

  #break(committer: Committer): void {
    const { fault } = this.#options;
    if (fault === "refused-and-kept")
      for (const queue of this.#queues.values()) queue.takeBack = () => () => true;
    if (fault === "told-too-early") committer.after = (run) => run(null);
    if (fault !== "told-wrongly") return;
    const after = committer.after.bind(committer);
    committer.after = (run, takeBack) => after(() => run(null), takeBack);
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)] as T;
  }

  #limit(pages: number): void {
    inside(this.#broker).file.db.exec(`PRAGMA max_page_count = ${pages}`);
  }

  /** Spells without room: SQLite lets a file have as many pages as it has, and no more. */
  #disk(): void {
    if (this.#spell > 0) {
      if (--this.#spell > 0) return;
      this.#limit(1_000_000);
      this.log.push("room again");
    } else if (this.#random() < 0.06) {
      this.#spell = 1 + Math.floor(this.#random() * 12);
      this.#limit(1);
      this.seen.full++;
      this.log.push(`full for ${this.#spell}`);
    }
  }

  #act(): void {
    const dice = this.#random();
    if (dice < 0.35) this.#send();
    else if (dice < 0.42) this.#sendMany();
    else if (dice < 0.5) this.#foreign();
    else if (dice < 0.72) this.#receive();
    else if (dice < 0.94) this.#settle();
    else this.#jump();
  }

  #body(): string {
    return "x".repeat(Math.floor(this.#random() ** 3 * 30_000));
  }

  #told(): { id: string; told: Told } {
    const id = `m${++this.#ids}`;
    const told: Told = { sent: "asked" };
    this.#books.set(id, told);
    return { id, told };
  }

  #queue(): EmbeddedQueue {
    return this.#queues.get(this.#pick(Object.keys(QUEUES))) as EmbeddedQueue;
  }

  #answer(sent: Promise<unknown>, tolds: readonly Told[]): void {
    const life = this.#life;
    const answered = (what: "confirmed" | "refused") => (): void => {
      if (life !== this.#life) return;
      for (const told of tolds) told.sent = what;
      this.seen[what] += tolds.length;
    };
    sent.then(answered("confirmed"), answered("refused"));
  }

  #send(): void {
    const { id, told } = this.#told();
    this.log.push(`send ${id}`);
    this.#answer(this.#queue().send(this.#body(), id), [told]);
  }

  #sendMany(): void {
    const many = Array.from({ length: 1 + Math.floor(this.#random() * 4) }, () => this.#told());
    this.log.push(`send ${many.map(({ id }) => id)}`);
    const messages = many.map(({ id }) => ({ id, body: this.#body() }));
    this.#answer(
      this.#queue().sendMany(messages),
      many.map(({ told }) => told),
    );
  }

  #foreign(): void {
    const name = this.#pick(Object.keys(QUEUES));
    if (this.#random() < 0.3) {
      this.#client.take(name);
      return;
    }
    const { id } = this.#told();
    this.log.push(`publish ${id}`);
    this.#client.publish(name, id, this.#body());
  }

  #connect(): Client {
    const life = this.#life;
    const tags: string[] = [];
    const sink = {
      effect: (effect: { type: string; publishTag?: number; ok?: boolean }) => {
        const told = this.#books.get(tags[(effect.publishTag ?? 0) - 1] ?? "");
        if (effect.type !== "confirm" || told === undefined || life !== this.#life) return;
        told.sent = effect.ok === true ? "confirmed" : "refused";
        this.seen.confirmed++;
      },
      flush: () => {},
      ended: () => {},
    };
    const connection = this.#broker.host.vhost("/")?.connect(sink as never);
    if (connection === undefined) throw new Error("no virtual host");
    const channel = connection.openChannel();
    connection.submit({ type: "confirm-select", channel });
    return {
      publish: (queue, id, body) => {
        tags.push(id);
        const properties = { messageId: id, deliveryMode: 2 };
        const to = { exchange: "", routingKey: queue };
        connection.submit({ type: "publish", channel, ...to, properties, body: Buffer.from(body) });
      },
      // Nobody answers an ack, so it is never known to be safe.
      take: (queue) => {
        const got = connection.submit({ type: "get", channel, queue });
        if (got.type !== "got") return;
        const id = String(got.content.properties.messageId);
        this.log.push(`a client acks ${id}`);
        (this.#books.get(id) as Told).end = "ack";
        connection.submit({ type: "ack", channel, deliveryTag: got.deliveryTag });
      },
    };
  }

  #receive(): void {
    const queue = this.#queue();
    const message = queue.receive();
    if (message === null) return;
    this.log.push(`receive ${message.id}`);
    this.#held.push({ queue, message });
    queue.begin(message.id, message.receipt).catch(() => {});
  }

  #settle(): void {
    const [one] = this.#held.splice(Math.floor(this.#random() * this.#held.length), 1);
    if (one === undefined) return;
    const { queue, message } = one;
    const { id, receipt, body } = message;
    const told = this.#books.get(id) as Told;
    const life = this.#life;
    const ended = (end: "ack" | "bury", call: Promise<unknown>): void => {
      told.end = end;
      call.then(
        () => {
          if (life === this.#life) told.ended = true;
        },
        () => {},
      );
    };
    const dice = this.#random();
    this.log.push(`settle ${id} ${dice.toFixed(2)}`);
    if (dice < 0.4) ended("ack", queue.ack(id, receipt));
    else if (dice < 0.6) {
      const times = { attempts: 1, firstAttemptAt: this.#now, failedAt: this.#now };
      const entry = { id, body, reason: "permanent" as const, error: "Error: no", ...times };
      ended("bury", queue.bury(id, receipt, entry, this.#broker.deadLetters("dead")));
    } else if (dice < 0.8) queue.retry(id, receipt, { error: "Error: not yet" }).catch(() => {});
    else if (dice < 0.9) queue.retry(id, receipt, { delayMs: 500 }).catch(() => {});
    else queue.release(id, receipt).catch(() => {});
  }

  #jump(): void {
    this.#now += Math.floor(this.#random() * 600);
    this.#broker.tick();
  }

  /** The process dies here: what lies on the disk is all there is, and another broker takes it over. */
  async #crash(): Promise<void> {
    const dead = this.#broker;
    const from = this.#file;
    this.#life++;
    this.seen.crashes++;
    this.log.push("crash");
    this.#file = join(this.#options.folder, `${this.#life}.db`);
    for (const part of ["", "-wal"])
      if (existsSync(from + part)) copyFileSync(from + part, this.#file + part);
    // What was asked before is never answered; whether the dead one finds room at its end makes no difference.
    await dead.close();
    this.#held = [];
    this.#spell = 0;
    this.#broker = this.#open();
    this.#client = this.#connect();
    this.#check();
  }

  #fail(why: string): never {
    throw new Error(`seed ${this.#options.seed}: ${why}\n${this.log.slice(-40).join("\n")}`);
  }

  /** Where the file has every message, compared with what was told. */
  #check(): void {
    const places = new Map<string, string[]>();
    const put = (id: string, place: string): void => void places.set(id, [...(places.get(id) ?? []), place]);
    const vhost = this.#broker.host.vhost("/") as Vhost;
    for (const name of Object.keys(QUEUES))
      for (const { content } of [...vhost.peek(name, 1e9), ...vhost.delayed(name, 1e9)])
        put(String(content.properties.messageId), name);
    for (const letter of this.#broker.letters.page({}, 1e9)) {
      put(letter.id, letter.deadLetters);
      if (letter.deadLetters !== "dead") this.seen.lost++;
      else this.seen.dead++;
    }
    for (const [id, told] of this.#books) this.#checkOne(id, told, places.get(id) ?? []);
    for (const id of places.keys()) if (!this.#books.has(id)) this.#fail(`${id} was never sent`);
  }

  #checkOne(id: string, told: Told, found: readonly string[]): void {
    const where = `in ${found.length} places: ${found.join(", ") || "none"}`;
    if (found.length > 1) this.#fail(`${id} is ${where}`);
    if (told.sent === "refused" && found.length > 0) this.#fail(`${id} was refused and is ${where}`);
    const handled = told.end === "ack";
    if (handled && told.ended === true && found.length > 0) this.#fail(`${id} was acked and is ${where}`);
    if (told.end === "bury" && told.ended === true && found[0] !== "dead")
      this.#fail(`${id} was dead-lettered and is ${where}`);
    if (told.sent === "confirmed" && !handled && found.length === 0)
      this.#fail(`${id} was confirmed and is ${where}`);
    // From here on it is what the file says.
    if (found.length === 0) this.#books.delete(id);
    else {
      told.sent = "confirmed";
      if (found[0] === "dead") continueAs(told, "bury");
      else continueAs(told, undefined);
    }
  }
}

function continueAs(told: Told, end: "bury" | undefined): void {
  delete told.end;
  delete told.ended;
  if (end !== undefined) Object.assign(told, { end, ended: true });
}

const inside = (broker: EmbeddedBroker): Inside => broker.host as unknown as Inside;
