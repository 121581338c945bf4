// Every way a handler can go wrong, chosen by the message's body.
import { appendFileSync } from "node:fs";

const later = (ms) => new Promise((done) => setTimeout(done, ms));

class NegativePrice extends Error {
  name = "NegativePrice";
  code = "E_PRICE";
  retryAfter = 1500;
}

class PermanentError extends Error {
  name = "PermanentError";
}

class Crash extends Error {
  name = "Crash";
}

function overflow(n) {
  return overflow(n + 1) + 1;
}

const hold = [];

const troubles = {
  ok: () => {},
  slow: () => later(300),
  throw: () => {
    throw new NegativePrice("price is -1", { cause: new RangeError("below zero") });
  },
  reject: () => Promise.reject(new PermanentError("never")),
  "throw null": () => {
    throw null;
  },
  "throw text": () => {
    throw "plain words";
  },
  "throw cyclic": () => {
    const error = new Error("round");
    error.cause = error;
    throw error;
  },
  "throw getter": () => {
    const error = new Error("x");
    Object.defineProperty(error, "message", {
      get() {
        throw new Error("no");
      },
    });
    throw error;
  },
  "throw aggregate": () => {
    throw new AggregateError([new Error("one"), new TypeError("two")], "both");
  },
  crash: () => {
    throw new Crash("the process dies");
  },
  exit: () => process.exit(3),
  "exit 0": () => process.exit(0),
  sigkill: async () => {
    process.kill(process.pid, "SIGKILL");
    await later(5_000);
  },
  sigsegv: async () => {
    process.kill(process.pid, "SIGSEGV");
    await later(5_000);
  },
  abort: () => process.abort(),
  "abort like oom": () => {
    console.error("my words: heap out of memory");
    process.exit(4);
  },
  heap: () => {
    for (;;) hold.push(new Array(10_000).fill(hold.length));
  },
  rss: async () => {
    for (;;) {
      hold.push(Buffer.alloc(8 * 1024 * 1024, 1));
      await later(1);
    }
  },
  "rss blocked": () => {
    for (let n = 0; n < 100; n++) hold.push(Buffer.alloc(8 * 1024 * 1024, 1));
    for (;;);
  },
  loop: () => {
    for (;;);
  },
  hang: () => new Promise(() => {}),
  overflow: () => overflow(0),
  "reject later": () => {
    setTimeout(() => void Promise.reject(new Error("too late")), 50);
  },
  "throw later": () => {
    setTimeout(() => {
      throw new Error("much too late");
    }, 50);
  },
  "exit later": () => {
    setTimeout(() => process.exit(5), 50);
  },
  "throw in a timer of its own": async () => {
    setTimeout(() => {
      throw new Error("while running");
    }, 20);
    await later(5_000);
  },
  disconnect: async () => {
    process.disconnect();
    await later(5_000);
  },
  "send garbage": () => {
    process.send("hello");
    process.send(["dlo"]);
    process.send({ dlo: 1 });
  },
  garbage: () => {
    process.stdout.write(Buffer.from([0xff, 0xfe, 0x00, 0x0a, 0x1b, 0x5b]));
    process.stdout.write("half a line");
    process.stderr.write("to stderr\n");
  },
  "tell context": (context) => {
    throw Object.assign(new Error(JSON.stringify({ ...context, signal: context.signal.aborted })), {
      code: "CONTEXT",
    });
  },
  "until aborted": (context) =>
    new Promise((done) => {
      context.signal.addEventListener("abort", () =>
        done(console.log(`aborted: ${context.signal.reason.code}`)),
      );
    }),
  "term me": async () => {
    process.kill(process.pid, "SIGTERM");
    await later(50);
  },
};

export default async function handler(message, context) {
  const { body } = message;
  if (typeof body === "object" && body !== null && "log" in body) {
    appendFileSync(body.log, `${body.say}\n`);
    return troubles[body.then ?? "ok"]?.(context);
  }
  return troubles[body]?.(context);
}
