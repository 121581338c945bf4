import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { examine, type Finding, type Report } from "../../../src/topology/index.ts";

const folder = join(import.meta.dirname, "../../data/doctor");

interface Expected {
  code: string;
  severity: string;
  vhost: string;
  object: string;
}
interface Case {
  file: string;
  title: string;
  expect: Expected[];
  mustNotReport?: string[];
  mustNotReportOn?: { code: string; object: string }[];
  anyObject?: string[];
  clean?: boolean;
  brokerVersion?: string;
}

const cases = JSON.parse(readFileSync(join(folder, "cases.json"), "utf8")) as Case[];

const about = (finding: Finding): readonly string[] => finding.objects ?? [finding.object];

function judge(one: Case): Report {
  const text = readFileSync(join(folder, one.file), "utf8");
  return examine(text, one.brokerVersion ? { brokerVersion: one.brokerVersion } : {});
}

describe("the doctor's cases", () => {
  it.each(cases)("$file: $title", (one) => {
    const { findings } = judge(one);
    const said = findings.map((f) => `${f.severity} ${f.code} ${f.vhost} ${about(f).join("+")}`);
    for (const wanted of one.expect) {
      const found = findings.some(
        (f) =>
          f.code === wanted.code &&
          f.severity === wanted.severity &&
          f.vhost === wanted.vhost &&
          (f.object === wanted.object || one.anyObject?.includes(f.code)),
      );
      expect(found, `${JSON.stringify(wanted)} in\n${said.join("\n")}`).toBe(true);
    }
    const codes = findings.map((f) => f.code as string);
    for (const code of one.mustNotReport ?? []) expect(codes).not.toContain(code);
    for (const { code, object } of one.mustNotReportOn ?? []) {
      expect(findings.filter((f) => f.code === code && about(f).includes(object))).toEqual([]);
    }
    if (one.clean) expect(findings.filter((f) => f.severity !== "info")).toEqual([]);
  });

  it("would fail if the doctor said nothing, and there are cases at all", () => {
    expect(cases.length).toBeGreaterThanOrEqual(15);
    expect(cases.every((one) => one.expect.length > 0)).toBe(true);
  });
});
