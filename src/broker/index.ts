export { Broker } from "./broker.ts";
export * from "./errors.ts";
export * from "./host.ts";
export type { BrokerOptions } from "./machine.ts";
export * from "./properties.ts";
export * from "./table.ts";
export * from "./types.ts";
