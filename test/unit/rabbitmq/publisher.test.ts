import { EventEmitter } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Lane, Link } from "../../../src/engines/rabbitmq/link.ts";
import { Publisher } from "../../../src/engines/rabbitmq/publisher.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A publisher on a channel that confirms when it is told to. */
function world(limitMs: number) {
  const confirms: (() => void)[] = [];
  const channel = Object.assign(new EventEmitter(), {
    publish: (
      _exchange: string,
      _key: string,
      _body: Buffer,
      _options: object,
      done: (error: null) => void,
    ) => void confirms.push(() => done(null)),
    close: async () => {},
  });
  const model = { createConfirmChannel: async () => channel };
  const link = {
    add: (lane: Lane) => lane.linkUp(model as never),
    remove: () => {},
    blocked: null as string | null,
    freeAt: 0,
    closed: false,
    model,
    where: "here",
    options: { logger: { info() {}, warn() {}, error() {} } },
  };
  const publisher = new Publisher(link as unknown as Link, "sending", limitMs);
  const send = (): { state: string } => {
    const seen = { state: "waiting" };
    publisher.publish("", "q", new Uint8Array(1), {}).then(
      () => (seen.state = "sent"),
      (error) => (seen.state = error.code),
    );
    return seen;
  };
  return { link, send, confirms };
}

test("a confirm's time stands still while the broker holds publishers, and begins anew when it lets them go", async () => {
  const { link, send, confirms } = world(1_000);
  const [one, two] = [send(), send()];
  await vi.advanceTimersByTimeAsync(500);
  link.blocked = "low on memory";
  await vi.advanceTimersByTimeAsync(10_000);
  expect([one.state, two.state]).toEqual(["waiting", "waiting"]);
  link.blocked = null;
  link.freeAt = performance.now();
  await vi.advanceTimersByTimeAsync(900);
  expect([one.state, two.state]).toEqual(["waiting", "waiting"]);
  confirms[0]?.();
  await vi.advanceTimersByTimeAsync(200);
  expect([one.state, two.state]).toEqual(["sent", "TIMED_OUT"]);
});

test("a hold that is shorter than the time limit is not counted either", async () => {
  const { link, send, confirms } = world(1_000);
  const one = send();
  await vi.advanceTimersByTimeAsync(100);
  link.blocked = "low on disk";
  await vi.advanceTimersByTimeAsync(800);
  link.blocked = null;
  link.freeAt = performance.now();
  await vi.advanceTimersByTimeAsync(500);
  expect(one.state).toBe("waiting");
  confirms[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(one.state).toBe("sent");
});
