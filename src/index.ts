export * from "./consumer/index.ts";
export * from "./core/index.ts";
export * from "./engines/embedded/index.ts";
export * from "./engines/memory/index.ts";
export type * from "./ports/index.ts";
export {
  type WorkerOutput,
  type WorkerOutputSource,
  WorkerPool,
  type WorkerPoolOptions,
  type WorkerPoolStatus,
} from "./worker/index.ts";
