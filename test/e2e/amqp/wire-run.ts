// Plays one scenario of test/data/scenarios.json through amqplib. "%name" in a scenario stands for a name made
// unique for the run.
import { setTimeout as sleep } from "node:timers/promises";
import type { Channel, ChannelModel, ConfirmChannel, ConsumeMessage, GetMessage, Message } from "amqplib";
import { expect } from "vitest";

type Json = Record<string, unknown>;
/** A step is data: which fields it has depends on `do`. */
// biome-ignore lint/suspicious/noExplicitAny: the shape is the data file's
type Step = Record<string, any> & { do: string };
export interface Scenario {
  readonly id: string;
  readonly profile?: string;
  readonly steps: Step[];
  readonly final?: Record<string, "gone" | (string | Json)[]>;
  readonly settle?: number;
}

interface Watched<C extends Channel = Channel> {
  readonly ch: C;
  readonly errors: { code?: number; message: string }[];
  readonly returned: Message[];
}

const PAD = /\.+$/;
const plain = (value: unknown): unknown => {
  if (Buffer.isBuffer(value)) return value.toString();
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  if ("!" in value) return { [`$${String((value as Json)["!"])}`]: true };
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
};

export class ScenarioRun {
  readonly #connect: () => Promise<ChannelModel>;
  readonly #prefix: string;
  readonly #sessions = new Map<string, Watched & { connection: ChannelModel }>();
  readonly #messages = new Map<string, { message: Message; ch: Channel }>();
  readonly #consumers = new Map<string, { got: ConsumeMessage[]; ch: Channel; tag: string }>();
  #main!: ChannelModel;
  #publisher!: Watched<ConfirmChannel>;
  #control!: Watched;

  constructor(connect: () => Promise<ChannelModel>, prefix: string) {
    this.#connect = connect;
    this.#prefix = prefix;
  }

  async run(scenario: Scenario): Promise<void> {
    this.#main = await this.#open();
    try {
      this.#publisher = this.#watch(await this.#main.createConfirmChannel());
      this.#control = this.#watch(await this.#main.createChannel());
      for (const [index, step] of scenario.steps.entries()) {
        try {
          await this.#step(step);
        } catch (error) {
          throw new Error(`step ${index + 1} ${step.do}: ${(error as Error).message}`, { cause: error });
        }
      }
      await this.#final(scenario);
      for (const { errors } of this.#sessions.values()) expect(errors).toEqual([]);
    } finally {
      for (const { connection } of this.#sessions.values()) {
        if (connection !== this.#main) await connection.close().catch(() => {});
      }
      await this.#main.close();
    }
  }

  async #open(): Promise<ChannelModel> {
    const connection = await this.#connect();
    connection.on("error", () => {});
    return connection;
  }

  #watch<C extends Channel>(ch: C): Watched<C> {
    const watched: Watched<C> = { ch, errors: [], returned: [] };
    ch.on("error", (error) => watched.errors.push(error));
    ch.on("return", (message) => watched.returned.push(message));
    return watched;
  }

