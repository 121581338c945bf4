/** What an id, a queue's name and a message to send must be. */
import { DloError } from "../../core/index.ts";

export function checkId(id: unknown): string {
  if (typeof id === "string" && id !== "" && Buffer.byteLength(id) <= 255) return id;
  const shown = typeof id === "string" ? (id === "" ? "an empty string" : "over 255 bytes") : typeof id;
  throw new DloError("BAD_ARGUMENT", `message id is ${shown}; expected a string of 1 to 255 bytes`);
}

export function checkName(name: unknown): string {
  if (typeof name === "string" && name !== "" && Buffer.byteLength(name) <= 255) return name;
  const shown = typeof name === "string" ? (name === "" ? "empty" : "over 255 bytes") : typeof name;
  throw new DloError("BAD_ARGUMENT", `queue name is ${shown}; expected a string of 1 to 255 bytes`);
}

/** A message to send with `sendMany`. */
export interface Outgoing<B = unknown> {
  readonly body: B;
  readonly id?: string;
}
