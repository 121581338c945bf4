import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DloError } from "../../../src/core/index.ts";
import { listenOffice, type OfficeServer, type Outgoing, officeApp } from "../../../src/http/index.ts";
import { StoreDouble } from "../office/store.ts";
import { dlo, type Given } from "./run.ts";

let directory: string;
let server: OfficeServer;
let store: StoreDouble;
let sent: (Outgoing & { queue: string })[];
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "dlo-cli-"));
  store = new StoreDouble();
  sent = [];
  const app = officeApp({
    letters: store,
    command: "dlo work",
    workers: () => [
      { queue: "orders", maxAttempts: 3, concurrency: 2, isolate: "process", pid: 7, startedAt: Date.now() },
    ],
    send(queue, message) {
      if (message.bytes.length > 200)
        throw new DloError("BODY_TOO_LARGE", "the body has 201 bytes, the limit is 200");
      sent.push({ ...message, queue });
      return message.id ?? `made-${sent.length}`;
    },
  });
  server = await listenOffice(app, directory);
});
afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true, force: true });
});

const run = (line: string, given: Given = {}) =>
  dlo(line.split(" ").filter(Boolean), {
    ...given,
    cwd: directory,
    env: { DLO_DATA: directory, ...given.env },
  });
const bodies = () => sent.map((message) => Buffer.from(message.bytes).toString("utf8"));

describe("dlo ls", () => {
  it("is tab-separated in a pipe, a table on a terminal, one document or lines when asked", async () => {
    store.add({ id: "a\x1b[31m" }).add({ id: "b", reason: "poison", error: null, sourceQueue: "bills" });
    const piped = await run("ls");
    expect(piped.out.split("\n")[0]).toBe(
      "L0001\ta\\x1b[31m\torders\tpermanent\t1\t1970-01-01T00:00:02.001Z\tdead\tPermanentError: negative price",
    );
    const seen = await run("ls", { terminal: 100 });
    expect(seen.out).toContain("MESSAGE");
    expect(seen.out).toContain("a\\x1b[31m");
    expect(seen.out).not.toContain("\x1b");
    expect(JSON.parse((await run("ls --json")).out)).toHaveLength(2);
    const lines = (await run("ls --ndjson")).out.trim().split("\n");
    expect(lines.map((line) => JSON.parse(line).id)).toEqual(["a\x1b[31m", "b"]);
    expect((await run("ls --json --reason poison")).out).toContain('"letterId":"L0002"');
  });

  it("is a document that does nothing to a terminal either, with every value as it is", async () => {
    const id = "\x9b2J\x7f\u202e\u061c\u2028\ufeff\u{1f600}日本";
    store.add({ id, error: `Error: ${id}` });
    for (const line of [
      "ls --json",
      "ls --ndjson",
      "groups --json",
      "show L0001 --json",
      "replay --all --dry-run --json",
    ]) {
      const { out } = await run(line);
      expect(out).toMatch(/\\u009b2J\\u007f\\u202e\\u061c\\u2028\\ufeff\u{1f600}日本/u);
      expect(JSON.stringify(JSON.parse(out))).toContain(id);
    }
    const wrong = await run("\x1b[31mnonsense");
    expect(wrong.err).toContain("unknown command '\\x1b[31mnonsense'");
  });

  it("of nothing is an empty document, empty lines, and a word on a terminal", async () => {
    expect(await run("ls --json")).toEqual({ status: 0, out: "[]\n", err: "" });
    expect(await run("ls --ndjson")).toEqual({ status: 0, out: "", err: "" });
    expect(await run("ls")).toEqual({ status: 0, out: "", err: "" });
    expect(await run("ls", { terminal: 80 })).toEqual({ status: 0, out: "", err: "no letters here\n" });
  });

  it("shows a hundred on a terminal and says there are more; all in a pipe", async () => {
    for (let i = 0; i < 1101; i += 1) store.add({ id: `m${i}` });
    const seen = await run("ls", { terminal: 100 });
    expect(seen.out.trim().split("\n")).toHaveLength(101);
    expect(seen.err).toBe("the first 100 are shown; --limit shows more\n");
    expect((await run("ls")).out.trim().split("\n")).toHaveLength(1101);
    expect((await run("ls --limit 3")).out.trim().split("\n")).toHaveLength(3);
  });
});

describe("Ctrl-C", () => {
  it("ends a command that only looks at once", async () => {
    const stop = new AbortController();
    let release = (): void => {};
    store.page = () => {
      stop.abort();
      return new Promise((done) => {
        release = () => done([]);
      }) as never;
    };
    expect(await run("ls", { signal: stop.signal })).toEqual({ status: 130, out: "", err: "" });
    release();
  });
});

