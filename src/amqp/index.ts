export { ANNOUNCED_VERSION } from "./announce.ts";
export type { AmqpLimits } from "./limits.ts";
export { limitsFor } from "./limits.ts";
export { type AmqpOptions, type AmqpServer, type ConnectionInfo, serveAmqp } from "./server.ts";
export {
  checkPatterns,
  hashPassword,
  isLoopback,
  isPasswordHash,
  type Permissions,
  type User,
  type UserOptions,
  Users,
} from "./users.ts";
