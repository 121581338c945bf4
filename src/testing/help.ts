import {
  type DeadLetter,
  type Message,
  processOne,
  replay,
  replayRulesFor,
  rulesFor,
} from "../core/index.ts";
import type { Queue } from "../ports/index.ts";
import { type CrashPoint, type PlayedHandler, runSteps, Stopped, worldOf } from "./steps.ts";
import type { ConformanceOptions, ConformanceProcess } from "./world.ts";

const DEFAULT_PATIENCE_MS = 2_000;
const POLL_MS = 5;

const pause = (): Promise<void> => new Promise((done) => setTimeout(done, POLL_MS));

/** The next message; waits for one that was sent but has not arrived yet. Fails when none comes. */
export async function arrival(options: ConformanceOptions, queue: Queue): Promise<Message> {
  const until = Date.now() + (options.patienceMs ?? DEFAULT_PATIENCE_MS);
  for (;;) {
    const message = await queue.receive();
    if (message) return message;
    if (Date.now() > until) throw new Error(`${options.name}: no message came within the patience`);
    await pause();
  }
}

/** Waits until nothing is in the way of a condition; engines over a network answer late. */
export async function soon(options: ConformanceOptions, holds: () => Promise<boolean>): Promise<boolean> {
  const until = Date.now() + (options.patienceMs ?? DEFAULT_PATIENCE_MS);
  for (;;) {
    if (await holds()) return true;
    if (Date.now() > until) return false;
    await pause();
  }
}

/** One message through the rules; waits for it to arrive. Answers the outcome. */
export async function process(
  options: ConformanceOptions,
  own: ConformanceProcess,
  handler: PlayedHandler,
  crashAt?: CrashPoint,
): Promise<string | null> {
  const until = Date.now() + (options.patienceMs ?? DEFAULT_PATIENCE_MS);
  for (;;) {
    const steps = processOne(rulesFor(own.queue, 3));
    const outcome = await runSteps(steps, worldOf(own, handler), crashAt);
    if (outcome !== null || Date.now() > until) return outcome;
    await pause();
  }
}

/** Runs until the process dies at the point; true when it did. */
export async function dies(
  options: ConformanceOptions,
  own: ConformanceProcess,
  handler: PlayedHandler,
  crashAt: CrashPoint,
): Promise<boolean> {
  try {
    await process(options, own, handler, crashAt);
    return false;
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
    await own.crash();
    return true;
  }
}

/** Replays through the rules. Answers the ids sent. */
export function replayAll(
  own: ConformanceProcess,
  ids?: readonly string[],
  crashAt?: CrashPoint,
): Promise<string[]> {
  const world = worldOf(own, () => {});
  return runSteps(replay(replayRulesFor(own.deadLetters, own.queue), ids), world, crashAt);
}

/** The contract's seven fields of an entry. */
export function sevenOf(entry: DeadLetter): DeadLetter {
  const { id, body, reason, error, attempts, firstAttemptAt, failedAt } = entry;
  return { id, body, reason, error, attempts, firstAttemptAt, failedAt };
}