describe("dlo show", () => {
  it("lays the body out, keeps its numbers, and gives the exact bytes when asked", async () => {
    store.add({ id: "a", text: '{"n":9007199254740993}', entry: { stack: "Error: x\n    at y" } });
    const shown = await run("show a");
    expect(shown.out).toContain('  "n": 9007199254740993');
    expect(shown.out).toContain("    at y");
    expect((await run("show a --raw")).out).toBe('{"n":9007199254740993}');
    expect(JSON.parse((await run("show a --json")).out)).toMatchObject({
      body: '{"n":9007199254740993}',
      bodyEncoding: "utf8",
    });
    expect(await run("show nobody")).toMatchObject({
      status: 4,
      err: expect.stringMatching(/^dlo: no letter .*"nobody"/),
    });
  });
});

describe("dlo status and dlo groups", () => {
  it("tell queues, letters, workers and the owner", async () => {
    store.add({ id: "a" });
    expect((await run("status")).out).toBe("orders\t0\t0\t0\t1\n");
    const seen = await run("status", { terminal: 80 });
    expect(seen.err).toContain("1 dead letter, 0 on the way back, 0 replayed, 0 discarded");
    expect(seen.err).toContain("worker on orders: 2 at a time, 3 attempts, isolation process");
    expect(JSON.parse((await run("status --json")).out)).toMatchObject({
      letters: { dead: 1 },
      data: directory,
    });
  });

  it("count by cause, largest first", async () => {
    store
      .add({ id: "a", fingerprint: "one" })
      .add({ id: "b", fingerprint: "two" })
      .add({ id: "c", fingerprint: "two" });
    const rows = (await run("groups")).out.trim().split("\n");
    expect(rows.map((row) => row.split("\t").slice(0, 2))).toEqual([
      ["two", "2"],
      ["one", "1"],
    ]);
    expect(JSON.parse((await run("groups --json")).out)).toHaveLength(2);
  });
});

describe("dlo replay", () => {
  it("of one letter by its id goes at once; of more it needs --yes where nobody can answer", async () => {
    store.add({ id: "a" }).add({ id: "b" }).add({ id: "c" });
    expect(await run("replay a")).toMatchObject({ status: 0, err: "replayed 1 of 1 letter\n" });
    const refused = await run("replay --all");
    expect(refused.status).toBe(6);
    expect(refused.err).toContain("Replay 2 letters:\n  to orders: 2");
    expect(refused.err).toContain("dlo: this would replay 2 letters and nobody is there to ask; add --yes");
    expect(store.sent.map((s) => s.id)).toEqual(["a"]);
    expect(await run("redrive --all --yes")).toMatchObject({ status: 0 });
    expect(store.sent.map((s) => s.id)).toEqual(["a", "b", "c"]);
    expect(await run("replay --all --yes")).toMatchObject({ status: 0, err: "replayed 0 of 0 letters\n" });
  });

  it.each([
    ["y\n", 0, 2],
    ["yes\n", 0, 2],
    ["n\n", 6, 0],
    ["\n", 6, 0],
    ["", 6, 0],
  ])("asks on a terminal and takes %j for an answer", async (answer, status, count) => {
    store.add({ id: "a" }).add({ id: "b" });
    const ran = await run("replay --all", { asks: true, stdin: answer });
    expect(ran.err).toContain("Replay 2 letters? [y/N]");
    expect([ran.status, store.sent.length]).toEqual([status, count]);
  });

  it("says which were not sent and why, with a status that tells how much was done", async () => {
    store.add({ id: "a" }).add({ id: "b", sourceQueue: "gone" }).add({ id: "c", state: "replayed" });
    const partly = await run("replay a b c d a --yes");
    expect(partly.status).toBe(3);
    expect(partly.err).toContain("dlo: c: already replayed");
    expect(partly.err).toContain("dlo: d: no such letter");
    expect(partly.err).toContain('dlo: b: queue "gone" does not exist');
    expect(partly.err).toContain("replayed 1 of 4 letters");
    expect(await run("replay c")).toMatchObject({ status: 1 });
    expect(await run("replay nobody")).toMatchObject({ status: 4 });
    const json = await run("replay b --json");
    expect(json.status).toBe(1);
    expect(JSON.parse(json.out)).toEqual({
      replayed: 0,
      failed: [{ id: "b", why: 'queue "gone" does not exist' }],
      untouched: 0,
    });
  });

  it("takes ids from ls, a group, a query; looks only with --dry-run", async () => {
    store
      .add({ id: "a", fingerprint: "f1" })
      .add({ id: "b", fingerprint: "f2" })
      .add({ id: "c", attempts: 3 });
    const dry = await run("replay --where attempts:>=3 --dry-run");
    expect(dry).toMatchObject({ status: 0, err: expect.stringContaining("would replay 1 letter:") });
    expect(JSON.parse((await run("replay --all --dry-run --json")).out)).toMatchObject({
      letterIds: ["L0001", "L0002", "L0003"],
    });
    expect(store.sent).toEqual([]);
    const listed = (await run("ls --where attempts:>=3")).out;
    expect(await run("replay - --yes", { stdin: listed })).toMatchObject({ status: 0 });
    expect(await run("replay --group f2 --yes")).toMatchObject({ status: 0 });
    expect(store.sent.map((s) => s.id)).toEqual(["c", "b"]);
  });

  it("keeps the order and the rate of 50 a second: 100 letters take at least 1.9 s", async () => {
    for (let i = 0; i < 100; i += 1) store.add({ id: `n${i}` });
    const startedAt = performance.now();
    expect(await run("replay --all --rate 50/s --yes")).toMatchObject({ status: 0 });
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1900);
    expect(store.sent.map((s) => s.id)).toEqual(Array.from({ length: 100 }, (_, i) => `n${i}`));
  });

  it("stops between two letters when interrupted, and the same command goes on", async () => {
    for (let i = 0; i < 5; i += 1) store.add({ id: `n${i}` });
    const stop = new AbortController();
    const replay = store.replay.bind(store);
    store.replay = (ids, options) => {
      if (store.sent.length === 1) stop.abort();
      return replay(ids, options);
    };
    const stopped = await run("replay --all --rate 20/s --yes", { signal: stop.signal });
    expect(stopped.status).toBe(130);
    expect(stopped.err).toContain(
      "3 letters had no turn and are as they were; the same command goes on with them",
    );
    expect(await run("replay --all --yes")).toMatchObject({ status: 0, err: "replayed 3 of 3 letters\n" });
    expect(store.sent.map((s) => s.id)).toEqual(["n0", "n1", "n2", "n3", "n4"]);
  });

  it("of a letter that went back three times needs --force and a reason", async () => {
    store.add({ id: "a", replays: 3 });
    expect(await run("replay a")).toMatchObject({
      status: 1,
      err: expect.stringContaining("replayed 3 times already"),
    });
    expect(await run("replay a --force")).toMatchObject({
      status: 2,
      err: expect.stringContaining("--force needs --reason"),
    });
    expect(await run("replay a --force --reason mended")).toMatchObject({ status: 0 });
  });
});

