import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Readable } from "node:stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { runCli } from "../../../src/cli/index.ts";
import { DOCTOR_CODES, type Report } from "../../../src/topology/index.ts";
import { b, doc, p, q, x } from "../topology/build.ts";

let folder: string;
const servers: Server[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-doctor-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  for (const server of servers.splice(0)) server.close();
});

async function dlo(args: string[], input = ""): Promise<{ status: number; out: string; err: string }> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  let out = "";
  let err = "";
  stdout.on("data", (chunk) => (out += chunk));
  stderr.on("data", (chunk) => (err += chunk));
  const status = await runCli(["doctor", ...args], {
    stdin: Readable.from([input]),
    stdout,
    stderr,
    env: {},
    cwd: folder,
    signal: new AbortController().signal,
  });
  return { status, out, err };
}

function file(content: unknown, name = "definitions.json"): string {
  writeFileSync(join(folder, name), typeof content === "string" ? content : JSON.stringify(content));
  return name;
}

const clean = doc(q("work", { dlx: "", dlrk: "dlq" }), q("dlq"));
const warned = doc(q("work", { ttl: 5 }));
const broken = doc(q("work", { dlx: "gone" }));

/** A management API that serves lists, and says what it was asked. */
async function managed(
  lists: Record<string, unknown>,
  answer?: (path: string) => number | undefined,
): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const path = request.url!.split("?")[0]!;
    asked.push(path);
    const status = answer?.(path) ?? (path in lists ? 200 : 404);
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(status === 200 ? lists[path] : { error: "no" }));
  });
  servers.push(server);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://user:s3cret@127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

const listsOf = (
  document: Record<string, unknown>,
  live: Record<string, object> = {},
): Record<string, unknown> => ({
  "/api/overview": { rabbitmq_version: "3.13.7" },
  "/api/queues": (document["queues"] as { name: string }[]).map((queue) => ({
    consumers: 1,
    messages_ready: 0,
    effective_policy_definition: {},
    ...queue,
    ...live[queue.name],
  })),
  "/api/exchanges": document["exchanges"],
  "/api/bindings": document["bindings"],
  "/api/policies": document["policies"],
  "/api/operator-policies": [],
});

