import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openBroker } from "../../../src/engines/embedded/index.ts";
import { serveOffice } from "../../../src/http/index.ts";
import { MAIN, Running } from "./spawn.ts";

const world = () => {
  const folder = mkdtempSync(join(tmpdir(), "dlo-owner-"));
  const directory = join(folder, ".dlo");
  const broker = openBroker({ file: join(directory, "dlo.db") });
  onTestFinished(async () => {
    await broker.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const dlo = (...args: string[]) => new Running([MAIN, ...args], { cwd: folder }).ended;
  return { broker, directory, dlo };
};

it("an application that serves its office answers the commands", async () => {
  const { broker, directory, dlo } = world();
  const office = await serveOffice(broker, { directory, command: "my app" });
  await broker.deadLetters("orders.dead").put({
    id: "a",
    body: { n: 1 },
    reason: "permanent",
    error: "Error: no",
    attempts: 1,
    firstAttemptAt: 1,
    failedAt: 2,
    generation: 1,
    sourceQueue: "orders",
  });
  expect((await dlo("ls")).out).toContain("\ta\torders\tpermanent\t1\t");
  // The queue it came from was never made here: the letter stays and is named.
  const replayed = await dlo("replay", "a");
  expect(replayed).toMatchObject({ status: 1, err: expect.stringMatching(/dlo: a: .*orders/) });
  expect(JSON.parse((await dlo("ls", "--json")).out)).toHaveLength(1);
  const queue = broker.queue("orders");
  expect(await dlo("replay", "a")).toMatchObject({ status: 0, err: "replayed 1 of 1 letter\n" });
  expect(queue.receive()).toMatchObject({ id: "a", body: { n: 1 }, receiveCount: 1 });
  expect(await dlo("replay", "a")).toMatchObject({
    status: 1,
    err: expect.stringContaining("already replayed"),
  });
  expect(JSON.parse((await dlo("status", "--json")).out).owner).toMatchObject({
    pid: process.pid,
    command: "my app",
  });
  await office.close();
});

it("an application that does not is named as the one who has the data", async () => {
  const { dlo } = world();
  const ended = await dlo("ls");
  expect(ended).toMatchObject({ status: 5, out: "" });
  expect(ended.err).toMatch(new RegExp(`^dlo: .*dlo\\.db is in use by process ${process.pid} .*\n$`));
});
