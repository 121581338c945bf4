// The input: 329 real webhook payloads, and two that show what a dead letter queue is for.
import { createRequire } from "node:module";

/** One whose handling ends its process, as a call into a faulty native library or the kernel's OOM killer would. */
export const PILL = "poison-pill";
/** One whose label filter makes a regular expression go round for longer than anybody will wait. */
export const HANG = "hanging-filter";

const ping = (extra) => ({ event: "ping", payload: { zen: "Keep it logically awesome.", ...extra } });

/** All messages, `{ id, body }`, in the same order with the same ids every time. */
export function allMessages() {
  const kinds = createRequire(import.meta.url)("@octokit/webhooks-examples");
  const messages = kinds.flatMap(({ name, examples }) =>
    examples.map((payload, n) => ({
      id: [name, payload.action, n + 1].filter((part) => part !== undefined).join("."),
      body: { event: name, payload },
    })),
  );
  messages.splice(40, 0, { id: PILL, body: ping({ crash: true }) });
  messages.splice(90, 0, { id: HANG, body: ping({ filter: "^(a+)+$", label: `${"a".repeat(48)}!` }) });
  return messages;
}