describe("dlo doctor", () => {
  it("exits 0 when clean, 10 at or above --fail-on, and prints the way before the findings", async () => {
    expect((await dlo([file(clean)])).status).toBe(0);
    const { status, out } = await dlo([file(broken)]);
    expect(status).toBe(10);
    expect(out.indexOf("Where letters end")).toBeLessThan(out.indexOf("Findings"));
    expect(out).toContain("nowhere");
    expect((await dlo([file(warned)])).status).toBe(10);
    expect((await dlo([file(warned), "--fail-on", "error"])).status).toBe(0);
    expect((await dlo([file(clean), "--fail-on", "info"])).status).toBe(10);
  });

  it("reads standard input", async () => {
    expect((await dlo(["-"], JSON.stringify(broken))).status).toBe(10);
  });

  it("exits 2 with line and column for a text that is no JSON, without a stack", async () => {
    const { status, err } = await dlo([file("{\n  # queues\n}")]);
    expect(status).toBe(2);
    expect(err).toMatch(/definitions\.json: line 2, column 3: a # comment line/);
    expect(err).not.toMatch(/\n\s+at /);
    const json = await dlo([file("[]"), "--json"]);
    expect(json.status).toBe(2);
    expect((JSON.parse(json.out) as Report).unreadable).toEqual({ line: 1, column: 1 });
  });

  it("exits 2 for a file that is not there and for options that are none", async () => {
    expect((await dlo(["absent.json"])).status).toBe(2);
    expect((await dlo([file(clean), "--fail-on", "fatal"])).status).toBe(2);
    expect((await dlo([file(clean), "--broker-version", "new"])).status).toBe(2);
    expect((await dlo(["ftp://host"])).status).toBe(2);
  });

  it("exits 5 when the broker cannot be asked, and never shows the password", async () => {
    const gone = await dlo(["http://user:s3cret@127.0.0.1:1"]);
    expect(gone.status).toBe(5);
    const { url } = await managed({}, () => 401);
    const refused = await dlo([url]);
    expect(refused.status).toBe(5);
    expect(refused.err).toContain("refuses user 'user'");
    expect(gone.err + refused.err).not.toContain("s3cret");
  });

  it("prints nothing secret: users, permissions, parameters, URIs", async () => {
    const secret = "hunter2-plain-secret";
    const planted = {
      ...broken,
      users: [{ name: secret, password: secret, password_hash: secret, tags: "administrator" }],
      permissions: [{ user: secret, vhost: "/", configure: secret, write: ".*", read: ".*" }],
      topic_permissions: [{ user: secret }],
      parameters: [
        { component: "shovel", vhost: "/", name: "s", value: { "src-uri": `amqp://u:${secret}@host` } },
        {
          component: "federation-upstream",
          vhost: "/",
          name: "f",
          value: { uri: `amqp://u:${secret}@host` },
        },
      ],
      global_parameters: [{ name: "x", value: secret }],
    };
    for (const args of [[], ["--json"]]) {
      const { out, err } = await dlo([file(planted), ...args]);
      expect(out).toContain("gone");
      expect(out + err).not.toContain(secret);
    }
  });

  it("escapes control characters of names", async () => {
    const { out } = await dlo([file(doc(q("evil\u001b[2J\nqueue", { dlx: "gone\u0007" })))]);
    expect(out).not.toMatch(/[\u001b\u0007]/);
    expect(out).toContain("evil\\x1b[2J\\nqueue");
  });

  it("takes an allow-list, given or beside the file, and refuses one without a reason", async () => {
    const rules = [{ queue: "w*", code: "expiry-without-dlx", reason: "readings may go" }];
    file(warned);
    file(rules, "wanted.json");
    expect((await dlo(["definitions.json", "--allow", "wanted.json"])).status).toBe(0);
    file(rules, "definitions.allow.json");
    const { status, out } = await dlo(["definitions.json", "--json"]);
    expect(status).toBe(0);
    expect((JSON.parse(out) as Report).allowed.map((finding) => finding.allowedBecause)).toEqual([
      "readings may go",
    ]);
    file([{ queue: "w*", code: "expiry-without-dlx" }], "bad.json");
    expect((await dlo(["definitions.json", "--allow", "bad.json"])).status).toBe(2);
    file([{ queue: "w*", code: "no-such-code", reason: "x" }], "bad.json");
    expect((await dlo(["definitions.json", "--allow", "bad.json"])).err).toContain("no-such-code");
  });

  it("lowers what a partial file does not declare", async () => {
    file(broken);
    expect((await dlo(["definitions.json", "--fail-on", "error"])).status).toBe(10);
    const { status, out } = await dlo(["definitions.json", "--partial", "--fail-on", "error"]);
    expect(status).toBe(0);
    expect(out).toContain("declared elsewhere");
  });

  it("asks a live broker for lists only, never for definitions, and says what it sees there", async () => {
    const live = doc(x("dlx", "fanout"), q("work", { dlx: "dlx" }), q("dlq"), b("dlx -> dlq"));
    const { url, asked } = await managed(
      listsOf(live, {
        dlq: { consumers: 0, messages_ready: 7 },
        work: { consumers: 0, messages_ready: 3, messages_dlx: 2 },
      }),
    );
    const { status, out } = await dlo([url, "--json"]);
    const report = JSON.parse(out) as Report;
    expect(status).toBe(0);
    expect(report.brokerVersion).toBe("3.13.7");
    expect(report.observations.map((seen) => [seen.queue, seen.what, seen.messages])).toEqual([
      ["work", "letters-stuck", 2],
      ["work", "no-consumer", 3],
      ["dlq", "letters-unattended", 7],
    ]);
    expect(asked.filter((path) => /definitions|users|permissions/.test(path))).toEqual([]);
  });

  it("lets the broker settle a tie, and does with its effective policy where policies may not be listed", async () => {
    const tied = doc(
      x("dlx", "fanout"),
      q("work"),
      q("dlq"),
      b("dlx -> dlq"),
      p("a", "^work$", { "dead-letter-exchange": "dlx" }),
      p("c", "^work$", { "message-ttl": 5 }),
    );
    const seen = { work: { policy: "a", effective_policy_definition: { "dead-letter-exchange": "dlx" } } };
    const lists = listsOf(tied, seen);
    for (const answer of [undefined, (path: string) => (path.includes("policies") ? 401 : undefined)]) {
      const { url } = await managed(lists, answer);
      const report = JSON.parse((await dlo([url, "--json"])).out) as Report;
      const work = report.queues.find((queue) => queue.queue === "work")!;
      expect(work.letters.map((letter) => [letter.ends, letter.at])).toEqual([["queue", "dlq"]]);
      expect(work.settings["dlx"]!.source).toBe("policy a");
    }
  });

  it("holds a file against a broker: arguments an import did not change, bindings it dropped", async () => {
    const told = doc(
      x("dlx", "fanout"),
      q("work", { dlx: "dlx" }),
      q("dlq"),
      b("dlx -> dlq"),
      b("dlx -> gone"),
    );
    const real = doc(x("dlx", "fanout"), q("work", { dlx: "old" }), q("dlq"), b("dlx -> dlq"));
    const { url } = await managed(listsOf(real));
    const { status, out } = await dlo([file(told), "--against", url, "--json"]);
    expect(status).toBe(10);
    const { differences } = JSON.parse(out) as { differences: { what: string; object: string }[] };
    expect(differences.map((one) => [one.what, one.object])).toEqual([
      ["argument-differs", "work"],
      ["binding-missing", "gone"],
    ]);
  });
});

describe("docs/reference/doctor.md", () => {
  it("explains every code and no other", () => {
    const page = readFileSync(join(import.meta.dirname, "../../../docs/reference/doctor.md"), "utf8");
    const headings = [...page.matchAll(/^### `([a-z0-9-]+)`/gm)].map((match) => match[1]);
    expect(headings.sort()).toEqual([...DOCTOR_CODES].sort());
  });
});
