import { defineConfig } from "vitest/config";

// One project per kind of proof; `npm test` runs them all. Slow projects run their files one after
// another: they start processes and servers of their own and would otherwise fight for two cores.
const project = (name: string, options: { timeoutMs?: number; serial?: boolean } = {}) => ({
  test: {
    name,
    include: [`test/${name}/**/*.test.ts`],
    testTimeout: options.timeoutMs ?? 10_000,
    hookTimeout: Math.max(60_000, options.timeoutMs ?? 0),
    fileParallelism: !options.serial,
    pool: "forks" as const,
  },
});

export default defineConfig({
  test: {
    reporters: ["default", "./tools/plain-reporter.mjs"],
    projects: [
      project("unit"),
      project("rules", { timeoutMs: 30_000 }),
      project("explore", { timeoutMs: 120_000 }),
      project("conformance", { timeoutMs: 60_000, serial: true }),
      project("crash", { timeoutMs: 180_000, serial: true }),
      project("e2e", { timeoutMs: 180_000, serial: true }),
      project("package", { timeoutMs: 300_000, serial: true }),
      project("tidy", { timeoutMs: 120_000 }),
    ],
  },
});
