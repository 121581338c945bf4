import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openBroker } from "../../../src/engines/embedded/index.ts";

/** Bodies of every kind a piece that is read in one may be put together of: none, zeros, no UTF-8, large ones. */
function bodyOf(n: number): Buffer {
  if (n % 7 === 0) return Buffer.alloc(0);
  if (n % 11 === 0) return Buffer.alloc(50, 0);
  if (n % 53 === 0) return randomBytes(40_000);
  return randomBytes(20 + (n % 300));
}

test("what waits in the file comes back byte for byte, read ahead or not, between messages that are gone", async () => {
  const folder = mkdtempSync(join(tmpdir(), "dlo-reading-"));
  const file = join(folder, "data.db");
  try {
    const bodies = Array.from({ length: 700 }, (_, n) => bodyOf(n));
    let broker = openBroker({ file });
    const first = broker.queue("q");
    await first.sendMany(bodies.map((body, n) => ({ id: `m${n}`, body })));
    await broker.queue("other").send("between");
    const dead = broker.deadLetters("dead");
    // Some are settled and one leaves its body to a letter, so the numbers have gaps.
    const taken = first.receiveMany(300);
    for (const message of taken) {
      const n = Number(message.id.slice(1));
      if (n % 5 === 0) await first.ack(message.id, message.receipt);
      else if (n === 101)
        await first.bury(
          message.id,
          message.receipt,
          {
            id: message.id,
            body: message.body,
            reason: "permanent",
            error: "no",
            attempts: 1,
            firstAttemptAt: 1,
            failedAt: 1,
          },
          dead,
        );
    }
    await broker.close();

    broker = openBroker({ file });
    const queue = broker.queue("q");
    const expected = bodies.map((_, n) => n).filter((n) => n >= 300 || (n % 5 !== 0 && n !== 101));
    const back = queue.receiveMany(1_000);
    expect(back.map(({ id }) => id)).toEqual(expected.map((n) => `m${n}`));
    for (const [i, n] of expected.entries()) {
      const bytes = Buffer.from(back[i]?.body as Uint8Array);
      expect(bytes.equals(bodies[n] as Buffer), `message m${n}`).toBe(true);
    }
    expect(Buffer.from(broker.deadLetters("dead").get("m101")?.body as Uint8Array)).toEqual(bodies[101]);
    await broker.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
