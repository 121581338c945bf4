/** `dead-letter-office/rabbitmq`: the consumer's queues and dead letters on a real RabbitMQ. */
export type { Codec } from "./codec.ts";
export { standardCodec } from "./codec.ts";
export type { RabbitDeadLetters, RabbitDeadLettersOptions } from "./dead-letters.ts";
export type { Ledger, LedgerEntry } from "./ledger.ts";
export { openLedger } from "./ledger.ts";
export * from "./live-topology.ts";
export type { RabbitQueue } from "./queue.ts";
export type { RabbitQueueOptions } from "./queue-options.ts";
export type { RabbitMQ, RabbitMQOptions } from "./rabbit.ts";
export { connectRabbitMQ } from "./rabbit.ts";
export type { ReplayOptions, ReplayResult } from "./replay.ts";
export type { Rung, Topology, TopologyOptions } from "./topology.ts";
export { DEFAULT_DELAYS } from "./topology.ts";
