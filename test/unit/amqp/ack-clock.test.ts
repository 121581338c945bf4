import { describe, expect, it } from "vitest";
import { AckClock } from "../../../src/amqp/ack-clock.ts";

const LIMIT = 1_800_000;
const LOOK = 500;

describe("the age of a channel's oldest delivery", () => {
  it("is late once the limit is over, and not before, whatever is delivered and settled behind it", () => {
    const clock = new AckClock(LIMIT);
    let now = 1_000;
    let latest = 7;
    for (; now <= 1_000 + LIMIT; now += LOOK) {
      latest += 3;
      expect(clock.late({ oldest: 7, queue: "q", latest }, now)).toBe(false);
    }
    expect(clock.late({ oldest: 7, queue: "q", latest }, now)).toBe(true);
  });

  it("counts each delivery from its own time: one that waited behind another is not given the time anew", () => {
    const clock = new AckClock(LIMIT);
    // 1 and 2 go out together; 1 is settled shortly before its time is over, 2 never.
    let now = 0;
    for (; now < LIMIT - 2 * LOOK; now += LOOK)
      expect(clock.late({ oldest: 1, queue: "q", latest: 2 }, now)).toBe(false);
    const tooLate = LIMIT + LIMIT / 64 + 2 * LOOK;
    while (!clock.late({ oldest: 2, queue: "q", latest: 2 }, now)) now += LOOK;
    expect(now).toBeGreaterThanOrEqual(LIMIT);
    expect(now).toBeLessThanOrEqual(tooLate);
  });

  it("is never late while each is settled in time, at any load", () => {
    const clock = new AckClock(1_000);
    let latest = 20;
    for (let now = 0; now < 600_000; now += LOOK) {
      latest += 1_000;
      // Everything older than half a second is settled.
      expect(clock.late({ oldest: latest - 999, queue: "q", latest }, now)).toBe(false);
    }
    expect(clock.late(null, 600_000)).toBe(false);
    expect(clock.late({ oldest: latest + 1, queue: "q", latest: latest + 1 }, 900_000)).toBe(false);
  });

  it("does not take a stopped process, or a clock that was set, for lateness", () => {
    const clock = new AckClock(60_000);
    const held = { oldest: 1, queue: "q", latest: 1 };
    expect(clock.late(held, 1_000)).toBe(false);
    for (const now of [10_000_000, 10_000_500, 20_000_000, 20_000_500, 5, 505])
      expect(clock.late(held, now)).toBe(false);
  });

  it("is late only when it still is at the next look, after what lay in the socket was read", () => {
    const clock = new AckClock(1_000);
    for (const now of [0, 500, 1_000]) clock.late({ oldest: 1, queue: "q", latest: 3 }, now);
    expect(clock.late({ oldest: 4, queue: "q", latest: 4 }, 1_500)).toBe(false);
    const again = new AckClock(1_000);
    const held = { oldest: 1, queue: "q", latest: 3 };
    expect([0, 500, 1_000, 1_500, 2_000].map((now) => again.late(held, now))).toContain(true);
  });

  it("of a limit of 0 is never late", () => {
    const clock = new AckClock(0);
    for (const now of [0, 1e12]) expect(clock.late({ oldest: 1, queue: "q", latest: 1 }, now)).toBe(false);
  });
});
