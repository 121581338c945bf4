import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Connection } from "../../../src/amqp/connection.ts";
import { limitsFor } from "../../../src/amqp/limits.ts";
import { ReplyTo } from "../../../src/amqp/reply-to.ts";
import { Users } from "../../../src/amqp/users.ts";
import { Reader } from "../../../src/amqp/wire.ts";
import { type Command, HeaderTable, type Reply } from "../../../src/broker/index.ts";
import { DloError } from "../../../src/core/index.ts";
import * as c from "../../support/amqp-methods.ts";
import { bytesOf, Frames, open, PROTOCOL, publish, startOk, tuneOk } from "../../support/amqp-wire.ts";
import { MemoryHost } from "../../support/memory-host.ts";

/** A connection without a socket, on a clock of the test's own. */
class Bench {
  now = 1_000_000;
  readonly host = new MemoryHost({ now: () => this.now, manual: true });
  readonly frames = new Frames();
  readonly logged: string[] = [];
  waiting = 0;
  paused = false;
  how: "end" | "destroy" | null = null;
  readonly connection: Connection;

  constructor(limits: Parameters<typeof limitsFor>[1] = {}) {
    const transport = {
      remoteAddress: "127.0.0.1",
      waiting: () => this.waiting,
    };
    const bench = this;
    this.connection = new Connection(
      {
        host: this.host,
        users: new Users(),
        shared: {
          compat: "4.x",
          limits: limitsFor("4.x", limits),
          reader: new Reader(),
          replyTo: new ReplyTo(),
          unfinished: 0,
          randomName: () => `name-${this.host.nextId()}`,
        },
        refusal: () => null,
        now: () => this.now,
        log: (text) => this.logged.push(text),
      },
      {
        ...transport,
        get waiting() {
          return bench.waiting;
        },
        write: (pieces) => {
          for (const piece of pieces) bench.frames.push(piece);
        },
        pause: () => {
          bench.paused = true;
        },
        resume: () => {
          bench.paused = false;
        },
        end: () => {
          bench.how = "end";
        },
        destroy: () => {
          bench.how = "destroy";
        },
      },
    );
  }

  send(...bytes: Uint8Array[]): string[] {
    const from = this.frames.seen.length;
    for (const piece of bytes) this.connection.receive(piece);
    this.host.drain();
    return this.frames.names().slice(from);
  }

  write(write: Parameters<typeof bytesOf>[0]): string[] {
    return this.send(bytesOf(write));
  }

  async login(options: Parameters<typeof startOk>[0] = {}): Promise<void> {
    this.send(PROTOCOL, startOk(options));
    await this.frames.next("connection.tune");
    this.send(tuneOk(options), open(options));
    expect(this.frames.names().at(-1)).toBe("connection.open_ok");
  }

  /** Logged in, with channel 1 open and a queue `q`. */
  async ready(options: Parameters<typeof startOk>[0] = {}): Promise<void> {
    await this.login(options);
    this.write((to) => c.writeChannelOpen(to, 1));
    this.write((to) => c.writeQueueDeclare(to, 1, "q", false, false, false, false, false, HeaderTable.empty));
    expect(this.frames.names().at(-1)).toBe("queue.declare_ok");
  }

  last(): Record<string, unknown> {
    return this.frames.seen.at(-1)?.args ?? {};
  }

  ticks(ms: number): void {
    for (let passed = 0; passed < ms; passed += 500) {
      this.now += 500;
      this.connection.tick(this.now);
    }
  }
}

let bench: Bench;
beforeEach(() => {
  bench = new Bench();
});
afterEach(() => bench.host.close());

const method = (channel: number, id: number, ...args: number[]): Buffer => {
  const payload = Buffer.from([id >>> 24, (id >> 16) & 255, (id >> 8) & 255, id & 255, ...args]);
  return frame(1, channel, payload);
};
const frame = (type: number, channel: number, payload: Uint8Array, end = 0xce): Buffer => {
  const head = Buffer.from([type, channel >> 8, channel & 255, 0, 0, 0, 0]);
  head.writeUInt32BE(payload.length, 3);
  return Buffer.concat([head, payload, Buffer.from([end])]);
};

