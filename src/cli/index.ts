export * from "./exit.ts";
export * from "./io.ts";
export * from "./program.ts";
