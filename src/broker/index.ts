export * from "./errors.ts";
export * from "./table.ts";
export * from "./types.ts";
