import { expect, it, onTestFinished } from "vitest";
import { openBroker } from "../../../src/index.ts";

it("a crash that a living holder reports is solo whatever else it holds, and its cause is kept, also of the last", async () => {
  const broker = openBroker({ file: ":memory:" });
  onTestFinished(() => broker.close());
  const queue = broker.queue<string>("jobs");
  const deadLetters = broker.deadLetters<string>("jobs.dead");
  await queue.send("x", "pill");
  await queue.send("x", "neighbour");
  const pill = queue.receive()!;
  const neighbour = queue.receive()!;
  await queue.beginMany([pill, neighbour]);
  await queue.retry("pill", pill.receipt, { cause: "exit code 9" });
  const again = queue.receive()!;
  await queue.begin("pill", again.receipt);
  const entry = {
    id: "pill",
    body: again.body,
    reason: "poison" as const,
    error: null,
    cause: "SIGKILL",
    attempts: 2,
    firstAttemptAt: again.firstReceivedAt,
    failedAt: again.firstReceivedAt,
  };
  expect(await queue.bury("pill", again.receipt, entry, deadLetters)).toBe(true);
  const [letter] = await deadLetters.list();
  expect(letter?.history?.map(({ outcome, cause, company }) => [outcome, cause, company])).toEqual([
    ["crashed", "exit code 9", "solo"],
    ["crashed", "SIGKILL", "solo"],
  ]);
});
