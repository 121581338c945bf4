/**
 * For authors of queues and stores, and for tests: the conformance suites every engine of this project passes, a
 * clock that stands still, and procedures that die where the test says.
 */
export { FakeClock } from "./clock.ts";
export { type Experiment, type ExperimentResult, runExperiment } from "./experiment.ts";
export { deadLettersConformance } from "./letters-suite.ts";
export { queueConformance } from "./queue-suite.ts";
export { type CrashPoint, type PlayedHandler, runSteps, Stopped, worldOf } from "./steps.ts";
export type { ConformanceOptions, ConformanceProcess, ConformanceWorld, TestFunctions } from "./world.ts";
