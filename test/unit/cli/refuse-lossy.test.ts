import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openBroker } from "../../../src/index.ts";
import { dlo } from "./run.ts";

it("dlo work --refuse-lossy does not start where letters of the queue would vanish, and starts where they are kept", async () => {
  const folder = mkdtempSync(join(tmpdir(), "dlo-lossy-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "handler.mjs"), "export default () => {};\n");
  const broker = openBroker({ file: join(folder, "dlo.db") });
  const channel = await broker.createChannel();
  await channel.assertQueue("orders", { deadLetterExchange: "no.such" });
  await broker.queue("orders").send({ n: 1 });
  await broker.close();
  const work = (...more: string[]) =>
    dlo(
      [
        "work",
        "--data",
        folder,
        "--handler",
        join(folder, "handler.mjs"),
        "--until-empty",
        "--isolate",
        "none",
        ...more,
      ],
      { cwd: folder },
    );
  const refused = await work("--queue", "orders", "--refuse-lossy");
  expect(refused.status).toBe(6);
  expect(refused.err).toMatch(
    /^dlo: queue 'orders': .*'no\.such' does not exist.*; declare exchange no\.such/m,
  );
  // Nothing was taken; without the wish it works, and a queue of the command's own making is no loss.
  expect(await work("--queue", "orders")).toMatchObject({
    status: 0,
    err: expect.stringContaining("handled 1"),
  });
  expect(await work("--queue", "jobs", "--refuse-lossy")).toMatchObject({ status: 0 });
});
