import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openBroker } from "../../../src/engines/embedded/index.ts";
import { cutPower, forgetful, powerLossShim } from "../../support/power-loss.ts";

interface Job {
  run: number;
  send: number;
  window?: number;
  pills?: number;
  slowMs?: number;
  durability?: string;
  together?: boolean;
  crash?: { at: number; side: "before" | "after" };
}
interface Verdict {
  wrong: string[];
  sent: number;
  waiting: number;
  dead: number;
  done: number;
}
interface Torture {
  live(
    file: string,
    log: string,
    job: Job,
    killAfterMs?: number,
    env?: NodeJS.ProcessEnv,
  ): Promise<string | null>;
  verdict(file: string, log: string): Promise<Verdict>;
}

// A plain script, as the long run uses it; it works on what is built.
const { live, verdict } = (await import("./torture.mjs" as string)) as Torture;

let folder: string;
let file: string;
let log: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-crash-"));
  file = join(folder, "data", "data.db");
  log = join(folder, "log");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it("loses and doubles nothing when killed before and after each commit of a worker's life", async () => {
  let run = 1;
  for (let at = 2; at <= 14; at += 2) {
    for (const side of ["before", "after"] as const) {
      const life = live(file, log, { run: run++, send: 8, window: 2, crash: { at, side } });
      expect(await life, `killed ${side} commit ${at}`).toBe("SIGKILL");
    }
  }
  expect(await live(file, log, { run, send: 0, window: 4 })).toBe(null);
  expect(await verdict(file, log)).toMatchObject({ wrong: [], waiting: 0 });
});

it("loses and doubles nothing over random kills, and starts nothing more than three times", async () => {
  for (let run = 1; run <= 15; run++)
    await live(
      file,
      log,
      { run, send: 16, window: run % 6, pills: run === 4 ? 9 : 0, slowMs: 1 },
      (run * 37) % 80,
    );
  let run = 100;
  while ((await live(file, log, { run, send: 0, window: 4 })) !== null) run++;
  const result = await verdict(file, log);
  expect(result).toMatchObject({ wrong: [], waiting: 0 });
  expect(result.sent).toBeGreaterThan(0);
});

async function powerCuts(durability: string, mode: "synced" | "torn", shim: string): Promise<Verdict> {
  const data = join(folder, "data");
  mkdirSync(data); // The shim watches a folder that is there when the process starts.
  for (let run = 1; run <= 5; run++) {
    const env = forgetful(shim, data, join(folder, "shadow"));
    // Without syncs a life has far more done when it is cut; one that has ended would have synced all.
    const send = (durability === "process" ? 20_000 : 3_000) * run;
    await live(file, log, { run, send, window: 8, durability, together: true }, 300 + run * 100, env);
    cutPower(data, join(folder, "shadow"), mode);
  }
  return verdict(file, log);
}

it.for(["synced", "torn"] as const)(
  "loses no confirmed message and loses or doubles no letter when the power goes (%s)",
  async (mode, context) => {
    const shim = powerLossShim();
    if (shim === undefined) return context.skip("needs Linux and a C compiler");
    const result = await powerCuts("full", mode, shim);
    // A start whose count was not synced yet may be made once more after a cut; see durability.md.
    expect(result.wrong.filter((one) => !one.includes("was started"))).toEqual([]);
    expect(result.dead).toBeGreaterThan(0);
    expect(result.sent).toBeGreaterThan(0);
  },
);

it("forgets no ack to a power cut once its 50 ms are over", async (context) => {
  const shim = powerLossShim();
  if (shim === undefined) return context.skip("needs Linux and a C compiler");
  const left = async (waitMs: number): Promise<string[]> => {
    const [data, shadow] = [join(folder, `data${waitMs}`), join(folder, `shadow${waitMs}`)];
    mkdirSync(data);
    const script = join(import.meta.dirname, "acks-child.mjs");
    const args = [script, join(data, "data.db"), String(waitMs)];
    const child = spawn(process.execPath, args, { env: forgetful(shim, data, shadow), stdio: "inherit" });
    await once(child, "close");
    cutPower(data, shadow);
    await using broker = openBroker({ file: join(data, "data.db") });
    return broker
      .queue("q")
      .receiveMany(9)
      .map(({ id }) => id);
  };
  expect(await left(1_000)).toEqual(["waiting"]);
  // The check can fail: cut at once, it comes again.
  expect(await left(0)).toEqual(["acked", "waiting"]);
});

it("loses confirmed messages to a power cut at durability process: the check can fail", async (context) => {
  const shim = powerLossShim();
  if (shim === undefined) return context.skip("needs Linux and a C compiler");
  let lost = 0;
  // Whether a cut meets work that is not synced depends on the machine's pace, so there are several worlds to cut.
  for (let world = 1; world <= 5 && lost === 0; world++) {
    for (const name of ["data", "shadow", "log"])
      rmSync(join(folder, name), { recursive: true, force: true });
    const result = await powerCuts("process", "synced", shim);
    lost = result.wrong.filter((one) => one.startsWith("lost")).length;
  }
  expect(lost).toBeGreaterThan(0);
});
