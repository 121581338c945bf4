export { Broker } from "./broker.ts";
export * from "./errors.ts";
export * from "./host.ts";
export type { LostCount, QueueView, Seen } from "./inspect.ts";
export type { BrokerOptions } from "./machine.ts";
export type { QueueOptions } from "./policy.ts";
export * from "./properties.ts";
export * from "./table.ts";
export * from "./types.ts";
