// Acks one of two messages and waits, until it is killed.
//   node acks-child.mjs FILE WAIT_MS
import { openBroker } from "../../../dist/engines/embedded/index.js";

const [, , file, waitMs] = process.argv;
const queue = openBroker({ file }).queue("q");
await queue.sendMany([
  { body: 1, id: "acked" },
  { body: 2, id: "waiting" },
]);
const { id, receipt } = queue.receive();
await queue.ack(id, receipt);
// The commit that holds the ack is not synced; nothing is committed after it.
setTimeout(() => process.kill(process.pid, "SIGKILL"), Number(waitMs));
