// Random and mutated bytes against connections without sockets. Shared by the test (seconds) and by
// tools/fuzz-amqp.ts's longer runs.
import { Connection } from "../../../src/amqp/connection.ts";
import { limitsFor } from "../../../src/amqp/limits.ts";
import { ReplyTo } from "../../../src/amqp/reply-to.ts";
import { Users } from "../../../src/amqp/users.ts";
import { Reader } from "../../../src/amqp/wire.ts";
import { HeaderTable } from "../../../src/broker/index.ts";
import * as c from "../../support/amqp-methods.ts";
import { bytesOf, Frames, open, PROTOCOL, publish, startOk, tuneOk } from "../../support/amqp-wire.ts";
import type { MemoryHost } from "../../support/memory-host.ts";

/** A small generator of our own (mulberry32), so that a failure can be named by its seed. */
export function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const table = HeaderTable.fromObject({ "x-message-ttl": 1000, a: [1, "b", { c: true }] });
/** Good frames to mutate: one of each kind a client sends. */
const SEEDS: readonly Buffer[] = [
  bytesOf((to) => c.writeChannelOpen(to, 1)),
  bytesOf((to) => c.writeChannelOpen(to, 2)),
  bytesOf((to) => c.writeQueueDeclare(to, 1, "q", false, false, false, false, false, HeaderTable.empty)),
  bytesOf((to) => c.writeQueueDeclare(to, 1, "p", false, true, false, false, false, table)),
  bytesOf((to) => c.writeExchangeDeclare(to, 1, "x", "topic", false, false, false, false, false, table)),
  bytesOf((to) => c.writeQueueBind(to, 1, "q", "x", "a.#", false, table)),
  bytesOf((to) => c.writeConfirmSelect(to, 1, false)),
  bytesOf((to) => c.writeBasicQos(to, 1, 0, 3, false)),
  bytesOf((to) => c.writeBasicConsume(to, 1, "q", "t", false, false, false, false, HeaderTable.empty)),
  bytesOf((to) => c.writeBasicGet(to, 1, "q", false)),
  bytesOf((to) => c.writeBasicAck(to, 1, 1, true)),
  bytesOf((to) => c.writeBasicNack(to, 1, 0, true, true)),
  bytesOf((to) => c.writeTxSelect(to, 2)),
  bytesOf((to) => c.writeTxCommit(to, 2)),
  publish(1, "", "q", "hello", { headers: table, messageId: "m", expiration: "500" }),
  publish(1, "x", "a.b", "x".repeat(300), { deliveryMode: 2, timestamp: 1 }, true),
  publish(2, "", "nowhere", "", {}, true),
  bytesOf((to) => c.writeChannelClose(to, 1, 200, "bye", 0, 0)),
  Buffer.from("0800000000000000ce".slice(2), "hex"),
];

function mutated(bytes: Buffer, rand: (below: number) => number): Buffer {
  const out = Buffer.from(bytes);
  switch (rand(6)) {
    case 0:
      return out.subarray(0, rand(out.length + 1));
    case 1:
      return Buffer.concat([out, Buffer.from(Array.from({ length: rand(20) }, () => rand(256)))]);
    case 2:
      return Buffer.from(Array.from({ length: rand(60) }, () => rand(256)));
    default:
      for (let i = rand(4); i >= 0 && out.length > 0; i--) out[rand(out.length)] = rand(256);
      return out;
  }
}

export interface Outcome {
  readonly seed: number;
  /** open, closing or ended, and with which code. */
  readonly state: string;
  readonly code: number;
}

const CODES = new Set([311, 312, 313, 320, 402, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 530, 540]);

/**
 * One connection, fed with good and bad frames in random order and random pieces. Throws when the connection
 * throws, answers an error it must not (541 is a defect), or writes something that is no frame.
 */
export async function fuzzOne(seed: number, host: MemoryHost, loggedIn: boolean): Promise<Outcome> {
  const rand = random(seed);
  const frames = new Frames();
  let cut = false;
  const connection = new Connection(
    {
      host,
      users: new Users(),
      shared: {
        compat: "4.x",
        limits: limitsFor("4.x"),
        reader: new Reader(),
        replyTo: new ReplyTo(),
        unfinished: 0,
        randomName: () => String(host.nextId()),
      },
      refusal: () => null,
      now: () => 1,
      log: (text, fields) => {
        if (text.includes("internal error"))
          throw new Error(`seed ${seed}: ${text} ${JSON.stringify(fields)}`);
      },
    },
    {
      remoteAddress: "127.0.0.1",
      waiting: 0,
      write: (pieces) => {
        for (const piece of pieces) frames.push(piece);
      },
      pause: () => {},
      resume: () => {},
      end: () => {
        cut = true;
      },
      destroy: () => {
        cut = true;
      },
    },
  );
  const feed = (bytes: Buffer) => {
    for (let at = 0; at < bytes.length; ) {
      const end = Math.min(bytes.length, at + 1 + rand(bytes.length));
      connection.receive(bytes.subarray(at, end));
      at = end;
    }
    host.drain();
  };
  const greeting = [PROTOCOL, startOk(), tuneOk(), open()];
  for (const [step, good] of greeting.entries()) {
    feed(loggedIn || rand(3) > 0 ? good : mutated(good, rand));
    if (step === 1) await new Promise((next) => setImmediate(next));
    if (cut) break;
  }
  if (loggedIn) feed(Buffer.concat(SEEDS.slice(0, 4)));
  for (let i = 0; i < 30 && !cut; i++) {
    const good = SEEDS[rand(SEEDS.length)] as Buffer;
    feed(rand(3) > 0 ? good : mutated(good, rand));
  }
  connection.gone();
  host.drain();
  const close = frames.seen.filter((frame) => frame.what.endsWith(".close")).at(-1);
  const code = Number(close?.args["replyCode"] ?? 0);
  if (close !== undefined && !CODES.has(code)) {
    throw new Error(`seed ${seed}: closed with ${code} ${close.args["replyText"]}`);
  }
  return { seed, state: connection.state, code };
}
