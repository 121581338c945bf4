// Answers with what it saw, as an error, since that is what comes back from a handler.
import { createHash } from "node:crypto";

export function handler(message) {
  const { body, raw } = message;
  const seen = body instanceof Uint8Array ? createHash("sha256").update(body).digest("hex") : body;
  const error = new Error(`${body instanceof Uint8Array ? "bytes" : typeof body}`);
  error.code =
    typeof seen === "string" ? [...seen].map((c) => c.codePointAt(0)).join(" ") : JSON.stringify(seen);
  if (body instanceof Uint8Array) error.code = seen;
  if (raw) error.code += ` raw ${createHash("sha256").update(raw).digest("hex")}`;
  throw error;
}
