// An ordinary client that knows nothing of this product: amqplib, a window, one message handled after the other, an
// ack for each. A message "pill..." kills its process. Notes what it starts and acks in a file.
import { appendFileSync } from "node:fs";
import amqplib from "amqplib";

const { DYING_URL, DYING_PREFETCH, DYING_NOTES } = process.env;
const note = (line) => appendFileSync(DYING_NOTES, `${line}\n`);
const connection = await amqplib.connect(DYING_URL);
const channel = await connection.createChannel();
await channel.prefetch(Number(DYING_PREFETCH));
let last = Promise.resolve();

async function handle(message) {
  const body = message.content.toString();
  note(`start ${body}`);
  await new Promise((done) => setTimeout(done, 2));
  if (body.startsWith("pill")) process.kill(process.pid, "SIGKILL");
  note(`done ${body}`);
  channel.ack(message);
}

await channel.consume("work", (message) => {
  last = last.then(() => handle(message));
});
// The parent says when nothing is left.
process.once("message", async () => {
  await connection.close();
  process.disconnect();
});
