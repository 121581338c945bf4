export * from "./errors.ts";
export * from "./host.ts";
export * from "./properties.ts";
export * from "./table.ts";
export * from "./types.ts";
