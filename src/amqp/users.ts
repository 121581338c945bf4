import { createHash, createHmac, randomBytes, scrypt, timingSafeEqual } from "node:crypto";
import { AmqpError } from "../broker/index.ts";
import { DloError } from "../core/index.ts";

/** What a user may do in a virtual host: patterns over the names of queues and exchanges, as in RabbitMQ. */
export interface Permissions {
  readonly configure: string;
  readonly write: string;
  readonly read: string;
}

/** A user as given in options. */
export interface UserOptions {
  readonly name: string;
  /** The password itself, or `passwordHash` from {@link hashPassword}; "none" for nobody's password. */
  readonly password?: string;
  readonly passwordHash?: string;
  /** By virtual host; absent: everything in every virtual host. */
  readonly permissions?: Readonly<Record<string, Permissions>>;
  /** For the management API: administrator, monitoring, management, policymaker. */
  readonly tags?: readonly string[];
  /** May log in from this machine only. True for `guest` unless said otherwise. */
  readonly loopbackOnly?: boolean;
}

/** A user that has logged in. */
export interface User {
  readonly name: string;
  readonly tags: readonly string[];
  readonly loopbackOnly: boolean;
  readonly permissions: Readonly<Record<string, Permissions>> | undefined;
}

// About 16 MB and 50 ms a try: dear for a guesser, and a right password is remembered while the process lives.
const SCRYPT = { N: 16384, r: 8, p: 1 } as const;
const KEY_BYTES = 32;

function derive(password: string, salt: Buffer, cost: { N: number; r: number; p: number }): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    scrypt(password, salt, KEY_BYTES, cost, (error, key) => (error ? reject(error) : resolve(key)));
  });
}

/**
 * A password as it may be kept: `scrypt$N$r$p$salt$key`, salted anew each time.
 *
 * @example
 * const users = [{ name: "app", passwordHash: await hashPassword("s3cret") }];
 */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const key = await derive(password, salt, SCRYPT);
  return ["scrypt", SCRYPT.N, SCRYPT.r, SCRYPT.p, salt.toString("base64"), key.toString("base64")].join("$");
}

const SCRYPT_FORM = /^scrypt\$(\d+)\$(\d+)\$(\d+)\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)$/;
/** RabbitMQ's own, in definitions: base64 of a 4-byte salt and the SHA-256 (or 512) of salt and password. */
const RABBIT_FORM = /^rabbit(512)?\$([A-Za-z0-9+/=]+)$/;
/** A user who cannot log in with a password. */
const NO_PASSWORD = "none";

/** Whether {@link Users} can check a password against it. */
export const isPasswordHash = (text: string): boolean =>
  text === NO_PASSWORD || SCRYPT_FORM.test(text) || RABBIT_FORM.test(text);

async function matchesHash(password: string, hash: string): Promise<boolean> {
  const own = SCRYPT_FORM.exec(hash);
  if (own) {
    const [, N, r, p, salt, key] = own as unknown as string[];
    const cost = { N: Number(N), r: Number(r), p: Number(p) };
    const derived = await derive(password, Buffer.from(salt as string, "base64"), cost);
    return sameSecret(derived, Buffer.from(key as string, "base64"));
  }
  const [, long, base64] = RABBIT_FORM.exec(hash) ?? [];
  // Nobody has such a password; the time it takes is that of any other try.
  if (base64 === undefined) return (await derive(password, Buffer.alloc(16), SCRYPT)).length === 0;
  const bytes = Buffer.from(base64, "base64");
  const sum = createHash(long === undefined ? "sha256" : "sha512")
    .update(bytes.subarray(0, 4))
    .update(password)
    .digest();
  return sameSecret(sum, bytes.subarray(4));
}

const sameSecret = (a: Buffer, b: Buffer): boolean => a.length === b.length && timingSafeEqual(a, b);

interface Entry extends User {
  readonly hash: string | undefined;
  /** Keyed digest of the right password, where it is known: given in clear, or seen to match the hash. */
  known: Buffer | undefined;
}

/** The users of one server. Holds no password, only hashes and digests under a key of this process. */
export class Users {
  readonly #key: Buffer = randomBytes(32);
  readonly #entries = new Map<string, Entry>();

  /** @throws DloError BAD_ARGUMENT for a user without a name, without a password, or with a bad pattern. */
  constructor(
    list: readonly UserOptions[] = [{ name: "guest", password: "guest", tags: ["administrator"] }],
  ) {
    for (const user of list) this.put(user);
  }

