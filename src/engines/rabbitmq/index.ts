export * from "./management.ts";
