import { describe, expect, test } from "vitest";
import { PermanentError, revived, serializeError } from "../../../src/core/index.ts";

describe("own properties of an error that crosses a process boundary", () => {
  test("plain ones come along and stand where they stood; objects, which may hold secrets, stay behind", () => {
    const error = Object.assign(new Error("refused"), {
      status: 404,
      code: 23505,
      final: true,
      url: "/orders",
      request: { headers: { authorization: "secret" } },
    });
    const crossed = revived(structuredClone(serializeError(error)));
    expect(crossed).toMatchObject({ status: 404, code: 23505, final: true, url: "/orders" });
    expect(JSON.stringify(crossed)).not.toContain("secret");
  });

  test("they cannot stand in for what the error is", () => {
    const error = Object.assign(new PermanentError("no"), {
      failureClass: "transient",
      text: "other",
      stack: "x",
    });
    const crossed = revived(serializeError(error));
    expect(crossed).toMatchObject({ name: "PermanentError", failureClass: "permanent" });
    expect(crossed.text).toBe("PermanentError: no");
  });

  test("long ones are cut, many are few, and getters that throw are nothing", () => {
    const error = new Error("x") as Error & Record<string, unknown>;
    Object.defineProperty(error, "bad", {
      enumerable: true,
      get() {
        throw new Error("no");
      },
    });
    error["long"] = "y".repeat(100_000);
    error["code"] = "z".repeat(100_000);
    for (let n = 0; n < 1_000; n++) error[`p${n}`] = n;
    const { props, code } = serializeError(error);
    expect(code?.length).toBeLessThanOrEqual(1_000);
    expect(Object.keys(props ?? {})).toHaveLength(32);
    expect(String(props?.["long"]).length).toBeLessThanOrEqual(1_000);
  });
});
