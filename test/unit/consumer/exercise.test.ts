// biome-ignore-all lint/suspicious/noExplicitAny: the fakes of somebody who writes no types
/**
 * The contract's exercise as somebody else would write it: classes of their own in plain JavaScript, ids made by
 * `send(body)`, error classes of their own with the contract's names.
 */
import { describe, expect, it } from "vitest";
import * as office from "../../../src/index.ts";

class Clock {
  t = 0;
  now(): number {
    return this.t;
  }
}

class MainQueue {
  ready: any[] = [];
  inFlight = new Map<string, any>();
  n = 0;
  clock: Clock;
  constructor(clock: Clock) {
    this.clock = clock;
  }
  send(body: any, id: string = `m${++this.n}`): string {
    this.ready.push({ id, body, receiveCount: 0, firstReceivedAt: null });
    return id;
  }
  receive(): any {
    const message = this.ready.shift();
    if (message === undefined) return null;
    message.receiveCount += 1;
    if (message.firstReceivedAt === null) message.firstReceivedAt = this.clock.now();
    this.inFlight.set(message.id, message);
    return message;
  }
  ack(id: string): void {
    if (!this.inFlight.delete(id)) throw new Error(`not in flight: ${id}`);
  }
  retry(id: string): void {
    const message = this.inFlight.get(id);
    this.ack(id);
    this.ready.push(message);
  }
  recover(): void {
    this.ready.unshift(...this.inFlight.values());
    this.inFlight.clear();
  }
  pending(): number {
    return this.ready.length + this.inFlight.size;
  }
}

class Dlq {
  entries: any = [];
  put(entry: any): void {
    this.entries.push(entry);
  }
  has(id: string): boolean {
    return this.entries.some((entry: any) => entry.id === id);
  }
  remove(id: string): void {
    this.entries = this.entries.filter((entry: any) => entry.id !== id);
  }
}

class ListedDlq extends Dlq {
  list(): any {
    return [...this.entries];
  }
}

class MapDlq {
  entries: Map<string, any> = new Map();
  put(entry: any): void {
    this.entries.set(entry.id, entry);
  }
  has(id: string): boolean {
    return this.entries.has(id);
  }
  remove(id: string): void {
    this.entries.delete(id);
  }
}

const named = (name: string): (new (message?: string) => Error) =>
  class extends Error {
    constructor(message?: string) {
      super(message);
      this.name = name;
    }
  };
const bare = {
  Crash: class Crash extends Error {},
  PermanentError: class PermanentError extends Error {},
  TransientError: class TransientError extends Error {},
};
const kinds = {
  "the package's own errors": office,
  "look-alikes with a name": {
    Crash: named("Crash"),
    PermanentError: named("PermanentError"),
    TransientError: named("TransientError"),
  },
  "look-alikes that are named by their class only": bare,
};
const stores = { "entries only": Dlq, "list()": ListedDlq, "a map": MapDlq };

