// The embedded broker on AMQP in a process of its own, for bench/amqp.mjs. usage: node bench/lib-amqp-server.mjs DIR
import { startBroker } from "../dist/dev/index.js";

if (process.argv[2]) {
  const server = await startBroker({ data: process.argv[2] });
  process.stdout.write(`${server.url}\n`);
  process.on("SIGTERM", () => server.close().then(() => process.exit(0)));
} else console.log("amqp-server: run bench/amqp.mjs");
