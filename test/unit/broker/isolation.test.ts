/**
 * Pills and innocents on an isolating queue, enumerated: every window, place, limit, number of channels, of processes
 * and way of working through what one holds. A process dies of a pill and comes back with a new connection.
 */
import { describe, expect, it } from "vitest";
import type { Content } from "../../../src/broker/index.ts";
import { dlx, quorum, text, World } from "./world.ts";

type Order = "oldest first" | "newest first" | "all at once";

interface Case {
  readonly window: number;
  readonly limit: number;
  readonly channels: number;
  readonly processes: number;
  readonly order: Order;
  readonly by: "consume" | "get";
  readonly pills: readonly number[];
}

interface Handed {
  readonly channel: number;
  readonly deliveryTag: number;
  readonly content: Content;
}

interface Process {
  connection: number;
  channels: number[];
}

const MESSAGES = 6;

/** One case, until nobody has anything to do any more. */
class Run {
  readonly world = new World();
  readonly starts = new Map<string, number>();
  readonly delivered = new Map<string, number>();
  readonly handled: string[] = [];
  /** Whose first delivery was in company when its process died. */
  readonly inCompany = new Set<string>();
  readonly #case: Case;
  readonly #held = new Map<number, Handed[]>();
  #seen = 0;
  #ids = 100;

  constructor(given: Case) {
    this.#case = given;
    const { world } = this;
    world.queue("d");
    world.queue("q", quorum(dlx("d", { "x-delivery-limit": given.limit, "x-dlo-isolate-suspects": true })));
    for (let i = 0; i < MESSAGES; i++) world.send("q", given.pills.includes(i) ? `pill${i}` : `m${i}`);
    const processes = Array.from({ length: given.processes }, () => this.#begin());
    for (let idle = 0, turn = 0; idle < processes.length; turn++) {
      const at = turn % processes.length;
      const died = this.#work(processes[at] as Process);
      if (died === true) processes[at] = this.#begin();
      idle = died === null ? idle + 1 : 0;
      if (turn > 1000) throw new Error(`goes round for ever: ${JSON.stringify(given)}`);
    }
  }

  #begin(): Process {
    const { world } = this;
    const connection = ++this.#ids;
    const channels = Array.from({ length: this.#case.channels }, () => world.open(++this.#ids, connection));
    for (const channel of channels) {
      world.qos(this.#case.window, channel);
      if (this.#case.by === "consume") world.consume("q", channel);
    }
    return { connection, channels };
  }

  #look(channels: readonly number[]): void {
    for (const d of this.world.deliveries.slice(this.#seen)) this.#take(d);
    this.#seen = this.world.deliveries.length;
    if (this.#case.by === "consume") return;
    for (let round = 0; round < this.#case.window; round++) {
      for (const channel of channels) {
        if ((this.#held.get(channel)?.length ?? 0) >= this.#case.window) continue;
        const got = this.world.do({ type: "get", channel, queue: "q" });
        if (got.type === "got") this.#take({ channel, ...got });
      }
    }
  }

  #take(handed: Handed): void {
    this.#held.set(handed.channel, [...(this.#held.get(handed.channel) ?? []), handed]);
    count(this.delivered, text(handed.content));
  }

  /** One step of a process: true: it died; null: it holds nothing. */
  #work({ connection, channels }: Process): boolean | null {
    this.#look(channels);
    const { order } = this.#case;
    const held = channels.flatMap((channel) => this.#held.get(channel) ?? []);
    if (held.length === 0) return null;
    const next = order === "all at once" ? held : held.slice(...(order === "oldest first" ? [0, 1] : [-1]));
    for (const { content } of next) count(this.starts, text(content));
    if (next.some(({ content }) => text(content).startsWith("pill"))) {
      if (held.length > 1) for (const { content } of held) this.inCompany.add(text(content));
      for (const channel of channels) this.#held.delete(channel);
      this.world.crash(connection);
      return true;
    }
    for (const { channel, deliveryTag, content } of next) {
      this.#held.set(
        channel,
        (this.#held.get(channel) ?? []).filter((d) => d.deliveryTag !== deliveryTag),
      );
      this.handled.push(text(content));
      this.world.ack(deliveryTag, channel);
    }
    return false;
  }
}

const count = (counts: Map<string, number>, name: string): void =>
  void counts.set(name, (counts.get(name) ?? 0) + 1);

function* cases(): Generator<Case> {
  const pairs = Array.from({ length: MESSAGES }, (_, i) => [i, (i + 1) % MESSAGES]);
  for (const pills of [...pairs.map(([i]) => [i as number]), ...pairs])
    for (let window = 1; window <= 4; window++)
      for (let limit = 0; limit <= 3; limit++)
        for (const channels of [1, 2])
          for (const processes of [1, 2])
            for (const order of ["oldest first", "newest first", "all at once"] as const)
              for (const by of ["consume", "get"] as const)
                yield { window, limit, channels, processes, order, by, pills };
}

describe("pills on a queue that isolates suspects", () => {
  it("are started limit + 1 times, and nobody else dies, in every small case", () => {
    let tried = 0;
    for (const given of cases()) {
      tried++;
      const { world, delivered, starts, handled, inCompany } = new Run(given);
      const where = JSON.stringify(given);
      const pills = given.pills.map((i) => `pill${i}`);
      expect(world.waiting("d").toSorted(), where).toEqual(pills.toSorted());
      expect(handled.length, where).toBe(MESSAGES - pills.length);
      expect(new Set(handled).size, where).toBe(handled.length);
      expect(world.broker.queueInfo("q"), where).toMatchObject({ ready: 0, unacked: 0 });
      for (const pill of pills) {
        // A limit of 0 is one start; but a crash in company must not kill, so there a pill has a second, alone.
        const most = given.limit === 0 && inCompany.has(pill) ? 2 : given.limit + 1;
        const what = `${pill} of ${where}`;
        expect(delivered.get(pill), what).toBe(most);
        // Beside another pill it may have been delivered, and not reached when that one killed.
        expect(starts.get(pill), what).toBeLessThanOrEqual(most);
        if (pills.length === 1) expect(starts.get(pill), what).toBe(most);
      }
    }
    expect(tried).toBe(12 * 4 * 4 * 2 * 2 * 3 * 2);
  });

  it("have all their crashes in the count, once it is clear whose they were; the broker's own end is nobody's", () => {
    const world = new World();
    world.queue("q", quorum({ "x-dlo-isolate-suspects": true }));
    world.send("q", "pill", "m");
    const count = (): number | undefined =>
      world.broker.peek("q", 9).find(({ content }) => text(content) === "pill")?.state.deliveryCount;
    const die = (channel: number): void => {
      world.open(channel);
      world.consume("q", channel);
      world.crash(channel);
    };
    die(2);
    expect(count()).toBe(0);
    world.open(3);
    world.consume("q", 3);
    world.restart();
    expect(count()).toBe(0);
    die(4);
    expect(count()).toBe(2);
    for (let channel = 5; count() === 2; channel++) die(channel);
    expect(count()).toBe(3);
  });

  it("given back by a client that lives are as they were before: another crash in company counts for nobody", () => {
    const world = new World();
    world.queue("q", { "x-dlo-isolate-suspects": true });
    world.send("q", "a", "b");
    world.open(2);
    world.consume("q", 2);
    world.crash(2);
    const a = world.get("q");
    expect(a.state).toMatchObject({ suspect: true, inCompany: true });
    world.reject(a.deliveryTag, true);
    expect(world.broker.peek("q", 9).find((m) => text(m.content) === "a")?.state).toMatchObject({
      suspect: false,
      inCompany: false,
    });
  });
});
