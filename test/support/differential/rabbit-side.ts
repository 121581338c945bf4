import amqp, {
  type Channel,
  type ChannelModel,
  type ConfirmChannel,
  type ConsumeMessage,
  type GetMessage,
} from "amqplib";
import {
  type Death,
  LAST_STEPS,
  leftOut,
  type Observation,
  ordered,
  type Run,
  type Script,
  type Seen,
  SLACK_MS,
  type Step,
  WAIT_MS,
} from "./script.ts";

type Received = ConsumeMessage | GetMessage;

const POLL_MS = 5;
const SETTLE_MS = 2000;
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Runs scripts on a live RabbitMQ over one connection; scripts may run at the same time, their names are unique. */
export class RabbitSide {
  readonly #connection: ChannelModel;
  #runs = 0;
  readonly #prefix = `diff${process.pid.toString(36)}${Date.now().toString(36)}`;

  private constructor(connection: ChannelModel) {
    this.#connection = connection;
    connection.on("error", () => {});
  }

  static async connect(url: string): Promise<RabbitSide> {
    return new RabbitSide(await amqp.connect(url, { noDelay: true }));
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  /**
   * Runs the script. `expected` is what the machine showed: after each step this side waits until RabbitMQ shows the
   * same (its queues are processes of their own and settle a moment later), or gives up and shows what it sees.
   * Null when the machine was too slow for the script's TTLs to mean anything.
   */
  async run(script: Script, expected: Run): Promise<Run | null> {
    const one = new OneRun(this.#connection, script, `${this.#prefix}_${++this.#runs}_`);
    try {
      return await one.run(expected);
    } finally {
      await one.clean();
    }
  }
}

class OneRun {
  readonly #connection: ChannelModel;
  readonly #script: Script;
  readonly #prefix: string;
  #control!: Channel;
  #publisher!: ConfirmChannel;
  #sessions: { channel: Channel; outstanding: Received[] }[] = [];
  #consumed = new Map<string, number>();
  #deliveries: [Seen[], Seen[]] = [[], []];
  #bodies = 0;

  constructor(connection: ChannelModel, script: Script, prefix: string) {
    this.#connection = connection;
    this.#script = script;
    this.#prefix = prefix;
  }

  #up = (name: string) => (/^[qx]\d$/.test(name) ? this.#prefix + name : name);
  #down = (name: string) => (name.startsWith(this.#prefix) ? name.slice(this.#prefix.length) : name);

  async #open(): Promise<Channel> {
    const channel = await this.#connection.createChannel();
    channel.on("error", () => {});
    return channel;
  }

  async run(expected: Run): Promise<Run | null> {
    await this.#setUp();
    const observations: Observation[] = [];
    let quietSince = Date.now();
    const timed = this.#script.steps.some((step) => step.do === "wait");
    for (const [index, step] of [...this.#script.steps, ...LAST_STEPS].entries()) {
      if (step.do === "wait") {
        if (Date.now() - quietSince > SLACK_MS) return null;
        await sleep(WAIT_MS);
        quietSince = Date.now();
      }
      this.#deliveries = [[], []];
      const result = await this.#perform(step);
      const want = expected.observations[index]!;
      const ready = await this.#settle(want);
      observations.push({ step: index, result, deliveries: this.#deliveries, ready });
      if (timed && step.do !== "wait" && Date.now() - quietSince > SLACK_MS) return null;
    }
    return { observations, left: await this.#drain() };
  }

  async #setUp(): Promise<void> {
    const { exchanges, queues, bindings } = this.#script;
    this.#control = await this.#open();
    this.#publisher = await this.#connection.createConfirmChannel();
    this.#publisher.on("error", () => {});
    this.#sessions = [
      { channel: await this.#open(), outstanding: [] },
      { channel: await this.#open(), outstanding: [] },
    ];
    for (const x of exchanges)
      await this.#control.assertExchange(this.#up(x.name), x.type, { durable: false });
    for (const q of queues) {
      const args = Object.fromEntries(
        Object.entries(q.args).map(([key, value]) => [
          key,
          typeof value === "string" ? this.#up(value) : value,
        ]),
      );
      await this.#control.assertQueue(this.#up(q.name), { durable: true, arguments: args });
    }
    for (const b of bindings)
      await this.#control.bindQueue(this.#up(b.queue), this.#up(b.exchange), this.#up(b.key));
  }

  async #ready(): Promise<Record<string, number>> {
    const counts = await Promise.all(
      this.#script.queues.map((q) => this.#control.checkQueue(this.#up(q.name))),
    );
    return Object.fromEntries(this.#script.queues.map((q, i) => [q.name, counts[i]!.messageCount]));
  }

  async #settle(want: Observation): Promise<Record<string, number>> {
    const until = Date.now() + SETTLE_MS;
    for (;;) {
      const ready = await this.#ready();
      const same = Object.entries(want.ready).every(([name, count]) => ready[name] === count);
      if (
        (same && this.#deliveries.every((list, i) => list.length >= want.deliveries[i]!.length)) ||
        Date.now() > until
      )
        return ready;
      await sleep(POLL_MS);
    }
  }

  async #perform(step: Step): Promise<string | Seen | null> {
    switch (step.do) {
      case "publish":
        return this.#publish(step);
      case "republish": {
        const { outstanding } = this.#sessions[step.session]!;
        if (outstanding.length === 0) return null;
        return this.#republish(step, outstanding[step.pick % outstanding.length]!);
      }
      case "get": {
        const session = this.#sessions[step.session]!;
        if (leftOut(this.#script, step, this.#consumed.get(step.queue))) return null;
        const message = await session.channel.get(this.#up(step.queue));
        if (!message) return null;
        session.outstanding.push(message);
        return this.#seen(message);
      }
      case "consume":
        await this.#consume(step);
        return null;
      case "settle":
        this.#settleOne(step);
        return null;
      case "crash":
        await this.#sessions[step.session]!.channel.close();
        this.#sessions[step.session] = { channel: await this.#open(), outstanding: [] };
        for (const [queue, session] of this.#consumed)
          if (session === step.session) this.#consumed.delete(queue);
        return null;
      case "recover": {
        const session = this.#sessions[step.session]!;
        session.outstanding = [];
        await session.channel.recover();
        return null;
      }
      case "purge":
        return `purged ${(await this.#control.purgeQueue(this.#up(step.queue))).messageCount}`;
      case "wait":
        return null;
    }
  }

  #publish(step: Extract<Step, { do: "publish" }>): Promise<string> {
    const body = Buffer.from(`m${++this.#bodies}`);
    const options = {
      persistent: true,
      ...(step.expiration === undefined ? {} : { expiration: step.expiration }),
      ...(step.priority === undefined ? {} : { priority: step.priority }),
      ...(step.cc ? { headers: { CC: step.cc.map(this.#up) } } : {}),
    };
    return new Promise((resolve) => {
      this.#publisher.publish(this.#up(step.exchange), this.#up(step.key), body, options, (error) =>
        resolve(error ? "nack" : "ack"),
      );
    });
  }

  #republish(step: Extract<Step, { do: "republish" }>, { content, properties }: Received): Promise<string> {
    const options = {
      persistent: true,
      headers: properties.headers,
      ...(properties.expiration === undefined ? {} : { expiration: properties.expiration }),
      ...(properties.priority === undefined ? {} : { priority: properties.priority }),
    };
    return new Promise((resolve) => {
      this.#publisher.publish(this.#up(step.exchange), this.#up(step.key), content, options, (error) =>
        resolve(error ? "nack" : "ack"),
      );
    });
  }

  async #consume(step: Extract<Step, { do: "consume" }>): Promise<void> {
    if (this.#consumed.has(step.queue) || [...this.#consumed.values()].includes(step.session)) return;
    this.#consumed.set(step.queue, step.session);
    const session = this.#sessions[step.session]!;
    await session.channel.prefetch(step.prefetch);
    await session.channel.consume(this.#up(step.queue), (message) => {
      if (!message) return;
      session.outstanding.push(message);
      this.#deliveries[step.session].push(this.#seen(message));
    });
  }

  #settleOne(step: Extract<Step, { do: "settle" }>): void {
    const session = this.#sessions[step.session]!;
    if (session.outstanding.length === 0) return;
    const at = step.pick % session.outstanding.length;
    const message = session.outstanding[at]!;
    const multiple = step.multiple && step.how !== "reject";
    session.outstanding.splice(multiple ? 0 : at, multiple ? at + 1 : 1);
    if (step.how === "ack") session.channel.ack(message, multiple);
    else if (step.how === "nack") session.channel.nack(message, multiple, step.requeue);
    else session.channel.reject(message, step.requeue);
  }

  #seen(message: Received): Seen {
    const headers = message.properties.headers ?? {};
    const list = Array.isArray(headers["x-death"])
      ? (headers["x-death"] as unknown as Record<string, unknown>[])
      : [];
    const deaths = list.map(
      (entry): Death => ({
        queue: this.#down(String(entry["queue"])),
        reason: String(entry["reason"]),
        count: Number(entry["count"]),
        exchange: this.#down(String(entry["exchange"])),
        keys: (entry["routing-keys"] as string[]).map(this.#down),
        expiration: entry["original-expiration"] === undefined ? null : String(entry["original-expiration"]),
      }),
    );
    return {
      body: message.content.toString(),
      exchange: this.#down(message.fields.exchange),
      key: this.#down(message.fields.routingKey),
      redelivered: message.fields.redelivered,
      deliveryCount: Number(headers["x-delivery-count"] ?? 0),
      deaths: ordered(deaths),
    };
  }

  async #drain(): Promise<Record<string, Seen[]>> {
    const left: Record<string, Seen[]> = {};
    for (const q of this.#script.queues) {
      const found: Seen[] = [];
      for (;;) {
        const message = await this.#control.get(this.#up(q.name), { noAck: true });
        if (!message) break;
        found.push(this.#seen(message));
      }
      left[q.name] = found;
    }
    return left;
  }

  async clean(): Promise<void> {
    const quietly = (work: Promise<unknown>) => work.catch(() => {});
    for (const { channel } of this.#sessions) await quietly(channel.close());
    const control = await this.#open();
    for (const q of this.#script.queues) await quietly(control.deleteQueue(this.#up(q.name)));
    for (const x of this.#script.exchanges) await quietly(control.deleteExchange(this.#up(x.name)));
    await Promise.all([control, this.#control, this.#publisher].map((channel) => quietly(channel.close())));
  }
}
