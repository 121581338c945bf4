/**
 * The doctor's rules, pure: where do a queue's dead letters end, and what is wrong with the way. The same rules serve
 * `dlo doctor`, declarations in the embedded broker and a consumer that looks before it starts.
 */
export { compareDefinitions } from "./compare.ts";
export { builtinExchanges, queueModel } from "./definitions.ts";
export {
  type BrokerView,
  examine,
  examineQueueDeclaration,
  examineTopology,
  lettersOf,
  type QueueExamination,
  refusesToStart,
  type StartRefusal,
} from "./examine.ts";
export { atLeast } from "./rules.ts";
export * from "./types.ts";