for (const [kind, { Crash, PermanentError, TransientError }] of Object.entries(kinds))
  for (const [shape, Store] of Object.entries(stores))
    describe(`with ${kind}, and a store with ${shape}`, () => {
      const text = (name: string, message: string): string =>
        `${kind.includes("class only") ? "Error" : name}: ${message}`;
      const all = (dlq: any): any[] => [...(Array.isArray(dlq.entries) ? dlq.entries : dlq.entries.values())];
      const world = (): any => {
        const clock = new Clock();
        return { clock, queue: new MainQueue(clock), dlq: new Store(), seen: [] as any[] };
      };
      const consumer = (w: any, handler: (message: any) => void, max?: number): any =>
        new office.DLQConsumer(
          w.queue,
          w.dlq,
          (message: any) => {
            w.seen.push({ ...message });
            handler(message);
          },
          w.clock,
          max,
        );

      it("retries twice, over new consumers, and is exhausted with its seven fields", () => {
        const w = world();
        w.clock.t = 10;
        w.queue.send({ n: 1 });
        w.queue.send({ n: 2 });
        const fail = (message: any): void => {
          w.clock.t += 5;
          if (message.body.n === 1) throw new TransientError("slow");
        };
        const results = [1, 2, 3, 4].map(() => consumer(w, fail).processOne());
        expect(results).toEqual(["retry", "ok", "retry", "dead"]);
        expect(all(w.dlq)).toEqual([
          {
            id: "m1",
            body: { n: 1 },
            reason: "exhausted",
            error: text("TransientError", "slow"),
            attempts: 3,
            firstAttemptAt: 10,
            failedAt: 30,
          },
        ]);
        expect([w.queue.pending(), consumer(w, fail).processOne()]).toEqual([0, null]);
      });

      it("is permanent at once; any other error is transient", () => {
        const w = world();
        w.queue.send("bad");
        w.queue.send("odd");
        const c = consumer(w, ({ body }) => {
          if (body === "bad") throw new PermanentError("negative price");
          throw new TypeError("x is not a function");
        });
        expect([c.processOne(), c.processOne(), c.processOne(), c.processOne()]).toEqual([
          "dead",
          "retry",
          "retry",
          "dead",
        ]);
        expect(all(w.dlq).map((e) => [e.id, e.reason, e.error, e.attempts])).toEqual([
          ["m1", "permanent", text("PermanentError", "negative price"), 1],
          ["m2", "exhausted", "TypeError: x is not a function", 3],
        ]);
      });

      it("is poison after as many deaths as it has attempts, without its handler", () => {
        for (const max of [1, 2, 3, 5]) {
          const w = world();
          w.queue.send("pill");
          for (let i = 0; i < max; i++) {
            w.clock.t++;
            expect(() =>
              consumer(
                w,
                () => {
                  throw new Crash("killed");
                },
                max,
              ).processOne(),
            ).toThrow("killed");
            expect([w.queue.inFlight.size, all(w.dlq)]).toEqual([1, []]);
            w.queue.recover();
          }
          expect(consumer(w, () => {}, max).processOne()).toBe("dead");
          expect(w.seen).toHaveLength(max);
          expect(all(w.dlq)).toEqual([
            {
              id: "m1",
              body: "pill",
              reason: "poison",
              error: null,
              attempts: max,
              firstAttemptAt: 1,
              failedAt: max,
            },
          ]);
          expect(w.queue.pending()).toBe(0);
        }
      });

      it("is dead-lettered once when the process dies between put and ack, whatever the reason", () => {
        for (const failure of [new PermanentError("no"), new TransientError("slow")]) {
          const w = world();
          w.queue.send("x");
          const ack = w.queue.ack;
          w.queue.ack = () => {
            throw new Crash("between put and ack");
          };
          const fail = (): void => {
            throw failure;
          };
          expect(() => consumer(w, fail, 1).processOne()).toThrow("between put and ack");
          w.queue.ack = ack;
          w.queue.recover();
          expect(consumer(w, fail, 1).processOne()).toBe("dead");
          expect([all(w.dlq).length, w.seen.length, w.queue.pending()]).toEqual([1, 1, 0]);
        }
      });

      it("counts crashes and failures together", () => {
        const w = world();
        w.queue.send("x");
        const crash = (): void => {
          throw new Crash("dead");
        };
        const fail = (): void => {
          throw new TransientError("slow");
        };
        expect(() => consumer(w, crash).processOne()).toThrow("dead");
        w.queue.recover();
        expect(consumer(w, fail).processOne()).toBe("retry");
        expect(consumer(w, fail).processOne()).toBe("dead");
        expect(all(w.dlq)[0]).toMatchObject({ reason: "exhausted", attempts: 3 });
      });

      it("goes back with its id and its body, some or all, and starts again at one", () => {
        const w = world();
        let broken = true;
        const c = consumer(w, () => {
          if (broken) throw new PermanentError("no");
        });
        for (let n = 1; n <= 3; n++) {
          w.queue.send({ n });
          c.processOne();
        }
        expect(c.replay(["m2", "m2", "nobody"])).toEqual(["m2"]);
        expect(w.dlq.has("m2")).toBe(false);
        broken = false;
        expect(c.processOne()).toBe("ok");
        expect(w.seen.at(-1)).toMatchObject({ id: "m2", body: { n: 2 }, receiveCount: 1 });
        expect(c.replay()).toEqual(["m1", "m3"]);
        expect([c.processOne(), c.processOne(), c.processOne()]).toEqual(["ok", "ok", null]);
        expect(w.seen.slice(-2).map((m: any) => m.body.n)).toEqual([1, 3]);
        expect([all(w.dlq), w.queue.pending()]).toEqual([[], 0]);
      });

      it("can die again after a replay", () => {
        const w = world();
        const c = consumer(w, () => {
          throw new PermanentError("still no");
        });
        w.queue.send("x");
        c.processOne();
        w.clock.t = 99;
        c.replay();
        expect(c.processOne()).toBe("dead");
        expect(all(w.dlq).map((e) => [e.id, e.attempts, e.failedAt])).toEqual([["m1", 1, 99]]);
      });
    });

describe("a replay on a plain queue", () => {
  const sends: [string, (into: unknown[]) => (...args: any[]) => unknown][] = [
    [
      "{ id, body }",
      (into) =>
        ({ id, body }: any) =>
          into.push([id, body]),
    ],
    ["message", (into) => (message: any) => into.push([message.id, message.body])],
    [
      "...args",
      (into) =>
        (...args: any[]) =>
          into.push([args[0].id, args[0].body]),
    ],
    ["body, id", (into) => (body: any, id: any) => into.push([id, body])],
    [
      "body, id = a new one",
      (into) =>
        (body: any, id: any = "new") =>
          into.push([id, body]),
    ],
    ["id, body", (into) => (id: any, body: any) => into.push([id, body])],
    ["messageId, payload", (into) => (messageId: any, payload: any) => into.push([messageId, payload])],
  ];
  it.each(sends)("sends id and body the way its send(%s) takes them", (_how, make) => {
    const into: unknown[] = [];
    const queue = { send: make(into), receive: () => null, ack() {}, retry() {} };
    const dlq = new Dlq();
    dlq.put({ id: "a", body: { n: 1 }, reason: "permanent", error: null, attempts: 1 });
    new office.DLQConsumer(queue, dlq as any, () => {}, { now: () => 1 }).replay();
    expect(into).toEqual([["a", { n: 1 }]]);
  });
});
