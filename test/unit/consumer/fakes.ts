/** The contract's fakes as its text describes them, and nothing more: plain classes without any optional method. */
import type { DeadLetter } from "../../../src/index.ts";

export interface FakeMessage {
  id: string;
  body: unknown;
  receiveCount: number;
  firstReceivedAt: number;
}

export class FakeClock {
  time = 1_000;
  now(): number {
    return this.time;
  }
}

/** Notes every call with its exact arguments. */
export class FakeQueue {
  readonly calls: unknown[][] = [];
  readonly waiting: FakeMessage[] = [];
  readonly flying = new Map<string, FakeMessage>();
  readonly clock: FakeClock;
  constructor(clock: FakeClock) {
    this.clock = clock;
  }
  send(...args: unknown[]): void {
    this.calls.push(["send", ...args]);
    const { id, body } = args[0] as { id: string; body: unknown };
    this.waiting.push({ id, body, receiveCount: 0, firstReceivedAt: 0 });
  }
  receive(): FakeMessage | null {
    const message = this.waiting.shift();
    if (!message) return null;
    message.receiveCount++;
    if (message.receiveCount === 1) message.firstReceivedAt = this.clock.now();
    this.flying.set(message.id, message);
    return { ...message };
  }
  ack(...args: unknown[]): void {
    this.calls.push(["ack", ...args]);
    if (!this.flying.delete(args[0] as string)) throw new Error("ack of what is not in flight");
  }
  retry(...args: unknown[]): void {
    this.calls.push(["retry", ...args]);
    const message = this.flying.get(args[0] as string);
    if (!message) throw new Error("retry of what is not in flight");
    this.flying.delete(message.id);
    this.waiting.push(message);
  }
  recover(): void {
    this.waiting.unshift(...this.flying.values());
    this.flying.clear();
  }
  pending(): number {
    return this.waiting.length + this.flying.size;
  }
}

export class FakeDLQ {
  readonly calls: unknown[][] = [];
  letters: DeadLetter[] = [];
  put(...args: unknown[]): void {
    this.calls.push(["put", ...args]);
    this.letters.push(args[0] as DeadLetter);
  }
  has(...args: unknown[]): boolean {
    this.calls.push(["has", ...args]);
    return this.letters.some((entry) => entry.id === args[0]);
  }
  remove(...args: unknown[]): void {
    this.calls.push(["remove", ...args]);
    this.letters = this.letters.filter((entry) => entry.id !== args[0]);
  }
  list(): DeadLetter[] {
    return this.letters;
  }
}
