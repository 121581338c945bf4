import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
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

describe("the first run on real input", () => {
  let reference: string;

  it("handles, retries and moves aside the same on every run, and the fix empties the dead letters", async () => {
    const first = await begin("one").ended;
    expect(first).toMatchObject({ status: 0, err: "" });
    reference = summaryOf(first);
    expect(reference).toMatch(
      /sent +331\n +handled +\d+ .*\n +dead +\d+ +permanent 54, exhausted \d+, poison 1\n +missing +0\n/,
    );
    const second = await begin("two").ended;
    expect(summaryOf(second)).toBe(reference);

    // Started once more it says the same and does nothing.
    const before = accepted("two");
    const again = await begin("two").ended;
    expect(again.out).toContain("is complete");
    expect(summaryOf(again)).toBe(reference);
    expect(accepted("two")).toEqual(before);

    // The commands it prints work on its data.
    const listed = await dlo("ls", "--data", join(folder, "two"), "--json");
    expect(JSON.parse(listed.out)).toHaveLength(Number(/dead +(\d+)/.exec(reference)?.[1]));
    expect((await dlo("show", "poison-pill", "--data", join(folder, "two"))).out).toContain("SIGKILL");

    const fixed = await begin("two", "--fixed").ended;
    expect(fixed.status).toBe(0);
    expect(summaryOf(fixed)).toMatch(/sent +331\n +handled +331 .*\n +dead +0 *\n +missing +0/);
    expect(fixed.out).toContain("The dead letter queue is empty.");
    expect((await dlo("ls", "--data", join(folder, "two"), "--json")).out).toBe("[]\n");
    expect(new Set(accepted("two")).size).toBe(331);

    // Stopped by Ctrl-C three times, at different moments, and gone on with.
    for (const after of [/are in the queue/, /going on with/, /going on with/]) {
      const stopped = begin("three");
      await stopped.says(after);
      await new Promise((done) => setTimeout(done, 1500));
      const ended = await stopped.kill("SIGINT");
      expect(ended).toMatchObject({ status: 130, out: expect.stringContaining("Nothing is lost") });
    }
    expect(summaryOf(await begin("three").ended)).toBe(reference);
    expect(accepted("three").length).toBe(new Set(accepted("three")).size);
  });

  it("goes on after kill -9 without losing or doubling a message", async () => {
    for (const wait of [0, 700, 2500, 4000]) {
      const killed = begin("four");
      await killed.says(/are in the queue|going on with|nothing/).catch(() => {});
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
