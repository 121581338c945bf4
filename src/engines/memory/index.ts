export { MemoryDLQ } from "./dlq.ts";
export { MemoryQueue } from "./queue.ts";
export { type MemoryProcess, MemoryStore, type MemoryStoreOptions } from "./store.ts";
