import { expect, it } from "vitest";
import { MemoryHost } from "../../support/memory-host.ts";
import { fuzzOne } from "./fuzz.ts";

// More of the same: DLO_FUZZ_SECONDS=600 npx vitest run --project unit test/unit/amqp/fuzz.test.ts
const SECONDS = Number(process.env["DLO_FUZZ_SECONDS"] ?? 3);

it("any bytes parse or end in a right close, and the broker stays as it is for others", {
  timeout: SECONDS * 1000 + 60_000,
}, async () => {
  const host = new MemoryHost({ manual: true });
  const codes = new Map<number, number>();
  const first = Number(process.env["DLO_FUZZ_SEED"] ?? 1);
  const until = Date.now() + SECONDS * 1000;
  let seed = first;
  for (; Date.now() < until || seed < first + 300; seed++) {
    const { code, state } = await fuzzOne(seed, host, seed % 4 !== 0);
    expect(state, `seed ${seed}`).toBe("ended");
    codes.set(code, (codes.get(code) ?? 0) + 1);
    if (seed % 500 === 0) {
      // Queues outlive their connections: without this the world of a long run grows by design.
      const vhost = host.vhost("/");
      vhost?.apply({ type: "open-channel", connection: -seed, channel: -seed });
      for (const queue of ["q", "p"]) {
        try {
          vhost?.apply({ type: "queue-purge", channel: -seed, queue });
        } catch {
          // not declared yet, or gone
        }
      }
      vhost?.apply({ type: "close-connection", connection: -seed });
    }
  }
  // It must have met the codes of every stage, or it tests nothing.
  for (const code of [501, 502, 504, 505]) expect(codes.get(code), `closes with ${code}`).toBeGreaterThan(0);
  expect(process.memoryUsage().heapUsed, `heap after ${seed - first} connections`).toBeLessThan(512 << 20);
  host.close();
});