describe("dlo discard", () => {
  it("asks even for one letter", async () => {
    store.add({ id: "a" });
    expect(await run("discard a")).toMatchObject({ status: 6 });
    expect(store.rows[0]?.summary.state).toBe("dead");
    expect(await run("discard a --yes")).toMatchObject({ status: 0, err: "discarded 1 of 1 letter\n" });
    expect(store.rows[0]?.summary.state).toBe("discarded");
  });
});

describe("dlo send", () => {
  it("sends a body exactly as given and prints its id", async () => {
    const text = '{"n":9007199254740993, "p":1.10}';
    expect(await dlo(["send", "orders", text], { env: { DLO_DATA: directory }, cwd: directory })).toEqual({
      status: 0,
      out: "made-1\n",
      err: "sent 1 message to orders\n",
    });
    expect(bodies()).toEqual([text]);
    expect(sent[0]?.contentType).toBe("application/json");
  });

  it("reads lines, ids out of them, and never drops one in silence", async () => {
    const stdin = '{"id":"a","n":1}\r\n\n{"id":"b"}\n{"id":"c"}';
    expect(await run("send orders - --id-from id", { stdin })).toMatchObject({ status: 0, out: "a\nb\nc\n" });
    expect(bodies()).toEqual(['{"id":"a","n":1}', '{"id":"b"}', '{"id":"c"}']);
  });

  it("takes many lines in their order", async () => {
    const lines = Array.from({ length: 1234 }, (_, i) => JSON.stringify({ i }));
    expect((await run("send orders - -q", { stdin: lines.join("\n") })).err).toBe(
      "sent 1,234 messages to orders\n",
    );
    expect(bodies()).toEqual(lines);
  });

  it("sends bytes as they are with --raw", async () => {
    const bytes = Buffer.from("ff00fe800a0a", "hex");
    expect(await run("send orders - --raw --id x", { stdin: bytes })).toMatchObject({
      status: 0,
      out: "x\n",
    });
    expect(Buffer.from(sent[0]?.bytes ?? []).equals(bytes)).toBe(true);
    expect(sent[0]?.contentType).toBe("application/octet-stream");
  });

  it.each([
    ["a bad line", '{"a":1}\n{"b":\n{"c":3}\n', 3, "line 2 is not JSON, at character 6", 1],
    ["the first line", "nonsense\n", 1, "line 1 is not JSON, at character 1", 0],
    ["a line that is not UTF-8", Buffer.from('{"a":1}\n\xff\n', "latin1"), 3, "line 2 is not UTF-8", 1],
    [
      "a body over the limit",
      `{}\n"${"x".repeat(300)}"\n{}\n`,
      3,
      "line 2: the body has 201 bytes, the limit is 200",
      1,
    ],
  ])("names %s, sends what stood before it and says so", async (_name, stdin, status, message, count) => {
    const ran = await run("send orders -", { stdin });
    expect(ran.status).toBe(status);
    expect(ran.err).toContain(`dlo: standard input, ${message}`);
    expect(ran.err).toContain(`sent ${count} message${count === 1 ? "" : "s"} to orders, none from there on`);
    expect(ran.err).not.toContain("nonsense");
    expect(sent).toHaveLength(count);
  });

  it.each([
    ['{"id":7}', 'the id at "id" is the number 7; expected a string'],
    ["{}", 'the id at "id" is missing'],
    ['{"id":""}', 'the id at "id" is empty'],
    ['{"id":{}}', 'the id at "id" is object'],
  ])("refuses the id of %s", async (stdin, message) => {
    const ran = await run("send orders - --id-from id", { stdin });
    expect(ran).toMatchObject({ status: 1, err: expect.stringContaining(message) });
    expect(sent).toEqual([]);
  });
});

