import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";

interface Desk {
  place(id: string): Promise<void>;
  pay(id: string): Promise<boolean>;
  state(id: string): string | null;
  close(): Promise<void>;
}
const root = join(import.meta.dirname, "../../..");
// Compiled as a user compiles it; Node 20 runs no TypeScript.
execFileSync(
  process.execPath,
  [join(root, "node_modules/typescript/bin/tsc"), "-p", "examples/order-timeout"],
  { cwd: root },
);
const example = join(root, "examples/order-timeout/build");
const { OrderDesk } = (await import(join(example, "orders.js"))) as {
  OrderDesk: {
    open(options: {
      file: string;
      timeToPay: number | string;
      onCancelled?: (id: string) => void;
    }): Promise<Desk>;
  };
};

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-orders-"));
  file = join(folder, "orders.db");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !holds(); i++) await new Promise((done) => setTimeout(done, 10));
}

it("cancels an order that is not paid in time, once, and leaves a paid one alone", async () => {
  const cancelled: string[] = [];
  const desk = await OrderDesk.open({ file, timeToPay: "700 ms", onCancelled: (id) => cancelled.push(id) });
  for (const id of ["a", "b", "c"]) await desk.place(id);
  expect(await desk.pay("b")).toBe(true);
  expect(cancelled).toEqual([]);
  await until(() => cancelled.length === 2);
  expect(cancelled).toEqual(["a", "c"]);
  expect(["a", "b", "c"].map((id) => desk.state(id))).toEqual(["cancelled", "paid", "cancelled"]);
  expect(await desk.pay("a")).toBe(false);
  await desk.close();
});

it("does the same over the death of its process, whose time ran out while it was down", async () => {
  const script = `const { OrderDesk } = await import(${JSON.stringify(join(example, "orders.js"))});
    const desk = await OrderDesk.open({ file: process.argv[1], timeToPay: "1500 ms" });
    for (const id of ["a", "b", "c"]) await desk.place(id);
    await desk.pay("b");
    console.log("placed");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script, file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = once(child, "close");
  await once(child.stdout, "data");
  child.kill("SIGKILL");
  await closed;
  await new Promise((done) => setTimeout(done, 1600));
  const cancelled: string[] = [];
  const options = { file, timeToPay: "1500 ms", onCancelled: (id: string) => void cancelled.push(id) };
  const desk = await OrderDesk.open(options);
  await until(() => cancelled.length === 2);
  expect(cancelled).toEqual(["a", "c"]);
  expect(desk.state("b")).toBe("paid");
  await desk.close();
  const again = await OrderDesk.open(options);
  await new Promise((done) => setTimeout(done, 200));
  expect(cancelled).toEqual(["a", "c"]);
  await again.close();
});
