/** Settings: a flag, else `DLO_*`, else `dlo.config.js` or `dlo.config.json` in the folder, else the default. */
import { existsSync, readFileSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { DloError } from "../core/index.ts";
import type { Io } from "./io.ts";

/** Every setting that can come from the environment or the file; `DLO_` and the upper-case words of its name. */
export const SETTINGS = {
  data: { env: "DLO_DATA" },
  url: { env: "DLO_URL" },
  queue: { env: "DLO_QUEUE" },
  handler: { env: "DLO_HANDLER" },
  maxAttempts: { env: "DLO_MAX_ATTEMPTS" },
  concurrency: { env: "DLO_CONCURRENCY" },
  isolate: { env: "DLO_ISOLATE" },
  timeout: { env: "DLO_TIMEOUT" },
  backoff: { env: "DLO_BACKOFF" },
  rate: { env: "DLO_RATE" },
  users: { env: "DLO_USERS" },
} as const;

export type Setting = keyof typeof SETTINGS;

/** Where data lies unless said otherwise. */
export const DEFAULT_DATA = ".dlo";

/** A value and where it came from, for error messages: `--timeout`, `DLO_TIMEOUT`, `timeout in dlo.config.json`. */
export interface Setted {
  readonly value: string;
  readonly from: string;
  /** What the file holds in place of a path: users themselves. */
  readonly list?: readonly unknown[];
}

const FILES = ["dlo.config.js", "dlo.config.json"];

async function load(path: string): Promise<unknown> {
  try {
    if (path.endsWith(".json")) return JSON.parse(readFileSync(path, "utf8"));
    return ((await import(pathToFileURL(path).href)) as { default?: unknown }).default;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DloError("BAD_ARGUMENT", `${path} cannot be read: ${why}`, { cause });
  }
}

async function readFile(cwd: string): Promise<Map<Setting, Setted>> {
  const values = new Map<Setting, Setted>();
  const name = FILES.find((file) => existsSync(join(cwd, file)));
  if (name === undefined) return values;
  const config = await load(join(cwd, name));
  if (config === null || typeof config !== "object" || Array.isArray(config)) {
    throw new DloError("BAD_ARGUMENT", `${name} does not hold an object; expected { data: "...", ... }`);
  }
  for (const [key, value] of Object.entries(config)) {
    if (!Object.hasOwn(SETTINGS, key)) {
      const known = Object.keys(SETTINGS).join(", ");
      throw new DloError("BAD_ARGUMENT", `${name} has an unknown setting "${key}"; expected one of ${known}`);
    }
    if (key === "users" && Array.isArray(value)) {
      values.set(key, { value: "", from: `${key} in ${name}`, list: value });
      continue;
    }
    if (typeof value !== "string" && typeof value !== "number") {
      throw new DloError(
        "BAD_ARGUMENT",
        `${key} in ${name} is ${typeof value}; expected a string or a number`,
      );
    }
    values.set(key as Setting, { value: String(value), from: `${key} in ${name}` });
  }
  return values;
}

/** Looks settings up by precedence. Made once per command. */
export class Settings {
  readonly #io: Io;
  readonly #flags: Readonly<Record<string, unknown>>;
  readonly #file: ReadonlyMap<Setting, Setted>;

  private constructor(io: Io, flags: Readonly<Record<string, unknown>>, file: ReadonlyMap<Setting, Setted>) {
    this.#io = io;
    this.#flags = flags;
    this.#file = file;
  }

  static async read(io: Io, flags: Readonly<Record<string, unknown>>): Promise<Settings> {
    return new Settings(io, flags, await readFile(io.cwd));
  }

  get(setting: Setting): Setted | undefined {
    const flag = this.#flags[setting];
    const flagName = `--${setting.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`)}`;
    if (typeof flag === "string") return { value: flag, from: flagName };
    const { env } = SETTINGS[setting];
    const variable = this.#io.env[env];
    if (variable !== undefined && variable !== "") return { value: variable, from: env };
    return this.#file.get(setting);
  }

  /** A path setting, relative to the folder the command runs in. */
  path(setting: Setting): Setted | undefined {
    const found = this.get(setting);
    return (
      found && { ...found, value: isAbsolute(found.value) ? found.value : resolve(this.#io.cwd, found.value) }
    );
  }

  /** The data directory. */
  get data(): string {
    return this.path("data")?.value ?? resolve(this.#io.cwd, DEFAULT_DATA);
  }

  /** A whole number of at least `least`. */
  count(setting: Setting, least: number): number | undefined {
    const found = this.get(setting);
    if (!found) return undefined;
    const n = Number(found.value);
    if (/^\d+$/.test(found.value) && Number.isSafeInteger(n) && n >= least) return n;
    return refuse(found, `a whole number of at least ${least}`);
  }

  /** Something read by `parse`, which answers null for what it does not take. */
  parsed<T>(setting: Setting, parse: (text: string) => T | null, expected: string): T | undefined {
    const found = this.get(setting);
    if (!found) return undefined;
    return parse(found.value) ?? refuse(found, expected);
  }
}

function refuse(found: Setted, expected: string): never {
  throw new DloError("BAD_ARGUMENT", `${found.from} is "${found.value}"; expected ${expected}`);
}
