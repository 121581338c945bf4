export type { WorkerPoolOptions } from "./options.ts";
export type { Output, OutputSource } from "./output.ts";
export { WorkerPool, type WorkerPoolStatus } from "./supervisor.ts";
