/** The AMQP server with a broker under it: what `dead-letter-office/amqp` exports. */
export * from "../amqp/index.ts";
export { type DeclareCheckOptions, watchDeclarations } from "./declare-check.ts";
export { type DevIo, type DevOptions, runDev } from "./dev-command.ts";
export { checkLettersKept, type LettersKeptOptions } from "./letters-kept.ts";
export { whoListens } from "./port-holder.ts";
export { type StartedBroker, type StartOptions, startBroker } from "./start-broker.ts";
export { readUsersFile, usersOf } from "./users-file.ts";
