import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openLedger } from "../../../src/engines/rabbitmq/index.ts";

async function folder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "dlo-ledger-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  return dir;
}

test("a start is open until it has an outcome, and an interrupted one is taken back", async () => {
  const ledger = await openLedger(join(await folder(), "starts.db"));
  const now = Date.now();
  expect(ledger.look("k")).toBeUndefined();
  expect(ledger.begin("k", now, 0)).toEqual({ counted: 1, starts: 1, open: true, firstAt: now });
  await ledger.end("k", true);
  expect(ledger.look("k")).toEqual({ counted: 1, starts: 1, open: false, firstAt: now });
  expect(ledger.begin("k", now + 9, 1)).toEqual({ counted: 2, starts: 2, open: true, firstAt: now });
  await ledger.end("k", false);
  expect(ledger.look("k")).toEqual({ counted: 1, starts: 2, open: false, firstAt: now });
  expect(ledger.begin("other", now, 4)).toMatchObject({ counted: 5, starts: 5 });
  await ledger.forget("k");
  expect(ledger.look("k")).toBeUndefined();
  await ledger.close();
});

test("what a dead process noted is there for the next, and two processes share the file", async () => {
  const file = join(await folder(), "starts.db");
  const one = await openLedger(file);
  const two = await openLedger(file);
  await one.begin("k", Date.now(), 0);
  expect(two.look("k")).toMatchObject({ counted: 1, open: true });
  await two.begin("k", Date.now(), 1);
  expect(one.look("k")).toMatchObject({ counted: 2 });
  await one.close();
  await two.close();
});

test("notes of messages nobody has seen for a month are dropped at start", async () => {
  const file = join(await folder(), "starts.db");
  const one = await openLedger(file);
  await one.begin("old", Date.now() - 31 * 86_400_000, 0);
  await one.begin("new", Date.now(), 0);
  await one.close();
  const two = await openLedger(file);
  expect(two.look("old")).toBeUndefined();
  expect(two.look("new")).toMatchObject({ counted: 1 });
  await two.close();
});

test("a file that is no ledger is refused by name", async () => {
  const file = join(await folder(), "starts.db");
  await writeFile(file, "no database, only a long enough text to be looked at as one ".repeat(50));
  await expect(openLedger(file)).rejects.toMatchObject({ code: "DATA_UNWRITABLE", message: /starts\.db/ });
});