describe("the handshake", () => {
  it("answers another protocol with its own name, and ends", () => {
    for (const greeting of [
      "GET / HTTP/1.1\r\n",
      "AMQP\x00\x01\x00\x00",
      "AMQP\x03\x01\x00\x00",
      "\x16\x03\x01",
    ]) {
      const other = new Bench();
      other.connection.receive(Buffer.from(greeting, "latin1"));
      expect(Buffer.concat(other.frames.raw), greeting).toEqual(PROTOCOL);
      expect(other.how).toBe("end");
    }
  });

  it("announces what clients look for", async () => {
    bench.send(PROTOCOL);
    const { args } = await bench.frames.next("connection.start");
    const properties = (args["serverProperties"] as HeaderTable).toObject();
    expect(properties).toMatchObject({ product: "RabbitMQ", version: "4.2.0" });
    expect(properties["capabilities"]).toMatchObject({
      publisher_confirms: true,
      exchange_exchange_bindings: true,
      "basic.nack": true,
      consumer_cancel_notify: true,
      "connection.blocked": true,
      consumer_priorities: true,
      authentication_failure_close: true,
      per_consumer_qos: true,
      direct_reply_to: true,
    });
    expect(Buffer.from(args["mechanisms"] as Uint8Array).toString()).toBe("AMQPLAIN PLAIN");
    bench.send(startOk());
    expect((await bench.frames.next("connection.tune")).args).toEqual({
      channelMax: 2047,
      frameMax: 131072,
      heartbeat: 60,
    });
  });

  it.each([
    ["PLAIN", Buffer.from("\0guest\0guest")],
    ["AMQPLAIN", HeaderTable.fromObject({ LOGIN: "guest", PASSWORD: "guest" }).bytes],
  ])("takes %s", async (mechanism, response) => {
    bench.send(PROTOCOL, startOk({ mechanism, response }));
    await bench.frames.next("connection.tune");
  });

  it("refuses a wrong password with a close where the client can read one", async () => {
    bench.send(PROTOCOL, startOk({ password: "wrong" }));
    const { args } = await bench.frames.next("connection.close");
    expect(args["replyCode"]).toBe(403);
    expect(args["replyText"]).toBe(
      "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
    );
  });

  it("hangs up on a wrong password where it cannot", async () => {
    bench.send(PROTOCOL, startOk({ password: "wrong", capabilities: {} }));
    await expect.poll(() => bench.how).toBe("end");
    expect(bench.frames.names()).toEqual(["connection.start"]);
  });

  it.each([
    ["an unknown mechanism", { mechanism: "EXTERNAL" }, 503],
    ["a response that is none", { response: Buffer.from("guest") }, 502],
    ["a table that is none", { mechanism: "AMQPLAIN", response: Buffer.from("guest") }, 502],
  ])("closes on %s", async (_, options, code) => {
    bench.send(PROTOCOL, startOk(options));
    expect((await bench.frames.next("connection.close")).args["replyCode"]).toBe(code);
  });

  it.each([
    ["frame_max = 100 is lower", { frameMax: 100 }],
    ["frame_max = 131073 is higher", { frameMax: 131073 }],
    ["frame_max = 0 (no limit) is higher", { frameMax: 0 }],
    ["channel_max = 2048 is higher", { channelMax: 2048 }],
  ])("refuses a negotiation: %s", async (text, options) => {
    bench.send(PROTOCOL, startOk());
    await bench.frames.next("connection.tune");
    bench.send(tuneOk(options));
    expect(bench.last()["replyCode"]).toBe(530);
    expect(bench.last()["replyText"]).toContain(text);
  });

  it("refuses an unknown virtual host", async () => {
    bench.send(PROTOCOL, startOk());
    await bench.frames.next("connection.tune");
    bench.send(tuneOk(), open({ vhost: "nowhere" }));
    expect(bench.last()).toMatchObject({
      replyCode: 530,
      replyText: "NOT_ALLOWED - vhost nowhere not found",
    });
  });

  it("refuses methods out of turn", () => {
    for (const early of [tuneOk(), open(), bytesOf((to) => c.writeChannelOpen(to, 1))]) {
      const one = new Bench();
      one.send(PROTOCOL, early);
      expect(one.last()["replyCode"]).toBe(503);
    }
  });

  it("ends when it takes too long, wherever it stands", async () => {
    bench.ticks(9_000);
    expect(bench.how).toBeNull();
    bench.ticks(1_500);
    expect(bench.how).toBe("destroy");
    const half = new Bench();
    half.send(PROTOCOL, startOk());
    await half.frames.next("connection.tune");
    half.ticks(10_500);
    expect(half.how).toBe("destroy");
  });
});

