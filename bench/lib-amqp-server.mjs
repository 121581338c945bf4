// The embedded broker on AMQP in a process of its own, for bench/amqp.mjs. Answers each line on its input once it has
// collected its garbage. usage: node --expose-gc bench/lib-amqp-server.mjs DIR
import { startBroker } from "../dist/dev/index.js";

if (process.argv[2]) {
  const server = await startBroker({ data: process.argv[2] });
  process.stdout.write(`${server.url}\n`);
  process.stdin.on("data", () => {
    globalThis.gc?.();
    process.stdout.write("collected\n");
  });
  process.on("SIGTERM", () => server.close().then(() => process.exit(0)));
} else console.log("amqp-server: run bench/amqp.mjs");
