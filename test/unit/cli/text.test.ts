import { parse } from "lossless-json";
import { describe, expect, it } from "vitest";
import { hexLines, prettyJson } from "../../../src/cli/commands/show.ts";
import { tableLines } from "../../../src/cli/output.ts";
import { cutTo, escapeField, escapeLine, escapeLines, widthOf } from "../../../src/cli/text.ts";

describe("data on a terminal", () => {
  it("cannot move the cursor, colour, ring or reorder: it is shown as what it is", () => {
    expect(escapeLine("\x1b[31mred\x07\x9b2J")).toBe("\\x1b[31mred\\x07\\x9b2J");
    expect(escapeLine("a\nb\tc\r\0")).toBe("a\\nb\\tc\\r\\x00");
    expect(escapeLine("abc\u202edef\u2066")).toBe("abc\\u202edef\\u2066");
    expect(escapeLines("a\n\tb\x1bc\r\nd")).toBe("a\n\tb\\x1bc\nd");
  });

  it("can be undone from a tab-separated field", () => {
    expect(escapeField("a\tb\\n\n")).toBe("a\\tb\\\\n\\n");
  });

  it("is cut by what it takes on the screen, never through a character", () => {
    expect(widthOf("日本語")).toBe(6);
    expect(cutTo("日本語です", 7)).toBe("日本語…");
    expect(cutTo("👩‍👩‍👧 family", 4)).toBe("👩‍👩‍👧 …");
    expect(cutTo("short", 5)).toBe("short");
  });
});

describe("a table", () => {
  const columns = [
    { head: "ID", value: (r: { id: string; n: number; text: string }) => r.id },
    { head: "N", value: (r: { n: number }) => String(r.n), right: true },
    { head: "TEXT", value: (r: { text: string }) => r.text, flex: true },
  ];

  it("keeps its columns under east-Asian text and its lines under the width", () => {
    const lines = tableLines(
      [
        { id: "日本", n: 5, text: "x" },
        { id: "a", n: 1000, text: "a very long text that has no room on a small terminal" },
      ],
      columns,
      40,
    );
    expect(lines).toEqual(["ID       N  TEXT", "日本     5  x", "a     1000  a very long text that has n…"]);
    expect(Math.max(...lines.map(widthOf))).toBeLessThanOrEqual(40);
  });
});

describe("a body", () => {
  it("is laid out with every number as it was sent", () => {
    const text = '{"big":9007199254740993,"price":1.10,"list":[],"deep":{"a":[1,"x"]}}';
    expect(prettyJson(parse(text))).toBe(
      '{\n  "big": 9007199254740993,\n  "price": 1.10,\n  "list": [],\n  "deep": {\n    "a": [\n      1,\n      "x"\n    ]\n  }\n}',
    );
  });

  it("that is not text is shown as hex", () => {
    expect(hexLines(Buffer.from("ff00fe80414243", "hex"))).toEqual([
      `00000000  ff 00 fe 80 41 42 43${" ".repeat(27)}  ....ABC`,
    ]);
  });
});
