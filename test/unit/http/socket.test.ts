import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { findOwner, listenOffice, OfficeClient, officeApp, SOCKET_NAME } from "../../../src/http/index.ts";
import { StoreDouble } from "../office/store.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "dlo-socket-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const app = () => officeApp({ letters: new StoreDouble().add({ id: "a" }), send: () => "id" });

describe("the owner's socket", () => {
  it("answers as the app does in process, and is readable by its user only", async () => {
    const server = await listenOffice(app(), directory);
    const fetch = await findOwner(directory);
    expect(statSync(server.path).mode & 0o777).toBe(0o600);
    const client = new OfficeClient(fetch!);
    expect((await client.letters("", { limit: 10 })).letters.map((l) => l.id)).toEqual(["a"]);
    await expect(client.letter("x")).rejects.toMatchObject({ code: "NOT_FOUND" });
    const big = "é".repeat(3_000_000);
    expect((await client.send("q", [{ encoding: "utf8", data: big }])).ids).toEqual(["id"]);
    await server.close();
    await server.close();
    expect(await findOwner(directory)).toBeNull();
    await expect(client.status()).rejects.toMatchObject({ code: "NOT_CONNECTED" });
  });

  it("works in a directory whose path is longer than a socket address", async (ctx) => {
    if (process.platform !== "linux") ctx.skip("needs /proc: elsewhere a long path is refused");
    const deep = join(directory, ...Array.from({ length: 5 }, () => "d".repeat(60)));
    mkdirSync(deep, { recursive: true });
    const server = await listenOffice(app(), deep);
    const client = new OfficeClient((await findOwner(deep))!);
    expect((await client.status()).owner.pid).toBe(process.pid);
    expect(statSync(join(deep, SOCKET_NAME)).mode & 0o777).toBe(0o600);
    await server.close();
    expect(await findOwner(deep)).toBeNull();
  });

  it("takes the place of a file that a dead owner left", async () => {
    const dead = createServer().listen(join(directory, "other.sock"));
    await new Promise((done) => dead.once("listening", done));
    writeFileSync(join(directory, SOCKET_NAME), "");
    expect(await findOwner(directory)).toBeNull();
    const server = await listenOffice(app(), directory);
    expect(await findOwner(directory)).not.toBeNull();
    await server.close();
    dead.close();
  });

  it("is absent, not an error, where there is no directory", async () => {
    expect(await findOwner(join(directory, "nothing", "here"))).toBeNull();
  });
});
