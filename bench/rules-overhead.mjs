// What the rules cost: DLQConsumer.processOne() over synchronous ports that do nothing, against the same four calls
// (receive, has, handler, ack) made by hand. Prints one JSON line per figure. Needs `npm run build` first.
//
//   node bench/rules-overhead.mjs [messages]
import { DLQConsumer } from "../dist/index.js";

const MESSAGES = Number(process.argv[2] ?? 1_000_000);
const ROUNDS = 7;
const GOAL_US = 0.3;

class NoQueue {
  left = 0;
  settled = 0;
  receive() {
    if (this.left-- <= 0) return null;
    return { id: "m", body: this.body, receiveCount: 1, firstReceivedAt: 1 };
  }
  send() {}
  ack() {
    this.settled++;
  }
  retry() {}
}
class NoLetters {
  asked = 0;
  put() {}
  has() {
    this.asked++;
    return false;
  }
  remove() {}
  list() {
    return [];
  }
}

const handler = (message) => {
  handled += message.body === undefined ? 0 : 1;
};
let handled = 0;

/** Processor time since then, us: a busy machine takes the processor away, and that is nobody's overhead. */
function cpuUs(from) {
  const spent = process.cpuUsage(from);
  return spent.user + spent.system;
}

function bare(queue, letters, messages) {
  queue.left = messages;
  const from = process.cpuUsage();
  for (;;) {
    const message = queue.receive();
    if (message === null) break;
    if (letters.has(message.id)) continue;
    try {
      handler(message);
    } catch {
      queue.retry(message.id);
      continue;
    }
    queue.ack(message.id);
  }
  return cpuUs(from) / messages;
}

function ruled(consumer, queue, messages) {
  queue.left = messages;
  const from = process.cpuUsage();
  while (consumer.processOne() !== null);
  return cpuUs(from) / messages;
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

for (const [name, body] of [
  ["text body", "x".repeat(1_024)],
  [
    "object body",
    {
      order: 17,
      lines: [
        { sku: "a", n: 1 },
        { sku: "b", n: 2 },
      ],
      note: "n",
    },
  ],
]) {
  const queue = new NoQueue();
  queue.body = body;
  const letters = new NoLetters();
  const consumer = new DLQConsumer(queue, letters, handler, { now: () => 1 });
  bare(queue, letters, MESSAGES / 5);
  ruled(consumer, queue, MESSAGES / 5);
  const bareUs = [];
  const ruledUs = [];
  // Turn about, so that a noisy moment hits both.
  for (let round = 0; round < ROUNDS; round++) {
    bareUs.push(bare(queue, letters, MESSAGES));
    ruledUs.push(ruled(consumer, queue, MESSAGES));
  }
  const [without, withRules] = [median(bareUs), median(ruledUs)];
  const round = (value) => Math.round(value * 1_000) / 1_000;
  console.log(
    JSON.stringify({
      bench: "rules-overhead",
      case: name,
      messages: MESSAGES,
      rounds: ROUNDS,
      bareUs: round(without),
      rulesUs: round(withRules),
      overheadUs: round(withRules - without),
      ratio: round(withRules / without),
      goalUs: GOAL_US,
      reached: withRules - without <= GOAL_US,
      node: process.version,
    }),
  );
}
if (handled === 0) throw new Error("the handler was never called");
