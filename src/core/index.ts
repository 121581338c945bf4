export * from "./errors.ts";
export * from "./message.ts";
