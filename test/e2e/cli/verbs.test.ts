import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { writeHandler } from "./handlers.ts";
import { type Ended, MAIN, Running, until } from "./spawn.ts";

let folder: string;
let started: Running[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-e2e-"));
  started = [];
  writeHandler(folder);
});
afterEach(async () => {
  for (const one of started) {
    if (one.process.exitCode === null) one.process.kill("SIGKILL");
    await one.ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

const start = (
  args: readonly string[],
  options: { env?: Record<string, string>; stdin?: string } = {},
): Running => {
  const running = new Running([MAIN, ...args], { cwd: folder, ...options });
  started.push(running);
  return running;
};
const dlo = (args: readonly string[], stdin = "", env: Record<string, string> = {}): Promise<Ended> =>
  start(args, { stdin, env }).ended;
const work = (...more: string[]): string[] => [
  "work",
  "--queue",
  "orders",
  "--handler",
  "handler.mjs",
  "--backoff",
  "50ms",
  ...more,
];
const seen = (): string[] =>
  existsSync(join(folder, "seen.log"))
    ? readFileSync(join(folder, "seen.log"), "utf8").trim().split("\n")
    : [];
const ids = (listed: Ended): string[] =>
  listed.out
    .split("\n")
    .filter(Boolean)
    .map((line) => line.split("\t")[1] as string);
const lines = (bodies: readonly Record<string, unknown>[]): string =>
  bodies.map((body) => JSON.stringify(body)).join("\n");

describe("the first verbs on a real data directory", () => {
  it("send, work, look, mend, replay, and the letters are gone", async () => {
    const sent = await dlo(
      ["send", "orders", "-", "--id-from", "id"],
      lines([
        { id: "good", do: "nothing" },
        { id: "bad", do: "permanent", price: -1 },
        { id: "flaky", do: "once" },
        { id: "down", do: "fail", host: "db-1" },
      ]),
    );
    expect(sent).toMatchObject({ status: 0, out: "good\nbad\nflaky\ndown\n" });
    expect(statSync(join(folder, ".dlo")).mode & 0o777).toBe(0o700);
    expect((await dlo(["status"])).out).toBe("orders\t4\t0\t0\t0\n");

    const worked = await dlo(work("--until-empty"));
    expect(worked).toMatchObject({ status: 0, err: expect.stringContaining("handled 2, retried 3, dead 2") });
    expect((await dlo(["status"])).out).toBe("orders\t0\t0\t0\t2\n");
    const listed = await dlo(["ls"]);
    expect(ids(listed)).toEqual(["bad", "down"]);
    expect(listed.out).toContain("PermanentError: negative price -1");
    expect(JSON.parse((await dlo(["ls", "--json", "--reason", "exhausted"])).out)).toMatchObject([
      { id: "down", attempts: 3, error: "Error: no answer from db-1", sourceQueue: "orders" },
    ]);
    const shown = await dlo(["show", "down"]);
    expect(shown.out).toContain('"host": "db-1"');
    expect(shown.out.match(/^ {2}\d\. .* failed/gm)).toHaveLength(3);
    expect((await dlo(["groups"])).out.trim().split("\n")).toHaveLength(2);

    writeFileSync(join(folder, "fixed"), "");
    expect(await dlo(["replay", "--all"])).toMatchObject({ status: 6 });
    expect(await dlo(["replay", "--all", "--yes"])).toMatchObject({
      status: 0,
      err: "replayed 2 of 2 letters\n",
    });
    expect(await dlo(work("--until-empty"))).toMatchObject({ status: 0 });
    expect((await dlo(["ls", "--json"])).out).toBe("[]\n");
    const again = await dlo(["replay", "bad"]);
    expect(again).toMatchObject({ status: 1, err: expect.stringContaining("bad: already replayed") });
    expect(
      seen()
        .filter((line) => line.startsWith("end"))
        .sort(),
    ).toEqual(["end bad", "end down", "end flaky", "end good"]);
  });

  it("keep a body byte for byte, from the sender to the letter", async () => {
    const text = '{"do":"permanent","n":9007199254740993, "price":1.10}';
    await dlo(["send", "orders", text, "--id", "exact"]);
    await dlo(["send", "orders", "-", "--raw", "--id", "bytes"], "\u0000\u001b[31m not json");
    await dlo(work("--until-empty", "--max-attempts", "1"));
    expect((await dlo(["show", "exact", "--raw"])).out).toBe(text);
    expect((await dlo(["show", "exact"])).out).toContain('"n": 9007199254740993,\n    "price": 1.10');
    await dlo(["replay", "exact"]);
    await dlo(work("--until-empty", "--max-attempts", "1"));
    expect((await dlo(["show", "exact", "--raw"])).out).toBe(text);
    const shown = await dlo(["show", "exact"]);
    expect(shown.out).toContain("earlier lives");
  });

  it("send a hundred letters back in the order they died, also those of one millisecond", async () => {
    const many = Array.from({ length: 100 }, (_, i) => ({ id: `n${i}`, do: "permanent" }));
    await dlo(["send", "orders", "-", "--id-from", "id", "-q"], lines(many));
    expect(await dlo(work("--until-empty", "--isolate", "none"))).toMatchObject({ status: 0 });
    const died = ids(await dlo(["ls"]));
    expect(died).toEqual(many.map(({ id }) => id));
    writeFileSync(join(folder, "fixed"), "");
    // Asked for in another order, and one of them twice: the order of death decides.
    const asked = `${[...died].reverse().join("\n")}\nn7\n`;
    expect(await dlo(["replay", "-", "--yes"], asked)).toMatchObject({
      err: "replayed 100 of 100 letters\n",
    });
    expect(await dlo(work("--until-empty", "--isolate", "none"))).toMatchObject({ status: 0 });
    expect(seen().filter((line) => line.startsWith("end"))).toEqual(died.map((id) => `end ${id}`));
  });

  it("name a pill that kills its process, a hang, and harm nobody else", async () => {
    await dlo(
      ["send", "orders", "-", "--id-from", "id"],
      lines([
        { id: "one", do: "nothing" },
        { id: "pill", do: "kill" },
        { id: "two", do: "nothing" },
        { id: "hang", do: "hang" },
        { id: "three", do: "nothing" },
      ]),
    );
    const worked = await dlo(
      work("--until-empty", "--concurrency", "2", "--timeout", "700ms", "--max-attempts", "2"),
    );
    expect(worked.status).toBe(0);
    const letters = JSON.parse((await dlo(["ls", "--json"])).out) as {
      id: string;
      reason: string;
      error: string;
    }[];
    expect(letters.find((l) => l.id === "pill")).toMatchObject({
      reason: "poison",
      error: null,
      attempts: 2,
    });
    expect(letters.find((l) => l.id === "hang")).toMatchObject({ reason: "exhausted", attempts: 2 });
    expect(letters.find((l) => l.id === "hang")?.error).toMatch(/700/);
    expect(letters).toHaveLength(2);
    expect(
      seen()
        .filter((line) => line.startsWith("end"))
        .sort(),
    ).toEqual(["end one", "end three", "end two"]);
    expect((await dlo(["show", "pill"])).out).toMatch(/SIGKILL/);
  });
});

describe("beside a running worker", () => {
  it("ls, show, send, replay and status go through its socket", async () => {
    await dlo(["send", "orders", '{"do":"permanent"}', "--id", "first"]);
    const worker = start(work());
    await worker.says(/message first is dead/);
    expect(statSync(join(folder, ".dlo/office.sock")).mode & 0o777).toBe(0o600);
    expect(ids(await dlo(["ls"]))).toEqual(["first"]);
    expect((await dlo(["show", "first"])).status).toBe(0);
    const status = JSON.parse((await dlo(["status", "--json"])).out);
    expect(status.owner).toMatchObject({ pid: worker.process.pid, command: "dlo work" });
    expect(status.workers).toMatchObject([{ queue: "orders", maxAttempts: 3 }]);
    expect(await dlo(["send", "orders", '{"do":"nothing"}', "--id", "second"])).toMatchObject({ status: 0 });
    await until("second is handled", () => seen().includes("end second"));
    writeFileSync(join(folder, "fixed"), "");
    expect(await dlo(["replay", "first"])).toMatchObject({ status: 0 });
    await until("first is handled", () => seen().includes("end first"));
    expect((await dlo(["ls", "--json"])).out).toBe("[]\n");
    expect(await worker.kill("SIGTERM")).toMatchObject({ status: 0, err: expect.stringContaining("dead 1") });
    expect(existsSync(join(folder, ".dlo/office.sock"))).toBe(false);
  });

  it("two commands that replay the same letter send it once, and one says why not", async () => {
    await dlo(["send", "orders", '{"do":"permanent"}', "--id", "only"]);
    const worker = start(work());
    await worker.says(/message only is dead/);
    writeFileSync(join(folder, "fixed"), "");
    const both = await Promise.all([dlo(["replay", "only"]), dlo(["replay", "--all", "--yes"])]);
    await until("it is handled", () => seen().includes("end only"));
    await until("nothing waits", async () => (await dlo(["status"])).out.startsWith("orders\t0\t0\t0"));
    expect(seen().filter((line) => line === "end only")).toHaveLength(1);
    expect(both.filter((one) => /replayed 1 of 1/.test(one.err))).toHaveLength(1);
    await worker.kill("SIGTERM");
  });

  it("a second worker is refused; where they disagree about max attempts both numbers are named", async () => {
    const worker = start(work());
    await worker.says(/working on orders/);
    const other = await dlo(work("--max-attempts", "5"));
    expect(other.status).toBe(6);
    expect(other.err).toContain('queue "orders" has a worker with max attempts 3 (process ');
    expect(other.err).toContain("this one asks for 5");
    const same = await dlo(work());
    expect(same).toMatchObject({ status: 5, err: expect.stringContaining(`process ${worker.process.pid}`) });
    await worker.kill("SIGTERM");
  });

  it("works where the data directory's path is longer than a socket address", async (ctx) => {
    if (process.platform !== "linux") ctx.skip("needs /proc: elsewhere a long path is refused");
    const data = join(folder, ...Array.from({ length: 4 }, () => "long".repeat(12)), "data");
    const worker = start([...work(), "--data", data]);
    await worker.says(/working on orders/);
    expect(await dlo(["send", "orders", '{"do":"permanent"}', "--data", data, "--id", "x"])).toMatchObject({
      status: 0,
    });
    await worker.says(/message x is dead/);
    expect(ids(await dlo(["ls", "--data", data]))).toEqual(["x"]);
    await worker.kill("SIGTERM");
  });
});

describe("the end of a worker", () => {
  it("by SIGTERM lets what runs end, starts nothing new, loses and doubles nothing", async () => {
    const many = Array.from({ length: 20 }, (_, i) => ({ id: `m${i}`, do: "wait", ms: 300 }));
    await dlo(["send", "orders", "-", "--id-from", "id"], lines(many));
    const worker = start(work("--concurrency", "2"));
    await until("two are running", () => seen().filter((line) => line.startsWith("start")).length >= 2);
    expect(await worker.kill("SIGTERM")).toMatchObject({ status: 0 });
    const startedBefore = seen().filter((line) => line.startsWith("start")).length;
    expect(seen().filter((line) => line.startsWith("end"))).toHaveLength(startedBefore);
    expect(await dlo(work("--until-empty", "--concurrency", "4"))).toMatchObject({ status: 0 });
    const ended = seen().filter((line) => line.startsWith("end"));
    expect(ended).toHaveLength(20);
    expect(new Set(ended).size).toBe(20);
  });

  it("by a second signal is at once", async () => {
    await dlo(["send", "orders", '{"do":"wait","ms":60000}', "--id", "long"]);
    const worker = start(work());
    await until("it runs", () => seen().length > 0);
    worker.process.kill("SIGINT");
    await worker.says(/stopping/);
    expect(await worker.kill("SIGINT")).toMatchObject({ status: 130 });
    expect((await dlo(["status"])).out).toBe("orders\t1\t0\t0\t0\n");
  });

  it("by SIGKILL leaves everything to the next command and the next worker", async () => {
    await dlo(
      ["send", "orders", "-", "--id-from", "id"],
      lines([
        { id: "dead", do: "permanent" },
        { id: "slow", do: "wait", ms: 1500 },
        { id: "behind", do: "nothing" },
      ]),
    );
    const worker = start(work());
    await until("the slow one runs", () => seen().some((line) => line.startsWith("start slow")));
    await worker.kill("SIGKILL");
    expect(existsSync(join(folder, ".dlo/office.sock"))).toBe(true);
    expect(ids(await dlo(["ls"]))).toEqual(["dead"]);
    expect((await dlo(["status"])).out).toBe("orders\t2\t0\t0\t1\n");
    expect(await dlo(work("--until-empty"))).toMatchObject({ status: 0 });
    const ended = seen().filter((line) => line.startsWith("end"));
    expect(ended).toContain("end slow");
    expect(ended).toContain("end behind");
    expect(ids(await dlo(["ls"]))).toEqual(["dead"]);
  });
});

describe("a mistake is one line that names it, and touches nothing", () => {
  it.each([
    [["work", "--queue", "q", "--handler", "nowhere.mjs"], 2, /handler file .*nowhere\.mjs does not exist/],
    [["work", "--queue", "q", "--handler", "."], 2, /handler .* is not a file/],
    [["work", "--handler", "handler.mjs"], 2, /which queue\? expected --queue \(or DLO_QUEUE\)/],
    [["work", "--queue", "q"], 2, /which handler\?/],
    [work("--max-attempts", "0"), 2, /--max-attempts is "0"; expected a whole number of at least 1/],
    [work("--concurrency", "many"), 2, /--concurrency is "many"/],
    [work("--timeout", "30"), 2, /--timeout is "30"; expected a duration with a unit/],
    [work("--isolate", "thread"), 2, /--isolate is "thread"; expected "process" or "none"/],
    [work("--backoff", "soon"), 2, /--backoff is "soon"/],
    [work("--url", "amqp://user:secret@127.0.0.1:1"), 2, /DLO_URL/],
    [["ls"], 4, /there is no data in .*\.dlo/],
    [["send", "q", "{"], 1, /the body is not JSON/],
  ])("dlo %j", async (args, status, message) => {
    const ran = await dlo(args as string[]);
    expect(ran.status).toBe(status);
    expect(ran.err).toMatch(message as RegExp);
    expect(ran.err.split("\n")[0]).toMatch(/^dlo: /);
    expect(ran.err).not.toMatch(/^ {4}at /m);
    expect(ran.err).not.toContain("secret");
    expect(existsSync(join(folder, ".dlo"))).toBe(false);
  });

  it("a handler file without a function is named, with what it exports", async () => {
    writeFileSync(join(folder, "empty.mjs"), "export const something = 1;\n");
    await dlo(["send", "orders", "{}", "--id", "waits"]);
    for (const isolate of ["process", "none"]) {
      const ran = await dlo(["work", "--queue", "orders", "--handler", "empty.mjs", "--isolate", isolate]);
      expect(ran).toMatchObject({ status: 2, err: expect.stringMatching(/empty\.mjs.*exports no function/) });
    }
    expect((await dlo(["status"])).out).toBe("orders\t1\t0\t0\t0\n");
  });

  it("a body over the limit is named with both sizes, and what stood before it is sent", async () => {
    const big = JSON.stringify("x".repeat(20 * 1024 * 1024));
    const ran = await dlo(["send", "orders", "-"], `{}\n${big}\n{}\n`);
    expect(ran.status).toBe(3);
    expect(ran.err).toMatch(/line 2.*bytes/);
    expect((await dlo(["status"])).out).toBe("orders\t1\t0\t0\t0\n");
  });

  it("a reader that goes away is no failure", async () => {
    const many = Array.from({ length: 3000 }, (_, i) => ({
      id: `m${i}`,
      do: "permanent",
      pad: "x".repeat(100),
    }));
    await dlo(["send", "orders", "-", "-q"], lines(many));
    await dlo(work("--until-empty", "--isolate", "none"));
    const listing = start(["ls", "--ndjson"]);
    listing.process.stdout?.destroy();
    expect(await listing.ended).toMatchObject({ status: 0, err: "" });
  });
});
