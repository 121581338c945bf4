import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type Ended, MAIN, Running } from "../cli/spawn.ts";

const root = join(import.meta.dirname, "../../..");
const START = join(root, "examples/webhooks/start.mjs");

let folder: string;
let started: Running[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-first-run-"));
  started = [];
});
afterEach(async () => {
  for (const one of started) {
    if (one.process.exitCode === null) one.process.kill("SIGKILL");
    await one.ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

const begin = (data: string, ...args: string[]): Running => {
  const running = new Running([START, "--data", join(folder, data), ...args], { cwd: root });
  started.push(running);
  return running;
};
const dlo = (...args: string[]): Promise<Ended> => {
  const running = new Running([MAIN, ...args], { cwd: folder });
  started.push(running);
  return running.ended;
};
/** The summary alone: what has to be the same every time. */
const summaryOf = (ended: Ended): string => {
  const text = ended.out.slice(ended.out.lastIndexOf("Summary\n"));
  return text
    .split("\n")
    .filter((line) => !/^(took|\()/.test(line))
    .join("\n")
    .split("\nLook further")[0] as string;
};
const accepted = (data: string): string[] =>
  readFileSync(join(folder, data, "receiver.tsv"), "utf8")
    .split("\n")
    .filter((line) => line.startsWith("200\t"))
    .map((line) => line.slice(4));

// A whole run takes 10 s on an idle machine; ours is shared.
const LONG = 300_000;

describe("the first run on real input", () => {
  let reference: string;
  beforeAll(async () => {
    const place = mkdtempSync(join(tmpdir(), "dlo-first-run-"));
    const first = await new Running([START, "--data", place], { cwd: root }).ended;
    rmSync(place, { recursive: true, force: true });
    expect(first).toMatchObject({ status: 0, err: "" });
    reference = summaryOf(first);
  }, LONG);

  it(
    "handles, retries and moves aside the same on every run, and the fix empties the dead letters",
    async () => {
      expect(reference).toMatch(
        /sent +331\n +handled +272 {3}\(67 of them after a retry\)\n +dead +59 {3}permanent 54, exhausted 4, poison 1\n +missing +0\n/,
      );
      expect(summaryOf(await begin("two").ended)).toBe(reference);

      // Started once more it says the same and does nothing.
      const before = accepted("two");
      const again = await begin("two").ended;
      expect(again.out).toContain("is complete");
      expect(summaryOf(again)).toBe(reference);
      expect(accepted("two")).toEqual(before);

      // The commands it prints work on its data.
      const data = join(folder, "two");
      expect(JSON.parse((await dlo("ls", "--data", data, "--json")).out)).toHaveLength(59);
      expect((await dlo("show", "poison-pill", "--data", data)).out).toContain("SIGKILL");
      expect((await dlo("groups", "--data", data)).out.trim().split("\n")).toHaveLength(19);

      const fixed = await begin("two", "--fixed").ended;
      expect(fixed.status).toBe(0);
      expect(summaryOf(fixed)).toMatch(/sent +331\n +handled +331 .*\n +dead +0 *\n +missing +0/);
      expect(fixed.out).toContain("The dead letter queue is empty.");
      expect((await dlo("ls", "--data", data, "--json")).out).toBe("[]\n");
      expect(new Set(accepted("two")).size).toBe(331);
    },
    LONG,
  );

  it(
    "stopped by Ctrl-C at different moments and started again, ends as if it had not been",
    async () => {
      for (const [after, wait] of [
        [/are in the queue/, 500],
        [/going on with/, 2000],
        [/going on with/, 4000],
      ] as const) {
        const stopped = begin("three");
        await stopped.says(after);
        await new Promise((done) => setTimeout(done, wait));
        const ended = await stopped.kill("SIGINT");
        expect(ended).toMatchObject({ status: 130, out: expect.stringContaining("Nothing is lost") });
      }
      expect(summaryOf(await begin("three").ended)).toBe(reference);
      expect(accepted("three").length).toBe(new Set(accepted("three")).size);
    },
    LONG,
  );

  it("goes on after kill -9 without losing or doubling a message", { timeout: LONG }, async () => {
    for (const wait of [0, 700, 2500, 4000]) {
      const killed = begin("four");
      if (wait > 0) await killed.says(/are in the queue|going on with/);
      await new Promise((done) => setTimeout(done, wait));
      await killed.kill("SIGKILL");
    }
    const ended = await begin("four").ended;
    expect(ended.status).toBe(0);
    expect(summaryOf(ended)).toMatch(/sent +331\n/);
    expect(summaryOf(ended)).toMatch(/missing +0\n/);
    const letters = JSON.parse((await dlo("ls", "--data", join(folder, "four"), "--json")).out) as {
      id: string;
    }[];
    const dead = new Set(letters.map((letter) => letter.id));
    expect(dead.size).toBe(letters.length);
    const handled = new Set(accepted("four"));
    expect([...dead].filter((id) => handled.has(id))).toEqual([]);
    expect(dead.size + handled.size).toBe(331);
  });

  it("refuses what it does not know", async () => {
    const ended = await begin("five", "--colour").ended;
    expect(ended).toMatchObject({ status: 2, err: expect.stringContaining("usage: npm start") });
  });
});
