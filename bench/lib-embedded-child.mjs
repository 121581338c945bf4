// One step of a bench row in a process of its own, so that memory and start time are that step's alone.
import { openBroker } from "../dist/engines/embedded/index.js";
import { BODY } from "./lib-embedded.mjs";

const [, , step, file, waiting, count] = process.argv;

async function fill(delayed) {
  const broker = openBroker({ file, durability: "process" });
  const queue = broker.queue("waiting");
  const many = Array.from({ length: 500 }, () => ({ body: BODY }));
  const total = Number(waiting);
  for (let sent = 0; sent < total; sent += 500) {
    if (!delayed) await queue.sendMany(many);
    else
      await Promise.all(
        many.map((_, i) => broker.delay("waiting", BODY, { delayMs: 3_600_000 + ((sent + i) % 100_000) })),
      );
  }
  await broker.close();
  return { sent: total };
}

async function cycle() {
  const startedAt = performance.now();
  const broker = openBroker({ file });
  // "waiting" is where the messages are, so the work goes through the same queue; empty, it makes its own.
  const queue = broker.queue("waiting");
  if (Number(waiting) > 0) {
    const pending = queue.pending();
    if (pending !== Number(waiting)) throw new Error(`${pending} of ${waiting} are there`);
  }
  await queue.send(BODY);
  const startMs = performance.now() - startedAt;
  const rssMiB = process.memoryUsage().rss / 2 ** 20;
  let peakRssMiB = rssMiB;
  const many = Array.from({ length: 100 }, () => ({ body: BODY }));
  const before = process.cpuUsage();
  const from = performance.now();
  for (let done = 0; done < Number(count); done += 100) {
    await queue.sendMany(many);
    const messages = queue.receiveMany(100);
    await queue.beginMany(messages);
    await queue.ackMany(messages);
    peakRssMiB = Math.max(peakRssMiB, process.memoryUsage().rss / 2 ** 20);
  }
  const rate = (Number(count) / (performance.now() - from)) * 1000;
  const { user, system } = process.cpuUsage(before);
  const cpuUs = (user + system) / Number(count);
  await broker.close();
  return { startMs, rssMiB, peakRssMiB, rate, cpuUs };
}

const steps = { fill: () => fill(false), "fill-delayed": () => fill(true), cycle };
console.log(JSON.stringify(await steps[step]()));
