import { isLoopback } from "../amqp/index.ts";
import type { ManagementAccounts } from "../http/index.ts";
import type { UserBook } from "./user-book.ts";

/** The management API's view of a broker's users. `host`: where the API listens. */
export function accountsOf(book: UserBook, host: string): ManagementAccounts {
  const { users } = book;
  // Where others reach the API too, nobody is known to come from this machine, and guest stays out.
  const from = isLoopback(host) ? host : undefined;
  return {
    authenticate: async (name, password) => (await users.authenticate(name, password, from))?.tags ?? null,
    users: () => users.list().map(({ name, tags }) => ({ name, tags })),
    permissions: () =>
      users.list().flatMap(({ name }) =>
        Object.entries(book.permissionsOf(name)).map(([vhost, patterns]) => ({
          user: name,
          vhost,
          ...patterns,
        })),
      ),
    putUser: (name, given) => book.put(name, given),
    deleteUser: (name) => book.delete(name),
    setPermissions: (user, vhost, patterns) => book.setPermissions(user, vhost, patterns),
    vhostMade: (vhost, by) => book.vhostMade(vhost, by),
    vhostGone: (vhost) => book.vhostGone(vhost),
  };
}
