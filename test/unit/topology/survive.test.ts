// What real files lack, hold besides, or get wrong.
import { describe, expect, it } from "vitest";
import { examine } from "../../../src/topology/index.ts";
import { b, doc, p, q, x } from "./build.ts";

const codes = (input: string | object, vhost?: string): string[] =>
  examine(input)
    .findings.filter((finding) => vhost === undefined || finding.vhost === vhost)
    .map((finding) => `${finding.code} ${finding.object}`);

describe("a file", () => {
  it("without vhost keys is one unnamed virtual host, or the one that is declared", () => {
    const bare = { queues: [{ name: "work", arguments: { "x-dead-letter-exchange": "gone" } }] };
    expect(examine(bare).findings.find((f) => f.code === "dlx-not-declared")?.vhost).toBe("");
    const one = examine({ ...bare, vhosts: [{ name: "shop" }] });
    expect(one.findings.find((f) => f.code === "dlx-not-declared")?.vhost).toBe("shop");
  });

  it("with several virtual hosts is judged in each, and a DLX never crosses", () => {
    const two = doc(
      x("dlx", "fanout", { vhost: "a" }),
      q("dlq", {}, { vhost: "a" }),
      { ...b("dlx -> dlq"), vhost: "a" },
      q("work", { dlx: "dlx" }, { vhost: "a" }),
      q("work", { dlx: "dlx" }, { vhost: "b" }),
    );
    expect(codes(two, "a")).not.toContain("dlx-not-declared work");
    const why = examine(two).findings.find((f) => f.code === "dlx-not-declared")?.why;
    expect(why).toContain("exists in vhost 'a'");
  });

  it("with nothing but users, or with missing and extra keys, is no fault", () => {
    expect(examine({ users: [{ name: "u" }], vhosts: [{ name: "/" }], _comment: "x" }).findings).toEqual([]);
    const sparse = {
      "//": "by hand",
      _planned_queues: ["x"],
      queues: [{ name: "work", vhost: "/", type: "quorum" }, null, 5],
      policies: [{ name: "p", vhost: "/", pattern: "", definition: { "delivery-limit": 3 } }],
    };
    const report = examine(sparse);
    expect(report.queues.map((queue) => queue.type)).toEqual(["quorum"]);
    expect(report.findings.map((f) => f.code)).toContain("delivery-limit-without-dlx");
    expect(report.notes.join("\n")).toMatch(/2 entries of "queues" are not objects/);
  });

  it("with a byte order mark and trailing commas is read, and the notes say who refuses it", () => {
    const text = '\ufeff{"queues":[{"name":"q","durable":true,"auto_delete":false,},],}';
    const { notes, queues } = examine(text);
    expect(queues.length).toBe(1);
    expect(notes.join("\n")).toMatch(
      /byte order mark[\s\S]*3 trailing commas \(first at line 1, column 58\)/,
    );
  });

  it("that names something like a prototype key does no harm", () => {
    const text =
      '{"queues":[{"name":"__proto__","arguments":{"__proto__":{"x-message-ttl":5},"constructor":1}}],"__proto__":{"queues":1}}';
    expect(examine(text).queues.map((queue) => queue.queue)).toEqual(["__proto__"]);
  });

  it("nested without end is refused with a place, not with a stack", () => {
    const report = examine(`{"a":${"[".repeat(100_000)}`);
    expect(report.findings[0]?.code).toBe("definitions-unreadable");
  });

  it("with an explosive policy pattern does not hang", () => {
    const long = "a".repeat(200);
    const report = examine(doc(q(`${long}!`), p("slow", "^(a+)+$", { "message-ttl": 5 })));
    expect(report.findings.find((f) => f.code === "policy-pattern-invalid")?.severity).toBe("info");
  });

  it("with a pattern that cannot be evaluated makes its queues' letters unknown, not lost", () => {
    const report = examine(doc(q("work"), p("pcre", "^(?>work)$", { "dead-letter-exchange": "dlx" })));
    expect(report.queues[0]!.letters.map((letter) => letter.ends)).toEqual(["unknown"]);
  });
});
