import { PassThrough } from "node:stream";
import { describe, expect, test } from "vitest";
import { WorkerPool } from "../../../src/worker/index.ts";
import { inherited } from "../../../src/worker/options.ts";
import { passLines } from "../../../src/worker/output.ts";

describe("worker options", () => {
  test.each([
    [{ file: "" }, /option file is ""/],
    [{ file: 7 }, /option file is 7/],
    [{ file: "h.mjs", concurrency: 0 }, /option concurrency is 0; expected a whole number from 1/],
    [{ file: "h.mjs", concurrency: 1.5 }, /option concurrency is 1\.5/],
    [{ file: "h.mjs", spare: -1 }, /option spare is -1/],
    [{ file: "h.mjs", timeoutMs: "5s" }, /option timeoutMs is "5s"/],
    [{ file: "h.mjs", timeoutMs: Number.NaN }, /option timeoutMs is NaN/],
    [{ file: "h.mjs", recycleAfter: 0 }, /option recycleAfter is 0/],
    [{ file: "h.mjs", heapLimitMb: 1 }, /option heapLimitMb is 1; expected a whole number from 8/],
  ])("%j is refused by name", (options, message) => {
    expect(() => new WorkerPool(options as never)).toThrow(
      expect.objectContaining({ code: "BAD_ARGUMENT", message: expect.stringMatching(message) }),
    );
  });

  test("a child inherits loaders and flags, but not debuggers, tests, limits or one-off code", () => {
    const mine = [
      "--import=tsx",
      "--conditions",
      "dev",
      "--inspect-brk=9229",
      "--eval",
      "code",
      "-e",
      "more",
      "--test",
      "--watch",
      "--max-old-space-size=100",
      "--no-warnings",
    ];
    expect(inherited(mine)).toEqual(["--import=tsx", "--conditions", "dev", "--no-warnings"]);
  });
});

describe("a child's output", () => {
  const from = { stream: "stdout", pid: 1 } as const;
  const next = () => new Promise((done) => setImmediate(done));

  test("comes in lines, whatever the pieces, and the last one without its newline too", async () => {
    const source = new PassThrough();
    const lines: string[] = [];
    passLines(source, from, (line) => lines.push(Buffer.from(line).toString()) > 0);
    for (const piece of ["on", "e\ntwo\n\nth", "ree"]) source.write(piece);
    await next();
    expect(lines).toEqual(["one", "two", ""]);
    source.destroy();
    await next();
    expect(lines).toEqual(["one", "two", "", "three"]);
  });

  test("a line without an end is passed on in pieces and fills no memory", async () => {
    const source = new PassThrough();
    const sizes: number[] = [];
    passLines(source, from, (line) => sizes.push(line.length) > 0);
    for (let n = 0; n < 20; n++) source.write(Buffer.alloc(10_000, 97));
    await next();
    expect(sizes).toEqual([65_536, 65_536, 65_536]);
  });

  test("a reader that is full holds the child back until it has room", async () => {
    const source = new PassThrough();
    const lines: string[] = [];
    let room = (): void => {};
    passLines(source, from, (line, _from, resume) => {
      lines.push(Buffer.from(line).toString());
      room = resume;
      return false;
    });
    source.write("one\n");
    await next();
    source.write("two\n");
    await next();
    expect(lines).toEqual(["one"]);
    room();
    await next();
    expect(lines).toEqual(["one", "two"]);
  });
});