describe("every breach of the protocol ends in the right close", () => {
  const cases: [string, () => Uint8Array, number, "connection" | "channel"][] = [
    ["a frame of an unknown type", () => frame(9, 0, new Uint8Array(0)), 501, "connection"],
    ["a wrong end byte", () => frame(8, 0, new Uint8Array(0), 0xcd), 501, "connection"],
    ["a frame beyond frame_max", () => Buffer.from([3, 0, 1, 0, 2, 0, 0]), 501, "connection"],
    ["a heartbeat on a channel", () => frame(8, 1, new Uint8Array(0)), 501, "connection"],
    ["a method frame too short for a method", () => frame(1, 1, new Uint8Array(3)), 502, "connection"],
    ["a method that ends inside its arguments", () => method(1, 0x0032000a, 0, 0, 9), 502, "connection"],
    ["bytes behind a method", () => method(1, 0x003c000b - 1, 0, 0, 0, 0, 0, 1, 0, 7), 502, "connection"],
    ["an unknown method on a channel", () => method(1, 0x003c00ff), 540, "connection"],
    ["an unknown class", () => method(1, 0x00ff000a), 540, "connection"],
    ["an unknown connection method", () => method(0, 0x000a00ff), 540, "connection"],
    ["a method only servers send", () => method(1, 0x0032000b), 503, "connection"],
    ["a connection method in the wrong state", () => tuneOk(), 504, "connection"],
    ["a connection method on a channel", () => method(1, 0x000a0032), 503, "connection"],
    ["a channel method on channel 0", () => method(0, 0x0014000a, 0), 504, "connection"],
    ["content on channel 0", () => frame(3, 0, Buffer.from("x")), 505, "connection"],
    ["a channel that is not open", () => method(7, 0x003c0014), 504, "connection"],
    ["a second channel.open", () => bytesOf((to) => c.writeChannelOpen(to, 1)), 504, "connection"],
    [
      "a header without a publish",
      () => frame(2, 1, Buffer.from([0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])),
      505,
      "connection",
    ],
    ["a body without a publish", () => frame(3, 1, Buffer.from("x")), 505, "connection"],
    [
      "a method between a publish and its body",
      () =>
        Buffer.concat([
          bytesOf((to) => c.writeBasicPublish(to, 1, "", "q", false, false)),
          bytesOf((to) => c.writeBasicQos(to, 1, 0, 1, false)),
        ]),
      505,
      "connection",
    ],
    [
      "a header of another class",
      () =>
        Buffer.concat([
          bytesOf((to) => c.writeBasicPublish(to, 1, "", "q", false, false)),
          frame(2, 1, Buffer.from([0, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])),
        ]),
      505,
      "connection",
    ],
    [
      "more body than announced",
      () =>
        Buffer.concat([
          bytesOf((to) => c.writeBasicPublish(to, 1, "", "q", false, false)),
          frame(2, 1, Buffer.from([0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])),
          frame(3, 1, Buffer.from("xy")),
        ]),
      501,
      "connection",
    ],
    [
      "property flags that mean nothing",
      () =>
        Buffer.concat([
          bytesOf((to) => c.writeBasicPublish(to, 1, "", "q", false, false)),
          frame(2, 1, Buffer.from([0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1])),
        ]),
      502,
      "connection",
    ],
    [
      "a body beyond the limit",
      () =>
        Buffer.concat([
          bytesOf((to) => c.writeBasicPublish(to, 1, "", "q", false, false)),
          frame(2, 1, Buffer.from([0, 60, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0])),
        ]),
      406,
      "channel",
    ],
    [
      "immediate",
      () =>
        Buffer.concat([
          bytesOf((to) => c.writeBasicPublish(to, 1, "", "q", false, true)),
          frame(2, 1, Buffer.from([0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        ]),
      540,
      "connection",
    ],
    ["a prefetch size", () => bytesOf((to) => c.writeBasicQos(to, 1, 1, 1, false)), 540, "connection"],
    ["flow off", () => bytesOf((to) => c.writeChannelFlow(to, 1, false)), 540, "connection"],
    ["another user's id", () => publish(1, "", "q", "x", { userId: "root" }), 406, "channel"],
    ["an exchange that is not there", () => publish(1, "nope", "q", "x"), 404, "channel"],
    ["an unknown delivery tag", () => bytesOf((to) => c.writeBasicAck(to, 1, 9, false)), 406, "channel"],
    [
      "a queue that is not there",
      () => bytesOf((to) => c.writeBasicGet(to, 1, "nope", true)),
      404,
      "channel",
    ],
    [
      "no queue declared and none named",
      () => bytesOf((to) => c.writeBasicGet(to, 2, "", true)),
      404,
      "channel",
    ],
    [
      "a malformed table",
      () => method(1, 0x0032000a, 0, 0, 1, 0x71, 0, 0, 0, 0, 4, 1, 0x61, 0x5a, 0),
      502,
      "connection",
    ],
  ];

  it.each(cases)("%s", async (_, bytes, code, reach) => {
    await bench.ready();
    bench.write((to) => c.writeChannelOpen(to, 2));
    bench.send(bytes());
    const last = bench.frames.seen.at(-1);
    expect([last?.what, last?.args["replyCode"]]).toEqual([`${reach}.close`, code]);
    // The other channel, or nothing but the farewell, goes on.
    if (reach === "channel") {
      const other = last?.channel === 1 ? 2 : 1;
      expect(bench.write((to) => c.writeBasicQos(to, other, 0, 1, false))).toEqual(["basic.qos_ok"]);
    } else {
      expect(bench.how).toBeNull();
      bench.send(bytesOf((to) => c.writeBasicQos(to, 2, 0, 1, false)));
      expect(bench.frames.seen.at(-1)).toBe(last);
      bench.ticks(5_500);
      expect(bench.how).toBe("destroy");
    }
  });

  it("names the method that was wrong", async () => {
    await bench.ready();
    bench.write((to) => c.writeBasicAck(to, 1, 9, false));
    expect(bench.last()).toEqual({
      replyCode: 406,
      replyText: "PRECONDITION_FAILED - unknown delivery tag 9",
      classId: 60,
      methodId: 80,
    });
  });

  it("ends at once when the close is agreed on", async () => {
    await bench.ready();
    bench.send(method(1, 0x003c00ff));
    bench.write((to) => c.writeConnectionCloseOk(to, 0));
    expect(bench.how).toBe("end");
  });

  it("goes on with a channel of the same number once its close is agreed on", async () => {
    await bench.ready();
    expect(bench.send(publish(1, "nope", "", "x"))).toEqual(["channel.close"]);
    expect(bench.send(publish(1, "", "q", "ignored"))).toEqual([]);
    bench.write((to) => c.writeChannelCloseOk(to, 1));
    expect(bench.write((to) => c.writeChannelOpen(to, 1))).toEqual(["channel.open_ok"]);
    bench.write((to) => c.writeBasicGet(to, 1, "q", true));
    expect(bench.frames.names().at(-1)).toBe("basic.get_empty");
  });

  it("refuses more channels than were negotiated", async () => {
    await bench.login({ channelMax: 2 });
    bench.write((to) => c.writeChannelOpen(to, 1));
    expect(bench.write((to) => c.writeChannelOpen(to, 3))).toEqual(["connection.close"]);
    expect(bench.last()["replyCode"]).toBe(530);
  });
});

describe("an open connection", () => {
  it("answers a close, and one more close, and then lets go", async () => {
    await bench.ready();
    const close = bytesOf((to) => c.writeConnectionClose(to, 0, 200, "bye", 0, 0));
    expect(bench.send(close)).toEqual(["connection.close_ok"]);
    expect(bench.send(close)).toEqual(["connection.close_ok"]);
    expect(bench.how).toBeNull();
    bench.ticks(500);
    expect(bench.how).toBe("end");
  });

  it("answers update-secret, flow and access.request", async () => {
    await bench.ready();
    expect(bench.write((to) => c.writeConnectionUpdateSecret(to, 0, Buffer.from("x"), "why"))).toEqual([
      "connection.update_secret_ok",
    ]);
    expect(bench.write((to) => c.writeChannelFlow(to, 1, true))).toEqual(["channel.flow_ok"]);
    expect(bench.write((to) => c.writeAccessRequest(to, 1, "/data", false, false, true, true, true))).toEqual(
      ["access.request_ok"],
    );
  });

  it("answers nothing before the commit, and then in order", async () => {
    await bench.ready();
    bench.write((to) => c.writeConfirmSelect(to, 1, false));
    const from = bench.frames.seen.length;
    bench.connection.receive(publish(1, "", "q", "a"));
    bench.connection.receive(publish(1, "", "q", "b"));
    bench.connection.receive(
      bytesOf((to) => c.writeBasicConsume(to, 1, "q", "t", false, true, false, false, HeaderTable.empty)),
    );
    bench.connection.receive(publish(1, "nope", "q", "c"));
    expect(bench.frames.seen.length).toBe(from);
    bench.host.drain();
    const names = bench.frames.names().slice(from);
    expect(names.filter((n) => n.startsWith("basic") || n.startsWith("channel"))).toEqual([
      "basic.consume_ok",
      "basic.deliver",
      "basic.deliver",
      "basic.ack",
      "channel.close",
    ]);
    expect(bench.frames.seen.find((f) => f.what === "basic.ack")?.args).toEqual({
      deliveryTag: 2,
      multiple: true,
    });
  });

  it("beats when it has nothing to say, and ends when it hears nothing", async () => {
    await bench.login({ heartbeat: 4 });
    bench.ticks(2_000);
    expect(bench.frames.names()).toContain("heartbeat");
    bench.send(frame(8, 0, new Uint8Array(0)));
    bench.ticks(8_000);
    expect(bench.how).toBeNull();
    bench.ticks(1_500);
    expect(bench.how).toBe("destroy");
    expect(bench.logged).toContain("cut: missed heartbeats from client");
  });

  it("does without heartbeats where the client wants none", async () => {
    await bench.login({ heartbeat: 0 });
    bench.ticks(200_000);
    expect(bench.how).toBeNull();
    expect(bench.frames.names()).not.toContain("heartbeat");
  });

  it("closes when a body does not arrive", async () => {
    await bench.ready();
    bench.send(publish(1, "", "q", "x".repeat(10)).subarray(0, -5));
    bench.ticks(59_000);
    expect(bench.frames.names()).not.toContain("connection.close");
    bench.ticks(3_000);
    bench.host.drain();
    expect(bench.last()["replyCode"]).toBe(320);
  });

  it("cuts a peer that does not read", async () => {
    await bench.ready();
    bench.waiting = 10;
    bench.ticks(299_000);
    expect(bench.how).toBeNull();
    bench.ticks(2_000);
    expect(bench.how).toBe("destroy");
  });

  it("bounds what is unfinished", async () => {
    const small = new Bench({ unfinishedBytes: 1000 });
    await small.ready();
    const half = bytesOf((to) => {
      c.writeBasicPublish(to, 1, "", "q", false, false);
      to.content(1, {}, Buffer.alloc(5000), 1008);
    });
    small.send(half.subarray(0, half.length - 1500));
    expect(small.last()).toMatchObject({ replyCode: 506 });
  });

  it("gives a slow consumer no more than it takes", async () => {
    await bench.ready();
    for (let i = 0; i < 3000; i++) bench.connection.receive(publish(1, "", "q", "x"));
    bench.host.drain();
    bench.waiting = 2 * 1024 * 1024;
    bench.write((to) => c.writeBasicConsume(to, 1, "q", "t", false, true, false, false, HeaderTable.empty));
    const delivered = () => bench.frames.names().filter((n) => n === "basic.deliver").length;
    const first = delivered();
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThanOrEqual(1024);
    await Promise.resolve();
    bench.host.drain();
    expect(delivered()).toBe(first);
    bench.waiting = 0;
    for (let i = 0; i < 300; i++) {
      bench.connection.drained();
      await Promise.resolve();
      bench.host.drain();
    }
    expect(delivered()).toBe(3000);
  });

  it("reads no more requests from a peer that reads no answers", async () => {
    await bench.ready();
    bench.waiting = 5 * 1024 * 1024;
    bench.write((to) => c.writeBasicGet(to, 1, "q", true));
    expect(bench.paused).toBe(true);
    bench.waiting = 0;
    bench.connection.drained();
    expect(bench.paused).toBe(false);
  });

  it("holds a publisher while there is an alarm, and says so", async () => {
    await bench.ready();
    bench.connection.alarm(["memory"]);
    expect(bench.paused).toBe(false);
    bench.send(publish(1, "", "q", "x"));
    bench.connection.alarm(["memory"]);
    bench.host.drain();
    expect(bench.paused).toBe(true);
    expect(bench.last()).toEqual({ reason: "low on memory" });
    bench.connection.alarm([]);
    bench.host.drain();
    expect(bench.paused).toBe(false);
    expect(bench.frames.names().at(-1)).toBe("connection.unblocked");
  });

  it("hands each message its own properties on, also where one list follows its like", async () => {
    await bench.ready();
    const sent: string[] = [];
    for (const messageId of ["a", "a", "b", "b", "x".repeat(600), "x".repeat(599), "a"]) {
      const properties = {
        messageId: messageId.slice(0, 255),
        headers: HeaderTable.fromObject({ id: messageId }),
      };
      const bytes = publish(1, "", "q", "", properties);
      bench.send(bytes);
      sent.push(bytes.subarray(bytes.indexOf(0xce) + 8, -1).toString("hex"));
      bench.write((to) => c.writeBasicGet(to, 1, "q", true));
      const header = bench.frames.seen.findLast((one) => one.what === "header");
      expect(Buffer.from(header?.payload ?? []).toString("hex")).toBe(sent.at(-1));
    }
    expect(new Set(sent).size).toBe(4);
    // One that cannot be read is refused, however like the last one it is.
    const broken = publish(1, "", "q", "", { messageId: "a" });
    broken[broken.length - 3] = 9;
    expect(bench.send(broken)).toEqual(["connection.close"]);
  });

  it("sends a direct answer of a transaction at its commit, and never after a rollback", async () => {
    await bench.ready();
    bench.write((to) => c.writeChannelOpen(to, 2));
    const from = "amq.rabbitmq.reply-to";
    bench.write((to) => c.writeBasicConsume(to, 1, from, "t", false, true, false, false, HeaderTable.empty));
    bench.send(publish(1, "", "q", "ask", { replyTo: from }));
    bench.write((to) => c.writeBasicGet(to, 2, "q", true));
    const header = Buffer.from(bench.frames.seen.findLast((one) => one.what === "header")?.payload ?? []);
    const address = /amq\.rabbitmq\.reply-to\.name-\d+/.exec(header.toString("latin1"))?.[0] as string;
    bench.write((to) => c.writeTxSelect(to, 2));
    expect(bench.send(publish(2, "", address, "no"))).toEqual([]);
    expect(bench.write((to) => c.writeTxRollback(to, 2))).toEqual(["tx.rollback_ok"]);
    expect(bench.send(publish(2, "", address, "yes"))).toEqual([]);
    const after = bench.write((to) => c.writeTxCommit(to, 2));
    expect(after.toSorted()).toEqual(["basic.deliver", "body", "header", "tx.commit_ok"]);
    const body = bench.frames.seen.findLast((one) => one.what === "body");
    expect([body?.channel, Buffer.from(body?.payload ?? []).toString()]).toEqual([1, "yes"]);
    expect(bench.write((to) => c.writeTxCommit(to, 2))).toEqual(["tx.commit_ok"]);
  });

  it("closes only the channel whose command finds no room on the disk, with 506", async () => {
    await bench.ready();
    bench.write((to) => c.writeChannelOpen(to, 2));
    const vhost = bench.host.vhost("/");
    const apply = vhost?.apply.bind(vhost);
    const full = (command: Command): Reply => {
      if (command.type === "publish" || command.type === "queue-declare") {
        throw new DloError("DISK_FULL", "no room to write /somewhere/dlo.db: nothing new is accepted");
      }
      return apply?.(command) as Reply;
    };
    Object.assign(vhost ?? {}, { apply: full });
    expect(bench.send(publish(1, "", "q", "x"))).toEqual(["channel.close"]);
    expect(bench.last()).toMatchObject({
      replyCode: 506,
      replyText: "RESOURCE_ERROR - low on disk: nothing new is accepted",
      classId: 60,
      methodId: 40,
    });
    expect(bench.write((to) => c.writeBasicGet(to, 2, "q", true))).toEqual(["basic.get_empty"]);
    bench.write((to) => c.writeChannelCloseOk(to, 1));
    Object.assign(vhost ?? {}, { apply });
    expect(bench.write((to) => c.writeChannelOpen(to, 1))).toEqual(["channel.open_ok"]);
    expect(bench.logged).toEqual([]);
  });

  it("returns unacked messages when the peer is gone", async () => {
    await bench.ready();
    bench.send(publish(1, "", "q", "x"));
    bench.write((to) => c.writeBasicGet(to, 1, "q", false));
    bench.connection.gone();
    const vhost = bench.host.vhost("/");
    vhost?.apply({ type: "open-channel", connection: 900, channel: 901 });
    expect(vhost?.apply({ type: "get", channel: 901, queue: "q" })).toMatchObject({
      type: "got",
      redelivered: true,
    });
  });
});

describe("the byte stream", () => {
  /** One conversation with every kind of frame, as bytes. */
  const conversation = (): Buffer =>
    Buffer.concat([
      bytesOf((to) => c.writeChannelOpen(to, 1)),
      bytesOf((to) =>
        c.writeQueueDeclare(
          to,
          1,
          "q",
          false,
          false,
          false,
          false,
          false,
          HeaderTable.fromObject({ "x-message-ttl": 60000 }),
        ),
      ),
      bytesOf((to) => c.writeConfirmSelect(to, 1, false)),
      publish(1, "", "q", "hello", { messageId: "1", headers: HeaderTable.fromObject({ a: 1n, b: [true] }) }),
      frame(8, 0, new Uint8Array(0)),
      publish(1, "", "q", "", {}),
      publish(1, "", "nowhere", "back", {}, true),
      bytesOf((to) => c.writeBasicGet(to, 1, "q", false)),
      bytesOf((to) => c.writeBasicNack(to, 1, 1, false, true)),
      bytesOf((to) => c.writeBasicGet(to, 1, "q", true)),
      bytesOf((to) => c.writeChannelClose(to, 1, 200, "bye", 0, 0)),
      bytesOf((to) => c.writeConnectionClose(to, 0, 200, "bye", 0, 0)),
    ]);

  it("means the same wherever it is cut in two, and byte by byte", async () => {
    const bytes = conversation();
    const run = async (cuts: number[]) => {
      const one = new Bench();
      await one.login();
      const from = one.frames.seen.length;
      let at = 0;
      for (const cut of [...cuts, bytes.length]) {
        one.connection.receive(bytes.subarray(at, cut));
        one.host.drain();
        at = cut;
      }
      one.ticks(500);
      one.host.close();
      // Confirms may be gathered differently; what they cover must not differ.
      const frames = one.frames.seen.slice(from).filter((f) => f.what !== "basic.ack");
      return {
        frames: frames.map((f) => [f.channel, f.what, Buffer.from(f.payload).toString("hex")]),
        how: one.how,
      };
    };
    const whole = await run([]);
    expect(whole.how).toBe("end");
    expect(whole.frames.map(([, what]) => what)).toContain("basic.return");
    for (let cut = 1; cut < bytes.length; cut++) expect(await run([cut]), `cut at ${cut}`).toEqual(whole);
    expect(await run(Array.from(bytes, (_, i) => i))).toEqual(whole);
  });
});

describe("limits", () => {
  it.each([
    [{ closeMs: 2_592_000_000 }, /^limits\.closeMs is 2592000000; expected a number from 0 to 2147483647/],
    [{ ackTimeoutMs: "30m" as never }, /^limits\.ackTimeoutMs is string; expected a number of at least 0/],
    [{ channels: Number.NaN }, /^limits\.channels is NaN/],
  ])("%j are refused by name", (given, message) => {
    expect(() => limitsFor("4.x", given)).toThrow(message);
  });

  it("that are not said keep their default, and none is too long for what is looked at now and then", () => {
    const days = 30 * 86_400_000;
    expect(limitsFor("4.x", { closeMs: undefined as never, ackTimeoutMs: days })).toEqual({
      ...limitsFor("4.x"),
      ackTimeoutMs: days,
    });
  });
});
