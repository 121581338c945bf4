export * from "./errors.ts";
export * from "./message.ts";
export * from "./utf8.ts";
