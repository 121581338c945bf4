export * from "./dlq-consumer.ts";
