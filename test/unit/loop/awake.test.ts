import { setTimeout as pause } from "node:timers/promises";
import { expect, test } from "vitest";
import { stayAwake } from "../../../src/loop/index.ts";

test("a process that stays awake for its next message sleeps when none comes", async () => {
  stayAwake();
  stayAwake();
  await pause(50);
  const before = process.cpuUsage();
  await pause(400);
  const { user, system } = process.cpuUsage(before);
  // Turning all the time it would have used the 400 ms whole.
  expect((user + system) / 1000).toBeLessThan(200);
});
