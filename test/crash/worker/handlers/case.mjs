// The handlers of cases B1 and B3: notes each start in the file named by the environment.
import { appendFileSync } from "node:fs";

const hold = [];

export default async function handler({ id, body }) {
  appendFileSync(process.env.STARTS, `${id} ${Date.now()}\n`);
  if (body === "kill") {
    process.kill(process.pid, "SIGKILL");
    await new Promise(() => {});
  }
  if (body === "allocate") for (;;) hold.push(new Array(10_000).fill(hold.length));
  if (body === "hang") await new Promise(() => {});
  if (body === "short") await new Promise((done) => setTimeout(done, 25));
  if (body === "late") await new Promise((done) => setTimeout(done, 500));
  if (body === "status") throw Object.assign(new Error("gone"), { status: 410 });
}
