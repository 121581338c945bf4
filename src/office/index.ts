export * from "./body.ts";
export * from "./plan.ts";
export * from "./query.ts";
export * from "./run.ts";
export * from "./select.ts";
export * from "./units.ts";
