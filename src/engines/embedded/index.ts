/**
 * The embedded engine: a durable broker in one SQLite file, in this process. `openBroker` opens it; queues and
 * dead letters are the consumer's ports, channels have amqplib's methods, `host` serves the AMQP server.
 */
export {
  type BrokerSettings,
  EmbeddedBroker,
  EmbeddedLetters,
  EmbeddedVhost,
  type Meta,
  openBroker,
} from "./broker.ts";
export {
  Channel,
  type ConsumeOptions,
  type ExchangeOptions,
  type OnMessage,
  type QueueOk,
} from "./channel.ts";
export type { ChannelMessage, MessageFields, MessageProperties, PublishOptions } from "./channel-message.ts";
export type { Durability } from "./committer.ts";
export { ConfirmChannel } from "./confirm-channel.ts";
export { DeadLetterStore } from "./dead-letters.ts";
export type { Delayed, DelayOptions } from "./delays.ts";
export type { Fingerprinter } from "./letters.ts";
export { LOST_LETTERS, type LostCount } from "./lost.ts";
export type { Outgoing } from "./names.ts";
export type { Duration, QueueDeclaration, QueueOptions } from "./options.ts";
export { EmbeddedQueue } from "./queue.ts";
