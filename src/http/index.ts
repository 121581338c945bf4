export * from "./app.ts";
export * from "./client.ts";
export * from "./management/index.ts";
export * from "./serve.ts";
export * from "./socket.ts";
export * from "./wire.ts";
