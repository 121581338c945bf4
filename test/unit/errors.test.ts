import { describe, expect, it } from "vitest";
import { DLO_ERROR_CODES, DloError } from "../../src/index.ts";

describe("DloError", () => {
  it("carries its code, whose fault it is and its cause", () => {
    const cause = new Error("disk");
    const error = new DloError("DISK_FULL", "no room left in /tmp/x", { cause });
    expect([error.name, error.code, error.fault, error.cause]).toEqual([
      "DloError",
      "DISK_FULL",
      "environment",
      cause,
    ]);
    expect(new DloError("BAD_ARGUMENT", "x").fault).toBe("caller");
    expect(new Set(DLO_ERROR_CODES).size).toBe(DLO_ERROR_CODES.length);
  });
});
