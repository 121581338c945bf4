import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openBroker } from "../../../src/index.ts";

const CHILD = join(import.meta.dirname, "pill-child.mjs");

/** A service and its supervisor: started again whenever it dies. Answers how each life ended, and what was written. */
async function supervised(body: string, how: string) {
  const folder = mkdtempSync(join(tmpdir(), "dlo-pill-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [file, log] = [join(folder, "data.db"), join(folder, "log")];
  const broker = openBroker({ file });
  const queue = broker.queue("q");
  for (const [id, what] of [
    ["pill", body],
    ["first", "fine"],
    ["second", "fine"],
  ] as const)
    await queue.send(what, id);
  await broker.close();
  const lives: string[] = [];
  for (let ended = ""; ended !== "0" && lives.length < 10; lives.push(ended)) {
    const args = ["--max-old-space-size=64", CHILD, file, log, how];
    const child = spawn(process.execPath, args, { stdio: "ignore" });
    const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
    ended = String(signal ?? code);
  }
  return { file, lives, lines: readFileSync(log, "utf8").trim().split("\n") };
}

it.each([
  ["kill", "one", "SIGKILL"],
  ["kill", "loop", "SIGKILL"],
  ["allocate", "one", "SIGABRT"],
  ["allocate", "loop", "SIGABRT"],
])(
  "B1: a message that ends its service (%s, %s) does so three times; the fourth start stays up",
  async (body, how, end) => {
    const { file, lives, lines } = await supervised(body, how);
    expect(lives).toEqual([end, end, end, "0"]);
    const times = (line: string): number => lines.filter((one) => one === line).length;
    expect([times("up"), times("start pill"), times("end pill")]).toEqual([4, 3, 0]);
    for (const id of ["first", "second"]) expect([times(`start ${id}`), times(`end ${id}`)]).toEqual([1, 1]);
    const broker = openBroker({ file });
    expect(broker.queue("q").pending()).toBe(0);
    const [letter, ...more] = broker.deadLetters("q.dead").list();
    expect(more).toEqual([]);
    expect(letter).toMatchObject({ id: "pill", body, reason: "poison", error: null, attempts: 3 });
    expect(letter?.history?.map((one) => one.outcome)).toEqual(["crashed", "crashed", "crashed"]);
    await broker.close();
  },
);
