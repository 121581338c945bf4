import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Users } from "../../../src/amqp/index.ts";
import { usersOf } from "../../../src/dev/index.ts";
import { dlo } from "./run.ts";

let cwd: string;
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), "dlo-cli-users-"));
});
afterEach(() => rmSync(cwd, { recursive: true, force: true }));

/** `dlo dev` that is stopped as soon as it serves. */
const dev = (...args: string[]) =>
  dlo(["dev", "--memory", "--amqp", "0", "--management", "0", ...args], { cwd, signal: AbortSignal.abort() });
const users = [
  { name: "app", password: "hunter2", permissions: { "/": { configure: "", write: ".*", read: "" } } },
];

it("dlo hash-password makes a hash of standard input that lets exactly that password in", async () => {
  const { status, out } = await dlo(["hash-password"], { stdin: "s3cret wörd\n" });
  expect([status, out]).toEqual([0, expect.stringMatching(/^scrypt\$16384\$8\$1\$\S+\n$/)]);
  const known = new Users([{ name: "app", passwordHash: out.trim() }]);
  expect(await known.authenticate("app", "s3cret wörd", "10.0.0.1")).toMatchObject({ name: "app" });
  expect(await known.authenticate("app", "s3cret wörd\n", "10.0.0.1")).toBeNull();
  expect(await dlo(["hash-password"], { stdin: "\n" })).toMatchObject({ status: 2, out: "" });
  const flag = await dlo(["hash-password", "s3cret"]);
  expect([flag.status, flag.out]).toEqual([2, ""]);
});

describe("dlo dev", () => {
  it("listens for other machines only with a user besides guest: from a file, the environment or the configuration", async () => {
    const refused = await dev("--host", "0.0.0.0");
    expect([refused.status, refused.err]).toEqual([6, expect.stringContaining("guest as the only user")]);
    writeFileSync(join(cwd, "users.json"), JSON.stringify({ users }));
    const given = await dev("--host", "0.0.0.0", "--users", "users.json");
    expect([given.status, given.out]).toEqual([0, expect.stringContaining("amqp://0.0.0.0:")]);
    writeFileSync(join(cwd, "dlo.config.json"), JSON.stringify({ users: "users.json" }));
    expect((await dev("--host", "0.0.0.0")).status).toBe(0);
    writeFileSync(join(cwd, "dlo.config.json"), JSON.stringify({ users }));
    expect((await dev("--host", "0.0.0.0")).status).toBe(0);
  });

  it("takes no user from a flag itself, and shows nothing of a password when a file is wrong", async () => {
    const inline = await dev("--users", JSON.stringify(users));
    expect([inline.status, inline.err]).toEqual([2, expect.stringContaining("cannot be read")]);
    writeFileSync(join(cwd, "users.json"), '[{"name":"app","password":"hunter2",}]');
    const broken = await dev("--users", "users.json");
    expect([broken.status, broken.err]).toEqual([2, expect.stringContaining("users.json is not JSON")]);
    expect(broken.err).not.toContain("hunter2");
  });
});

describe("a users file", () => {
  const why = (value: unknown): string => {
    try {
      usersOf(value, "users.json");
      return "fine";
    } catch (error) {
      return (error as Error).message;
    }
  };
  const one = (more: object) => why([{ name: "app", password: "hunter2", ...more }]);

  it("is a list, or an object with one", () => {
    expect([why(users), why({ users }), why([])]).toEqual(["fine", "fine", "fine"]);
    expect(why({})).toBe("users.json holds no list of users");
  });

  it("says which user is wrong in what, and never with the password", () => {
    expect(why([...users, ...users])).toContain("has user 'app' twice");
    expect(why([{ password: "hunter2" }])).toBe("users.json: user 1 has no name");
    expect(one({ passwordHash: "x" })).toContain("either a password or a passwordHash");
    expect(why([{ name: "app" }])).toContain("either a password or a passwordHash");
    expect(one({ pasword: "x" })).toContain('has "pasword"');
    expect(one({ tags: "administrator" })).toContain("tags");
    expect(one({ permissions: { "/": { configure: "", write: "" } } })).toContain("virtual host '/'");
    expect(one({ permissions: [] })).toContain("permissions");
    expect(one({ pasword: "x" })).not.toContain("hunter2");
  });
});
