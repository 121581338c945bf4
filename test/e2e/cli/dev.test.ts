import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { MAIN, Running } from "./spawn.ts";

let folder: string;
let started: Running[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-dev-"));
  started = [];
});
afterEach(async () => {
  for (const one of started) {
    if (one.process.exitCode === null) one.process.kill("SIGKILL");
    await one.ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

const start = (...args: string[]): Running => {
  const running = new Running([MAIN, ...args], { cwd: folder });
  started.push(running);
  return running;
};

it("dlo dev owns its data directory and answers the other commands", async () => {
  const dev = start("dev", "--amqp", "0", "--no-management");
  await dev.says(/^ready$/m);
  expect(await start("send", "orders", '{"a":1}', "--id", "x").ended).toMatchObject({
    status: 0,
    out: "x\n",
  });
  const status = JSON.parse((await start("status", "--json").ended).out);
  expect(status.owner).toMatchObject({ pid: dev.process.pid, command: "dlo dev" });
  expect(status.queues).toMatchObject([{ queue: "orders", waiting: 1 }]);
  expect(await dev.kill("SIGTERM")).toMatchObject({ status: 0 });
  expect((await start("status").ended).out).toBe("orders\t1\t0\t0\t0\n");
});
