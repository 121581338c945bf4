export type { WorkerPoolOptions } from "./options.ts";
export type { Output as WorkerOutput, OutputSource as WorkerOutputSource } from "./output.ts";
export { WorkerPool, type WorkerPoolStatus } from "./supervisor.ts";