  #up<T>(value: T): T {
    return this.#names(value, (text) => (text.startsWith("%") ? this.#prefix + text.slice(1) : text));
  }

  #down<T>(value: T): T {
    return this.#names(value, (text) =>
      text.startsWith(this.#prefix) ? `%${text.slice(this.#prefix.length)}` : text,
    );
  }

  #names<T>(value: T, change: (text: string) => string): T {
    if (typeof value === "string") return change(value) as T;
    if (Array.isArray(value)) return value.map((item) => this.#names(item, change)) as T;
    if (value === null || typeof value !== "object" || Buffer.isBuffer(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, this.#names(item, change)]),
    ) as T;
  }

  async #session(name = "main"): Promise<Watched & { connection: ChannelModel }> {
    let session = this.#sessions.get(name);
    if (session === undefined) {
      const connection = name === "main" ? this.#main : await this.#open();
      session = { ...this.#watch(await connection.createChannel()), connection };
      this.#sessions.set(name, session);
    }
    return session;
  }

  /** Messages that are ready; "gone" where there is no such queue. */
  async #count(queue: string): Promise<number | "gone"> {
    try {
      return (await this.#control.ch.checkQueue(queue)).messageCount;
    } catch (error) {
      this.#control = this.#watch(await this.#main.createChannel());
      if ((error as { code?: number }).code === 404) return "gone";
      throw error;
    }
  }

  async #until<T>(look: () => T | Promise<T>, good: (value: T) => boolean, withinMs: number): Promise<T> {
    const end = Date.now() + withinMs;
    for (;;) {
      const value = await look();
      if (good(value) || Date.now() > end) return value;
      await sleep(15);
    }
  }

  /** The step must close its channel with this code and text. */
  async #refused(
    want: { code: number; text?: string },
    work: (ch: ConfirmChannel) => unknown,
  ): Promise<void> {
    const { ch, errors } = this.#watch(await this.#main.createConfirmChannel());
    let thrown: unknown;
    try {
      await work(ch);
    } catch (error) {
      thrown = error;
    }
    await this.#until(
      () => errors.length,
      (n) => n > 0 || thrown !== undefined,
      3000,
    );
    const error = errors[0] ?? (thrown as { code?: number; message: string } | undefined);
    expect(error?.code, error?.message ?? "no error came").toBe(want.code);
    if (want.text !== undefined) expect(error?.message.replaceAll(this.#prefix, "%")).toContain(want.text);
  }

  /** What an expectation asks of a message, taken from the message. */
  #view(message: Message, want: Json): Json {
    const headers = (message.properties.headers ?? {}) as Json;
    const pick = (from: Json, keys: Json) =>
      Object.fromEntries(
        Object.keys(keys).map((key) => [key, from[key] === undefined ? null : plain(from[key])]),
      );
    const view: Json = {};
    for (const key of Object.keys(want)) {
      if (key === "body") view[key] = message.content.toString().replace(PAD, "");
      else if (key === "key") view[key] = message.fields.routingKey;
      else if (key === "exchange") view[key] = message.fields.exchange;
      else if (key === "redelivered") view[key] = message.fields.redelivered;
      else if (key === "deliveryCount") view[key] = headers["x-delivery-count"] ?? 0;
      else if (key === "headers") view[key] = pick(headers, want[key] as Json);
      else if (key === "props") view[key] = pick(message.properties as unknown as Json, want[key] as Json);
      else if (key === "deaths" || key === "deathsLoose") {
        const wanted = want[key] as Json[] | null;
        const deaths = (headers["x-death"] as Json[] | undefined) ?? null;
        view[key] =
          deaths?.map((death, i) => pick(death, wanted?.[key === "deaths" ? i : 0] ?? death)) ?? null;
      } else throw new Error(`unknown expectation ${key}`);
    }
    return this.#down(view);
  }

  #check(message: Message, given: string | Json, where: string): void {
    const want = this.#down(typeof given === "string" ? { body: given } : given);
    const view = this.#view(message, want);
    if ("deathsLoose" in want) {
      // Where only the first death has its place, the others may come in any order.
      const rest = (deaths: unknown) =>
        (deaths as Json[])
          .slice(1)
          .map((d) => JSON.stringify(d))
          .sort();
      expect(rest(view["deathsLoose"]), where).toEqual(rest(want["deathsLoose"]));
      view["deathsLoose"] = (view["deathsLoose"] as Json[])[0];
      expect(view, where).toEqual({ ...want, deathsLoose: (want["deathsLoose"] as Json[])[0] });
      return;
    }
    expect(view, where).toEqual(want);
  }

  #find(ref: string): { message: Message; ch: Channel } {
    const known = this.#messages.get(ref);
    if (known !== undefined) return known;
    const [name, body] = ref.split(":") as [string, string];
    const consumer = this.#consumers.get(name);
    const message = consumer?.got.findLast((m) => m.content.toString() === body);
    if (consumer === undefined || message === undefined) throw new Error(`no message ${ref}`);
    return { message, ch: consumer.ch };
  }

  async #step(given: Step): Promise<void> {
    const s = this.#up(given);
    const work = this.#steps[s.do];
    if (work === undefined) throw new Error(`unknown step ${s.do}`);
    await work(s);
  }

  readonly #steps: Record<string, (s: Step) => Promise<void>> = {
    exchange: async (s) => {
      const { name, type = "direct", args, alternate } = s;
      await this.#control.ch.assertExchange(name, type, {
        durable: false,
        arguments: args,
        alternateExchange: alternate,
      });
    },
    queue: async (s) => {
      const options = {
        durable: s["durable"] ?? true,
        exclusive: s["exclusive"] ?? false,
        autoDelete: s["autoDelete"] ?? false,
        arguments: s["args"] ?? {},
      };
      if (s["error"]) await this.#refused(s["error"], (ch) => ch.assertQueue(s["name"], options));
      else await (await this.#session(s["session"])).ch.assertQueue(s["name"], options);
    },
    bind: async (s) =>
      void (await this.#control.ch.bindQueue(s["queue"], s["exchange"], s["key"] ?? "", s["args"])),
    unbind: async (s) =>
      void (await this.#control.ch.unbindQueue(s["queue"], s["exchange"], s["key"] ?? "", s["args"])),
    publish: async (s) => {
      for (const text of s["bodies"] ?? [s["body"]]) {
        const body = Buffer.from(s["size"] ? String(text).padEnd(s["size"], ".") : String(text));
        const to: [string, string, Buffer, Json] = [
          s["exchange"] ?? "",
          s["key"] ?? "",
          body,
          s["props"] ?? {},
        ];
        if (s["error"]) {
          await this.#refused(s["error"], (ch) => ch.publish(...to));
          continue;
        }
        const verdict = await new Promise<string>((resolve) => {
          this.#publisher.ch.publish(...to, (error) => resolve(error ? "nack" : "ack"));
        });
        if (s["confirm"]) expect(verdict, `confirm of ${text}`).toBe(s["confirm"]);
      }
    },
    get: async (s) => {
      const { ch } = await this.#session(s["session"]);
      const message = await ch.get(s["queue"], { noAck: s["noAck"] === true });
      await this.#got(s, message, ch);
    },
    getWait: async (s) => {
      await this.#until(
        () => this.#count(s["queue"]),
        (n) => n !== "gone" && n > 0,
        s["ms"] ?? 5000,
      );
      await this.#step({ ...s, do: "get" });
    },
    consume: async (s) => {
      const { ch } = await this.#session(s["session"]);
      const got: ConsumeMessage[] = [];
      if (s["prefetch"]) await ch.prefetch(s["prefetch"]);
      const take = (message: ConsumeMessage | null) => {
        if (message === null) return;
        got.push(message);
        if (s["ack"]) ch.ack(message);
      };
      const { consumerTag } = await ch.consume(s["queue"], take, { noAck: s["noAck"] === true });
      this.#consumers.set(s["as"], { got, ch, tag: consumerTag });
    },
    await: async (s) => {
      const got = this.#consumers.get(s["consumer"])?.got ?? [];
      await this.#until(
        () => got.length,
        (n) => n >= s["count"],
        s["ms"] ?? 5000,
      );
      const bodies = got.map((m) => m.content.toString());
      expect(got.length, `messages of ${s["consumer"]}: ${bodies}`).toBe(s["count"]);
      if (s["bodies"]) expect(bodies).toEqual(s["bodies"]);
      for (const [i, want] of (s["expect"] ?? []).entries())
        this.#check(got[i] as Message, want, `${s["consumer"]}[${i}]`);
    },
    ack: async (s) => {
      const { message, ch } = this.#find(s["msg"]);
      ch.ack(message, s["multiple"] === true);
    },
    reject: async (s) => {
      const { message, ch } = this.#find(s["msg"]);
      ch.reject(message, s["requeue"] === true);
    },
    nack: async (s) => {
      const { message, ch } =
        s["tag"] === undefined
          ? this.#find(s["msg"])
          : {
              message: { fields: { deliveryTag: s["tag"] } } as Message,
              ch: (await this.#session(s["session"])).ch,
            };
      ch.nack(message, s["multiple"] === true, s["requeue"] === true);
    },
    badTag: async (s) => {
      const message = { fields: { deliveryTag: s["tag"] } } as Message;
      await this.#refused(s["error"], (ch) => ch.reject(message, false));
    },
    recover: async (s) => void (await (await this.#session(s["session"])).ch.recover()),
    cancel: async (s) => {
      const consumer = this.#consumers.get(s["consumer"]);
      await consumer?.ch.cancel(consumer.tag);
    },
    close: async (s) => {
      const session = await this.#session(s["session"]);
      this.#sessions.delete(s["session"]);
      if (s["how"] === "channel") await session.ch.close();
      else if (s["how"] === "connection") await session.connection.close();
      else
        (
          session.connection as unknown as { connection: { stream: { destroy(): void } } }
        ).connection.stream.destroy();
    },
    sleep: async (s) => void (await sleep(s["ms"])),
    purge: async (s) => {
      const { messageCount } = await this.#control.ch.purgeQueue(s["queue"]);
      if (s["count"] !== undefined) expect(messageCount).toBe(s["count"]);
    },
    delete: async (s) => void (await this.#control.ch.deleteQueue(s["queue"])),
    count: async (s) => {
      const look = () => this.#count(s["queue"]);
      expect(await this.#until(look, (n) => n === s["ready"], s["within"] ?? 5000)).toBe(s["ready"]);
    },
    returns: async (s) => {
      await sleep(s["ms"] ?? 60);
      expect(this.#publisher.returned.length).toBe(s["count"]);
    },
    loop: async (s) => {
      for (let i = 0; i < s["times"]; i++) for (const step of s["steps"]) await this.#step(step);
    },
  };

  async #got(s: Step, message: GetMessage | false, ch: Channel): Promise<void> {
    if (s["expect"] === null) {
      expect(message).toBe(false);
      return;
    }
    if (message === false) throw new Error(`${this.#down(s["queue"])} is empty`);
    if (s["as"]) this.#messages.set(s["as"], { message, ch });
    if (s["expect"]) this.#check(message, s["expect"], `get ${this.#down(s["queue"])}`);
  }

  async #final(scenario: Scenario): Promise<void> {
    const wanted = Object.entries(scenario.final ?? {});
    for (const [queue, want] of wanted) {
      const count = want === "gone" ? "gone" : want.length;
      const got = await this.#until(
        () => this.#count(this.#up(queue)),
        (n) => n === count,
        6000,
      );
      expect(got, `messages in ${queue} at the end`).toBe(count);
    }
    await sleep(scenario.settle ?? 40);
    for (const [queue, want] of wanted) {
      if (want === "gone") continue;
      for (const [i, expected] of want.entries()) {
        const message = await this.#control.ch.get(this.#up(queue), { noAck: true });
        if (message === false) throw new Error(`${queue} has ${i} messages instead of ${want.length}`);
        this.#check(message, expected, `${queue}[${i}] at the end`);
      }
      expect(await this.#control.ch.get(this.#up(queue), { noAck: true }), `more in ${queue}`).toBe(false);
    }
  }
}
