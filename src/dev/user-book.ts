/**
 * The users of a served broker: those it was started with, and those made over the management API, which the data
 * file keeps (hashes only). A change is in force when it is durable; a crash in the middle leaves it done or not.
 *
 * A configured user is the configuration's to change. `guest` is there while nobody else was configured and nobody
 * deleted or replaced it.
 */
import {
  checkPatterns,
  hashPassword,
  isPasswordHash,
  type Permissions,
  type UserOptions,
  Users,
} from "../amqp/index.ts";
import { DloError } from "../core/index.ts";

/** Where the book is kept; `broker.meta` is one. */
export interface BookFile {
  get(key: string): string | null;
  set(key: string, value: string | null): Promise<void>;
}

/** One user as the file holds it. */
interface Kept {
  readonly name: string;
  readonly passwordHash: string;
  readonly tags: readonly string[];
  /** Absent: everything, as guest has it. */
  readonly permissions?: Readonly<Record<string, Permissions>>;
}

interface Book {
  readonly users: readonly Kept[];
  readonly noGuest: boolean;
}

const KEY = "users";
const EMPTY: Book = { users: [], noGuest: false };

/** Everything in a virtual host. */
export const ALL: Permissions = { configure: ".*", write: ".*", read: ".*" };

/** See the head of this file. */
export class UserBook {
  readonly users: Users;
  readonly #file: BookFile;
  readonly #vhosts: () => readonly string[];
  readonly #configured: ReadonlySet<string>;
  #book: Book;
  /** Changes are made one after the other: each begins with what the one before left. */
  #last: Promise<unknown> = Promise.resolve();

  /** @throws DloError BAD_ARGUMENT for configured users that are none. */
  constructor(
    file: BookFile,
    vhosts: () => readonly string[],
    configured: readonly UserOptions[] | Users | undefined,
  ) {
    this.#file = file;
    this.#vhosts = vhosts;
    const text = file.get(KEY);
    this.#book = text === null ? EMPTY : (JSON.parse(text) as Book);
    const guest = configured === undefined && !this.#book.noGuest;
    this.users = configured instanceof Users ? configured : new Users(guest ? undefined : (configured ?? []));
    this.#configured = new Set(configured === undefined ? [] : this.users.list().map(({ name }) => name));
    for (const user of this.#book.users) if (!this.#configured.has(user.name)) this.users.put(user);
  }

  /**
   * Makes a user, or gives one another password and other tags; a new one may enter no virtual host. Without a
   * password and a hash the user cannot log in.
   * @throws DloError BAD_ARGUMENT, REFUSED for a configured user, DISK_FULL
   */
  put(
    name: string,
    given: { password?: string; passwordHash?: string; tags: readonly string[] },
  ): Promise<void> {
    return this.#change(async () => {
      this.#mine(name);
      const known = this.users.get(name);
      const permissions = known === undefined ? {} : known.permissions;
      const passwordHash =
        given.password === undefined ? (given.passwordHash ?? "none") : await hashPassword(given.password);
      if (!isPasswordHash(passwordHash)) {
        throw new DloError("BAD_ARGUMENT", `the password hash of user '${name}' is not one`);
      }
      const kept = { name, passwordHash, tags: given.tags, ...(permissions && { permissions }) };
      await this.#keep({ ...this.#book, users: [...this.#others(name), kept] });
      this.users.put(given.password === undefined ? kept : { ...kept, password: given.password });
    });
  }

  /** False when there is none of this name. @throws DloError REFUSED for a configured user, DISK_FULL */
  delete(name: string): Promise<boolean> {
    return this.#change(async () => {
      if (this.users.get(name) === undefined) return false;
      this.#mine(name);
      const noGuest = this.#book.noGuest || name === "guest";
      await this.#keep({ users: this.#others(name), noGuest });
      return this.users.remove(name);
    });
  }

  /**
   * What a user may do in a virtual host; undefined: not even enter it.
   * @throws DloError NOT_FOUND, BAD_ARGUMENT (a pattern that is none), REFUSED for a configured user, DISK_FULL
   */
  setPermissions(name: string, vhost: string, patterns: Permissions | undefined): Promise<void> {
    return this.#change(async () => {
      const user = this.users.get(name);
      if (user === undefined) throw new DloError("NOT_FOUND", `there is no user '${name}'`);
      this.#mine(name);
      if (patterns !== undefined) checkPatterns(name, patterns);
      const all = { ...this.permissionsOf(name) };
      if (patterns === undefined) delete all[vhost];
      else all[vhost] = patterns;
      const kept = this.#book.users.find((one) => one.name === name) ?? {
        // Only guest is neither configured nor kept.
        name,
        passwordHash: await hashPassword("guest"),
        tags: user.tags,
      };
      await this.#keep({ ...this.#book, users: [...this.#others(name), { ...kept, permissions: all }] });
      this.users.setPermissions(name, all);
    });
  }

  /** By virtual host, also where the user may do everything everywhere. */
  permissionsOf(name: string): Readonly<Record<string, Permissions>> {
    const user = this.users.get(name);
    if (user === undefined) return {};
    return user.permissions ?? Object.fromEntries(this.#vhosts().map((vhost) => [vhost, ALL]));
  }

  /** A virtual host was made: its maker may use it, as in RabbitMQ. */
  async vhostMade(vhost: string, by: string): Promise<void> {
    const user = this.users.get(by);
    if (user?.permissions === undefined || Object.hasOwn(user.permissions, vhost)) return;
    if (!this.#configured.has(by)) await this.setPermissions(by, vhost, ALL);
  }

  /** A virtual host was deleted: nobody shall find old permissions in a new one of its name. */
  async vhostGone(vhost: string): Promise<void> {
    for (const { name, permissions } of this.users.list()) {
      if (permissions === undefined || !Object.hasOwn(permissions, vhost) || this.#configured.has(name))
        continue;
      await this.setPermissions(name, vhost, undefined);
    }
  }

  #mine(name: string): void {
    if (!this.#configured.has(name)) return;
    throw new DloError(
      "REFUSED",
      `user '${name}' was configured at the start of the broker; change it there`,
    );
  }

  #others(name: string): Kept[] {
    return this.#book.users.filter((user) => user.name !== name);
  }

  async #keep(book: Book): Promise<void> {
    await this.#file.set(KEY, JSON.stringify(book));
    this.#book = book;
  }

  #change<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}
