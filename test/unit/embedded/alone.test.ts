import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  Consumer,
  DLQConsumer,
  type EmbeddedBroker,
  type EmbeddedQueue,
  openBroker,
} from "../../../src/index.ts";

let broker: EmbeddedBroker;
beforeEach(() => {
  broker = openBroker(":memory:");
});
afterEach(() => broker.close());

/** A queue of `ids`, the first `started` of which were running in a process that died. */
async function afterACrash(ids: readonly string[], started: number): Promise<EmbeddedQueue> {
  const dead = broker.queue("q");
  for (const id of ids) await dead.send(id, id);
  for (const { id, receipt } of dead.receiveMany(started)) await dead.begin(id, receipt);
  dead.close();
  return broker.queue("q");
}

const soon = (): Promise<void> => new Promise((done) => setTimeout(done, 20));

describe("suspects of an embedded queue", () => {
  it("run alone under several processOne at once, and everything is handled", async () => {
    const queue = await afterACrash(["a", "b", "c", "d", "e", "f"], 3);
    const running = new Set<string>();
    const company = new Map<string, number>();
    const handled: string[] = [];
    const consumer = new DLQConsumer(queue, broker.deadLetters("dead"), async ({ id }) => {
      running.add(id);
      for (const one of running) company.set(one, Math.max(company.get(one) ?? 0, running.size));
      await soon();
      running.delete(id);
      handled.push(id);
    });
    // As many workers as messages, each for as long as anything is left; those that are answered null wait their turn.
    const work = async (): Promise<void> => {
      while (queue.pending() > 0)
        if ((await consumer.processOne()) === null && queue.pending() > 0)
          await queue.ready(AbortSignal.timeout(100));
    };
    await Promise.all(Array.from({ length: 6 }, work));
    expect(handled.toSorted()).toEqual(["a", "b", "c", "d", "e", "f"]);
    expect(["a", "b", "c"].map((id) => company.get(id))).toEqual([1, 1, 1]);
    // The rest may run side by side again.
    expect(Math.max(...["d", "e", "f"].map((id) => company.get(id) ?? 0))).toBe(3);
  });

  it("wake who waits for them as soon as they may be had, and not before", async () => {
    const queue = await afterACrash(["a", "b", "c"], 2);
    const first = queue.receive();
    expect([first?.id, first?.suspect, queue.receive()]).toEqual(["a", true, null]);
    let woken = false;
    const ready = queue.ready(AbortSignal.timeout(5000)).then(() => {
      woken = true;
    });
    await broker.queue("other").send("turns go by");
    await soon();
    expect(woken).toBe(false);
    await queue.ack("a", first?.receipt);
    await ready;
    expect(queue.receive()).toMatchObject({ id: "b", suspect: true });
  });

  it("are left to another process where one is still busy", async () => {
    const busy = await afterACrash(["a", "b", "c"], 1);
    const a = busy.receive();
    await busy.retry("a", a?.receipt);
    const held = busy.receive();
    expect(held?.id).toBe("b");
    const dead = broker.queue("q");
    const c = dead.receive();
    await dead.begin("c", c?.receipt);
    dead.close();
    // "a" is ready as well; but who holds "b" is to drain, so that the suspect's turn comes.
    expect(busy.receive()).toBe(null);
    const idle = broker.queue("q");
    expect(idle.receive()).toMatchObject({ id: "c", suspect: true });
    // Out with somebody else, it is in nobody's way.
    expect(busy.receive()?.id).toBe("a");
  });

  it.each(["idle", "stopped"] as const)("do not make a consumer spin (until %s)", async (until) => {
    const queue = await afterACrash(["a", "b", "c", "d", "e"], 2);
    let looks = 0;
    const receive = queue.receive.bind(queue);
    queue.receive = () => {
      looks++;
      return receive();
    };
    const handled: string[] = [];
    const consumer = new Consumer({
      queue,
      deadLetters: broker.deadLetters("dead"),
      concurrency: 4,
      warmUpMs: 0,
      handler: async ({ id }) => {
        await new Promise((done) => setTimeout(done, 100));
        handled.push(id);
        if (handled.length === 5 && until === "stopped") void consumer.stop();
      },
    });
    await consumer.run({ until });
    expect(handled.toSorted()).toEqual(["a", "b", "c", "d", "e"]);
    expect(looks).toBeLessThan(30);
  });

  it("and all else that comes back without anything being written wake who waits", async () => {
    const queue = broker.queue("q");
    const client = broker.host.vhost("/")?.connect({ effect: () => {}, flush: () => {}, ended: () => {} });
    const channel = client?.openChannel() as number;
    const transient = { properties: {}, body: Buffer.from("gone with the process") };
    client?.submit({ type: "publish", channel, exchange: "", routingKey: "q", ...transient });
    expect(client?.submit({ type: "get", channel, queue: "q" }).type).toBe("got");
    let woken = false;
    const ready = queue.ready(AbortSignal.timeout(5000)).then(() => {
      woken = true;
    });
    await soon();
    expect(woken).toBe(false);
    client?.close();
    await Promise.race([ready, soon()]);
    expect(woken).toBe(true);
  });
});
