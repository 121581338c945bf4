import { expect, it } from "vitest";
import * as main from "../../src/index.ts";

it("the main entry has these names and no others: each is a promise", () => {
  expect(Object.keys(main).sort()).toEqual([
    "Channel",
    "ConfirmChannel",
    "Consumer",
    "Crash",
    "DLO_ERROR_CODES",
    "DLQConsumer",
    "DeadLetterStore",
    "DloError",
    "EmbeddedBroker",
    "EmbeddedLetters",
    "EmbeddedQueue",
    "EmbeddedVhost",
    "LOST_LETTERS",
    "MAX_EARLIER_LIVES",
    "MAX_ERROR_TEXT",
    "MemoryDLQ",
    "MemoryQueue",
    "MemoryStore",
    "PermanentError",
    "TransientError",
    "WorkerPool",
    "classify",
    "fingerprintOf",
    "openBroker",
  ]);
});
