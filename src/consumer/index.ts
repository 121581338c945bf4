export { Consumer, type RunOptions } from "./consumer.ts";
export {
  type BodyOf,
  type ConsumerLetters,
  type ConsumerQueue,
  DLQConsumer,
  type DLQConsumerOptions,
  type Handled,
} from "./dlq-consumer.ts";
export type { ConsumerEvents } from "./events.ts";
export type { ConsumerOptions, Handler, HandlerContext } from "./options.ts";