describe("a user's mistake", () => {
  it.each([
    ["nonsense", 2, "dlo: unknown command 'nonsense'"],
    ["ls --colour", 2, "dlo: unknown option '--colour'"],
    ["ls --limit x", 2, '--limit is "x"; expected a whole number of at least 1'],
    ["ls --json --ndjson", 2, "--json and --ndjson exclude each other"],
    [
      "ls --where reason:typo",
      2,
      'query, at character 1: reason has no value "typo"; expected one of permanent',
    ],
    ["show", 2, "dlo: missing required argument 'id'"],
    ["replay", 2, "which letters? expected either ids, -, --group, --where or --all"],
    ["replay a --all", 2, "too many ways to select letters"],
    ["replay a --rate fast", 2, '--rate is "fast"; expected a rate above 0 such as 20/s or 100/m'],
    ["replay --all --yes --to ordres", 4, 'there is no queue "ordres" to send to (queues here: orders)'],
    ["replay --group zz --yes", 4, 'no group of dead letters with the id "zz"'],
    ["send orders nonsense", 1, "the body is not JSON, at character 1; expected one JSON value"],
    ["send orders - --id x", 2, "--id names one message, and - sends one for each line; use --id-from FIELD"],
  ])("dlo %s is one line that names it", async (line, status, message) => {
    store.add({ id: "a" });
    const ran = await run(line);
    expect(ran.status).toBe(status);
    expect(ran.err).toContain(message);
    expect(ran.err).toMatch(/^(dlo: .*\n)(\(Did you mean .*\n|sent 0 messages.*\n)?$/);
    expect(ran.out).toBe("");
    expect([store.sent, sent]).toEqual([[], []]);
  });

  it("in a setting names where the setting came from", async () => {
    store.add({ id: "a" });
    expect(await run("replay a", { env: { DLO_RATE: "-1" } })).toMatchObject({
      status: 2,
      err: 'dlo: DLO_RATE is "-1"; expected a rate above 0 such as 20/s or 100/m\n',
    });
    writeFileSync(join(directory, "dlo.config.json"), '{"rate":"often"}');
    expect((await run("replay a")).err).toContain('rate in dlo.config.json is "often"');
    expect((await run("replay a --rate 9/s")).status).toBe(0);
    writeFileSync(join(directory, "dlo.config.json"), '{"raet":1}');
    expect((await run("ls")).err).toContain(
      'dlo.config.json has an unknown setting "raet"; expected one of data,',
    );
    writeFileSync(join(directory, "dlo.config.json"), "{");
    expect((await run("ls")).err).toContain("dlo.config.json cannot be read");
  });

  it("in the data directory is not found, and makes nothing", async () => {
    const nowhere = join(directory, "typo");
    const ran = await run(`ls --data ${nowhere}`);
    expect(ran).toMatchObject({ status: 4, err: expect.stringContaining(`there is no data in ${nowhere}`) });
  });
});

describe("help and version", () => {
  it("go to standard output", async () => {
    expect(await dlo(["version"])).toMatchObject({
      status: 0,
      out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
      err: "",
    });
    const help = await dlo(["--help"]);
    expect(help).toMatchObject({ status: 0, err: "" });
    expect(help.out).toContain("replay|redrive");
    expect((await dlo(["replay", "--help"])).out).toContain("--rate <n/s>");
    expect((await dlo(["help", "send"])).out).toContain("--id-from");
    expect((await dlo([])).status).toBe(0);
  });
});