  /** Adds or replaces a user. */
  put(user: UserOptions): void {
    if (!user.name) throw new DloError("BAD_ARGUMENT", "a user needs a name");
    if (user.password === undefined && user.passwordHash === undefined) {
      throw new DloError("BAD_ARGUMENT", `user '${user.name}' needs a password or a passwordHash`);
    }
    const hash = user.passwordHash;
    if (hash !== undefined && !isPasswordHash(hash)) {
      throw new DloError(
        "BAD_ARGUMENT",
        `the passwordHash of user '${user.name}' is not one of hashPassword()`,
      );
    }
    for (const permissions of Object.values(user.permissions ?? {})) checkPatterns(user.name, permissions);
    this.#entries.set(user.name, {
      name: user.name,
      tags: user.tags ?? [],
      loopbackOnly: user.loopbackOnly ?? user.name === "guest",
      permissions: user.permissions,
      hash,
      known: user.password === undefined ? undefined : this.#digest(user.password),
    });
  }

  remove(name: string): boolean {
    return this.#entries.delete(name);
  }

  /** The permissions a user has, all of them; undefined: everything. @throws DloError NOT_FOUND, BAD_ARGUMENT */
  setPermissions(name: string, permissions: Readonly<Record<string, Permissions>> | undefined): void {
    const entry = this.#entries.get(name);
    if (entry === undefined) throw new DloError("NOT_FOUND", `there is no user '${name}'`);
    for (const patterns of Object.values(permissions ?? {})) checkPatterns(name, patterns);
    this.#entries.set(name, { ...entry, permissions });
  }

  list(): readonly User[] {
    return [...this.#entries.values()];
  }

  get(name: string): User | undefined {
    return this.#entries.get(name);
  }

  /** True when anyone could log in from another machine. */
  get anyRemote(): boolean {
    return this.list().some((user) => !user.loopbackOnly);
  }

  #digest(password: string): Buffer {
    return createHmac("sha256", this.#key).update(password).digest();
  }

  /** The user with this password, coming from there; null otherwise, without saying which was wrong. */
  async authenticate(
    name: string,
    password: string,
    remoteAddress: string | undefined,
  ): Promise<User | null> {
    const entry = this.#entries.get(name);
    const digest = this.#digest(password);
    const known = entry?.known;
    if (entry?.loopbackOnly && !isLoopback(remoteAddress)) return null;
    if (entry !== undefined && known !== undefined && sameSecret(known, digest)) return entry;
    if (entry?.hash === undefined) {
      // As dear as a wrong password against a hash, so that the time does not tell which names exist.
      await derive(password, this.#key.subarray(0, 16), SCRYPT);
      return null;
    }
    if (!(await matchesHash(password, entry.hash))) return null;
    entry.known = digest;
    return entry;
  }
}

/** @throws DloError BAD_ARGUMENT for a pattern that is none. */
export function checkPatterns(name: string, permissions: Permissions): void {
  for (const [kind, pattern] of Object.entries(permissions)) {
    try {
      new RegExp(pattern);
    } catch (cause) {
      throw new DloError("BAD_ARGUMENT", `the ${kind} permission of user '${name}' is not a pattern`, {
        cause,
      });
    }
  }
}

/** True for the addresses of this machine itself. */
export function isLoopback(address: string | undefined): boolean {
  if (address === undefined) return false;
  return address === "::1" || address === "localhost" || /^(::ffff:)?127\./i.test(address);
}

type Kind = "queue" | "exchange";

/** What one user may do in one virtual host. Patterns are compiled once, verdicts remembered. */
export class Access {
  readonly #user: User;
  readonly #vhost: string;
  readonly #patterns: Record<keyof Permissions, RegExp> | null;
  readonly #verdicts = new Map<string, boolean>();

  constructor(user: User, vhost: string) {
    this.#user = user;
    this.#vhost = vhost;
    const given = user.permissions?.[vhost];
    this.#patterns =
      given === undefined
        ? null
        : {
            configure: new RegExp(given.configure),
            write: new RegExp(given.write),
            read: new RegExp(given.read),
          };
  }

  /** Whether the user may enter the virtual host at all. */
  static mayEnter(user: User, vhost: string): boolean {
    return user.permissions === undefined || Object.hasOwn(user.permissions, vhost);
  }

  get userName(): string {
    return this.#user.name;
  }

  /** @throws AmqpError 403 in RabbitMQ's words. */
  check(permission: keyof Permissions, kind: Kind, name: string): void {
    if (this.#patterns === null || this.#allowed(this.#patterns[permission], permission, kind, name)) return;
    throw new AmqpError(
      403,
      `${permission} access to ${kind} '${shownName(kind, name)}' in vhost '${this.#vhost}' refused for user '${this.#user.name}'`,
    );
  }

  #allowed(pattern: RegExp, permission: string, kind: Kind, name: string): boolean {
    const key = `${permission} ${kind} ${name}`;
    let verdict = this.#verdicts.get(key);
    if (verdict === undefined) {
      // An empty pattern permits nothing but the empty name, as RabbitMQ reads it ('^$').
      verdict = pattern.source === "(?:)" ? false : pattern.test(shownName(kind, name));
      if (this.#verdicts.size > 1000) this.#verdicts.clear();
      this.#verdicts.set(key, verdict);
    }
    return verdict;
  }
}

const shownName = (kind: Kind, name: string): string =>
  kind === "exchange" && name === "" ? "amq.default" : name;
