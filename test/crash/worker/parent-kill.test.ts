import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { openBroker } from "../../../src/engines/embedded/index.ts";
import { handlerFile, tempDir, until } from "./world.ts";

const parentFile = fileURLToPath(new URL("consumer-parent.mjs", import.meta.url));
/** Fewer kills of the parent than maxAttempts (5), so that no innocent can be given up for them. */
const KILLS_AFTER_MS = [150, 400, 250, 600];

describe("a consumer process with isolated handlers, killed four times with SIGKILL", () => {
  test("loses nothing, gives up the pill alone, and starts it at most maxAttempts times", async () => {
    const directory = tempDir();
    const file = join(directory, "data.db");
    const startsFile = join(directory, "starts");
    const broker = openBroker({ file });
    const bodies = Array.from({ length: 60 }, (_, n) => ({ id: `m${n}`, body: n === 20 ? "kill" : "short" }));
    await broker.queue("orders").sendMany(bodies);
    await broker.close();

    for (const killAfterMs of [...KILLS_AFTER_MS, null]) {
      const parent = spawn(process.execPath, [parentFile, file, handlerFile("case.mjs")], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { ...process.env, STARTS: startsFile },
      });
      onTestFinished(() => void parent.kill("SIGKILL"));
      let said = "";
      parent.stdout.on("data", (chunk: Buffer) => {
        said += chunk.toString();
      });
      const gone = once(parent, "exit");
      if (killAfterMs !== null) {
        await until("the parent is up", () => said.includes("up"));
        setTimeout(() => parent.kill("SIGKILL"), killAfterMs);
      }
      await gone;
      if (killAfterMs === null) expect(said).toContain("done");
    }

    const starts = new Map<string, number>();
    const lines = existsSync(startsFile) ? readFileSync(startsFile, "utf8").trim().split("\n") : [];
    for (const line of lines) {
      const id = line.split(" ")[0] as string;
      starts.set(id, (starts.get(id) ?? 0) + 1);
    }
    for (const { id } of bodies) expect(starts.get(id) ?? 0, id).toBeGreaterThanOrEqual(1);
    expect(starts.get("m20")).toBeLessThanOrEqual(5);

    const after = openBroker({ file });
    onTestFinished(() => after.close());
    const letters = await after.deadLetters("orders.dead").list();
    expect(letters.map(({ id, reason, error }) => [id, reason, error])).toEqual([["m20", "poison", null]]);
    expect(await after.queue("orders").pending()).toBe(0);
  });
});
