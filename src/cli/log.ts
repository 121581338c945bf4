import type { Logger } from "../ports/index.ts";
import { type Io, say } from "./io.ts";
import { escapeLine } from "./text.ts";

const fieldText = (fields: Readonly<Record<string, unknown>> = {}): string =>
  Object.entries(fields)
    .map(
      ([key, value]) =>
        ` ${key}=${typeof value === "string" ? value : (JSON.stringify(value) ?? String(value))}`,
    )
    .join("");

/** Warnings and errors of the engine as lines on standard error; `before` each (a line of progress is cleared). */
export function loggerTo(io: Io, before: () => void = () => {}): Logger {
  const line = (message: string, fields?: Readonly<Record<string, unknown>>): void => {
    before();
    void say(io, `dlo: ${escapeLine(`${message}${fieldText(fields)}`)}`).catch(() => {});
  };
  return { info() {}, warn: line, error: line };
}
