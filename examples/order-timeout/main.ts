// npm run example:orders -- [time to pay, e.g. "3 seconds"]: two orders, one paid, one cancelled.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OrderDesk } from "./orders.ts";

const timeToPay = process.argv[2] ?? "3 seconds";
const folder = mkdtempSync(join(tmpdir(), "order-timeout-"));
let tell: (id: string) => void = () => {};
const cancelled = new Promise<string>((resolve) => {
  tell = resolve;
});
const desk = await OrderDesk.open({
  file: join(folder, "orders.db"),
  timeToPay,
  onCancelled: (id) => tell(id),
});
for (const id of ["1001", "1002"]) {
  await desk.place(id);
  console.log(`order ${id} placed`);
}
console.log(`order 1001 paid in time: ${await desk.pay("1001")}`);
console.log(`order ${await cancelled} was not paid within ${timeToPay}: cancelled`);
console.log(`order 1001 is ${desk.state("1001")}, order 1002 is ${desk.state("1002")}`);
console.log(`order 1002 paid too late: ${await desk.pay("1002")}`);
await desk.close();
rmSync(folder, { recursive: true, force: true });
