import { readFileSync } from "node:fs";
import type { Permissions, UserOptions } from "../amqp/index.ts";
import { DloError } from "../core/index.ts";

const KNOWN = new Set(["name", "password", "passwordHash", "tags", "permissions"]);
const PATTERNS = ["configure", "write", "read"] as const;

const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/**
 * Users out of a configuration: a list, or `{ "users": [...] }`. No message holds anything of a password.
 *
 * @param where names the source in errors, for example the path of the file
 * @throws DloError BAD_ARGUMENT
 * @example
 * usersOf([{ name: "app", passwordHash: "scrypt$...", permissions: { "/": { configure: "", write: ".*", read: ".*" } } }], "users.json");
 */
export function usersOf(value: unknown, where: string): readonly UserOptions[] {
  const list = isObject(value) && Object.keys(value).length === 1 ? value["users"] : value;
  if (!Array.isArray(list)) throw refused(where, "holds no list of users");
  const users = list.map((user, index) => userOf(user, `${where}: user ${index + 1}`));
  const names = new Set<string>();
  for (const { name } of users) {
    if (names.has(name)) throw refused(where, `has user '${name}' twice`);
    names.add(name);
  }
  return users;
}

/** Reads a users file. @throws DloError BAD_ARGUMENT */
export function readUsersFile(path: string): readonly UserOptions[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new DloError("BAD_ARGUMENT", `${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Not with the parser's words: they quote the text, and a password may stand in it.
    throw refused(path, "is not JSON");
  }
  return usersOf(value, path);
}

const refused = (where: string, why: string): DloError => new DloError("BAD_ARGUMENT", `${where} ${why}`);

function userOf(value: unknown, at: string): UserOptions {
  if (!isObject(value)) throw refused(at, "is not an object");
  const { name, password, passwordHash, tags = [], permissions } = value;
  if (typeof name !== "string" || name === "") throw refused(at, "has no name");
  const where = `${at} ('${name}')`;
  const odd = Object.keys(value).find((key) => !KNOWN.has(key));
  if (odd !== undefined) throw refused(where, `has "${odd}"; expected ${[...KNOWN].join(", ")}`);
  const secrets = [password, passwordHash].filter((secret) => secret !== undefined);
  if (secrets.length !== 1 || typeof secrets[0] !== "string" || secrets[0] === "") {
    throw refused(where, "needs either a password or a passwordHash");
  }
  if (!Array.isArray(tags) || tags.some((tag) => typeof tag !== "string")) {
    throw refused(where, "has tags that are not a list of strings");
  }
  return {
    name,
    ...(typeof password === "string" ? { password } : { passwordHash: passwordHash as string }),
    tags: tags as string[],
    ...(permissions === undefined ? {} : { permissions: permissionsOf(permissions, where) }),
  };
}

function permissionsOf(value: unknown, where: string): Readonly<Record<string, Permissions>> {
  if (!isObject(value)) throw refused(where, "has permissions that are not an object by virtual host");
  for (const [vhost, patterns] of Object.entries(value)) {
    const whole = isObject(patterns) && PATTERNS.every((kind) => typeof patterns[kind] === "string");
    if (!whole || Object.keys(patterns).length !== PATTERNS.length) {
      throw refused(where, `needs configure, write and read as strings for virtual host '${vhost}'`);
    }
  }
  return value as unknown as Readonly<Record<string, Permissions>>;
}
