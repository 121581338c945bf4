import { describe, expect, it } from "vitest";
import { DloError } from "../../../src/core/index.ts";
import { OfficeClient, type OfficeHost, type Outgoing, officeApp } from "../../../src/http/index.ts";
import { StoreDouble } from "../office/store.ts";

const world = () => {
  const store = new StoreDouble();
  const sent: (Outgoing & { queue: string })[] = [];
  const host: OfficeHost = {
    letters: store,
    send(queue, message) {
      if (message.bytes.byteLength > 100)
        throw new DloError("BODY_TOO_LARGE", "a body of 101 bytes; 100 fit");
      sent.push({ ...message, queue });
      return message.id ?? `made-${sent.length}`;
    },
  };
  const app = officeApp(host, { now: () => 10_000 });
  return { store, sent, app, client: new OfficeClient((request) => app.fetch(request)) };
};
const ask = async (app: ReturnType<typeof world>["app"], path: string, init?: RequestInit) => {
  const response = await app.fetch(new Request(`http://office${path}`, init));
  return {
    status: response.status,
    body: (await response.json()) as { error?: { code: string; message: string } },
  };
};
const post = (body: string, type = "application/json") => ({
  method: "POST",
  body,
  headers: { "content-type": type },
});

describe("the office app", () => {
  it("shows a body byte for byte, as text only where it is text", async () => {
    const { store, client } = world();
    const text = '{"n":9007199254740993,"price":1.10}';
    const binary = Buffer.from("ff00fe80", "hex");
    store.add({ id: "text", text }).add({ id: "binary", entry: { raw: binary } });
    expect((await client.letter("text")).body).toEqual({ encoding: "utf8", data: text });
    expect((await client.letter("binary")).body).toEqual({
      encoding: "base64",
      data: binary.toString("base64"),
    });
  });

  it("gives a header's bytes as base64 and its long numbers with every digit", async () => {
    const { store, client } = world();
    const headers = { key: Buffer.from("ff00", "hex"), plain: new Uint8Array([255, 0]), n: 2n ** 60n };
    store.add({ id: "a", entry: { headers } });
    const bytes = Buffer.from("ff00", "hex").toString("base64");
    expect((await client.letter("a")).headers).toEqual({ key: bytes, plain: bytes, n: String(2n ** 60n) });
  });

  it("finds a letter whose id needs escaping in a path", async () => {
    const { store, client } = world();
    store.add({ id: "a/b?c#d é%2f" });
    expect((await client.letter("a/b?c#d é%2f")).id).toBe("a/b?c#d é%2f");
    await expect(client.letter("nobody")).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  it("says what each letter of a replay came to, and never sends one twice", async () => {
    const { store, client } = world();
    store.add({ id: "a" }).add({ id: "b", sourceQueue: "gone" });
    const both = await Promise.all([client.replay(["L0001", "L0002"]), client.replay(["L0001"])]);
    expect(both.flatMap((result) => result.done)).toEqual(["a"]);
    expect(both[1].failed).toEqual([{ id: "a", why: "already replayed" }]);
    expect(store.sent).toEqual([{ id: "a", queue: "orders" }]);
  });

  it("sends in order and stops at the first refusal", async () => {
    const { client, sent } = world();
    const message = (id: string, data: string) => ({ id, encoding: "utf8" as const, data });
    const result = await client.send("orders", [
      message("1", "{}"),
      message("2", "x".repeat(101)),
      message("3", "{}"),
    ]);
    expect(result).toEqual({
      ids: ["1"],
      refused: { index: 1, code: "BODY_TOO_LARGE", message: "a body of 101 bytes; 100 fit" },
    });
    expect(sent.map((m) => m.id)).toEqual(["1"]);
  });

  it("changes nothing on GET, even where a POST would", async () => {
    const { app, store } = world();
    store.add({ id: "a" });
    for (const path of ["/v1/replays", "/v1/discards", "/v1/plans", "/v1/queues/orders/messages"]) {
      expect((await ask(app, path)).status).toBe(404);
    }
    await ask(app, "/v1/letters");
    await ask(app, "/v1/letters/a");
    expect(store.rows[0]?.summary.state).toBe("dead");
  });

  it.each([
    ["/v1/replays", post("{"), 400, "BAD_ARGUMENT", "the request body is not JSON"],
    ["/v1/replays", post("[]"), 400, "BAD_ARGUMENT", "the request body is an array; expected a JSON object"],
    ["/v1/replays", post("{}"), 400, "BAD_ARGUMENT", "letterIds is missing"],
    ["/v1/replays", post('{"letterIds":[1]}'), 400, "BAD_ARGUMENT", "letterIds[0] is 1; expected a string"],
    ["/v1/replays", post("{}", "text/plain"), 400, "BAD_ARGUMENT", 'content type "text/plain"'],
    ["/v1/plans", post('{"action":"eat","all":true}'), 400, "BAD_ARGUMENT", 'action is "eat"'],
    [
      "/v1/plans",
      post('{"action":"replay","all":1}'),
      400,
      "BAD_ARGUMENT",
      "all is 1; expected true or false",
    ],
    [
      "/v1/queues/q/messages",
      post('{"messages":[{"id":7}]}'),
      400,
      "BAD_ARGUMENT",
      "the id of messages[0] is 7",
    ],
    [
      "/v1/letters?limit=0",
      undefined,
      400,
      "BAD_ARGUMENT",
      'limit is "0"; expected a whole number from 1 to',
    ],
    ["/v1/letters?where=reason:x", undefined, 400, "BAD_ARGUMENT", 'reason has no value "x"'],
    ["/v1/nothing", undefined, 404, "NOT_FOUND", "the office has no GET /v1/nothing"],
  ])("%s refuses what it cannot read (%#)", async (path, init, status, code, message) => {
    const { app, store, sent } = world();
    const answer = await ask(app, path, init);
    expect(answer.status).toBe(status);
    expect(answer.body.error?.code).toBe(code);
    expect(answer.body.error?.message).toContain(message);
    expect([store.sent, sent]).toEqual([[], []]);
  });

  it("tells a failing store as an error of ours, without a stack", async () => {
    const { app, store } = world();
    store.page = () => {
      throw new TypeError("odd");
    };
    const answer = await ask(app, "/v1/letters");
    expect(answer.status).toBe(500);
    expect(answer.body).toEqual({ error: { code: "INTERNAL", message: "the office failed: odd" } });
  });
});
