/**
 * `dead-letter-office`: the consumer, its queues and letters in memory and on the embedded broker, and the words they
 * share. RabbitMQ, the AMQP server, the doctor and the conformance suites have entry points of their own. Everything
 * is named here: what is not named is no promise.
 */

// The consumer, and the handlers' processes.
export {
  type BodyOf,
  Consumer,
  type ConsumerEvents,
  type ConsumerLetters,
  type ConsumerOptions,
  type ConsumerQueue,
  DLQConsumer,
  type DLQConsumerOptions,
  type Handled,
  type Handler,
  type HandlerContext,
  type RunOptions,
} from "./consumer/index.ts";
// Messages, failures and letters.
export {
  type Attempt,
  type Backoff,
  type Classify,
  Crash,
  classify,
  type DeadLetter,
  DLO_ERROR_CODES,
  DloError,
  type DloErrorCode,
  type EarlierLife,
  type FailureClass,
  type FailureFacts,
  type Fingerprint,
  type FingerprintBy,
  fingerprintOf,
  type LetterReason,
  MAX_EARLIER_LIVES,
  MAX_ERROR_TEXT,
  type Message,
  type Outcome,
  PermanentError,
  type Reason,
  type Receipt,
  TransientError,
  type Undecodable,
} from "./core/index.ts";
// The embedded broker.
export {
  type BrokerSettings,
  Channel,
  type ChannelMessage,
  ConfirmChannel,
  type ConsumeOptions,
  DeadLetterStore,
  type Delayed,
  type DelayOptions,
  type Durability,
  type Duration,
  EmbeddedBroker,
  EmbeddedLetters,
  EmbeddedQueue,
  EmbeddedVhost,
  type ExchangeOptions,
  type Fingerprinter,
  LOST_LETTERS,
  type LostCount,
  type MessageFields,
  type MessageProperties,
  type Meta,
  type OnMessage,
  type Outgoing,
  openBroker,
  type PublishOptions,
  type QueueDeclaration,
  type QueueOk,
  type QueueOptions,
} from "./engines/embedded/index.ts";
// Queues and letters in memory.
export {
  MemoryDLQ,
  type MemoryProcess,
  MemoryQueue,
  MemoryStore,
  type MemoryStoreOptions,
} from "./engines/memory/index.ts";
// What an engine, a store and a runner of one's own must do.
export type {
  Clock,
  DeadLetters,
  HandlerRunner,
  Letter,
  LetterFilter,
  LetterGroup,
  LetterState,
  LetterStore,
  LetterSummary,
  Logger,
  Maybe,
  OperationResult,
  Queue,
  QueueStatus,
  QueueSupports,
  Random,
  Resend,
  RetryOptions,
  RunResult,
} from "./ports/index.ts";
export {
  type WorkerOutput,
  type WorkerOutputSource,
  WorkerPool,
  type WorkerPoolOptions,
  type WorkerPoolStatus,
} from "./worker/index.ts";
