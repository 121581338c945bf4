/** Procedures under a test's hands: run to the end, or one effect at a time with a crash in between. */
import { type Message, type Need, perform, type Ran, type Steps, type World } from "../core/index.ts";
import type { ConformanceProcess } from "./world.ts";

/** How the test plays the handler. */
export type PlayedHandler = (message: Message) => unknown;

/** A process's ports as the steps call them. */
export function worldOf(
  process: ConformanceProcess,
  handler: PlayedHandler,
  now: () => number = Date.now,
): World {
  return { queue: process.queue, deadLetters: process.deadLetters, run: handler, now };
}

/** Thrown out of a procedure that was stopped at a crash point. */
export class Stopped extends Error {
  override readonly name: string = "Stopped";
  readonly need: Need["type"];
  constructor(need: Need["type"], side: "before" | "after") {
    super(`stopped ${side} ${need}`);
    this.need = need;
  }
}

/** Where a procedure dies: before or after its first effect of a kind. */
export interface CrashPoint {
  readonly need: Need["type"];
  readonly side: "before" | "after";
}

/**
 * Runs a procedure to its end, or to the crash point, where it throws {@link Stopped}.
 *
 * @example await runSteps(processOne(rules), world, { need: "put", side: "after" }) // dies between put and ack
 */
export async function runSteps<R>(steps: Steps<R>, world: World, crashAt?: CrashPoint): Promise<R> {
  let step = steps.next();
  while (step.done !== true) {
    const need = step.value;
    const here = crashAt?.need === need.type;
    if (here && crashAt?.side === "before") throw new Stopped(need.type, "before");
    const answer = await perform(need, world);
    if (here) throw new Stopped(need.type, "after");
    step = steps.next(answer);
  }
  return step.value;
}

/** A run that the test holds open: started, and ended when the test says how. */
export interface HeldRun<R> {
  readonly message: Message | null;
  /** Ends the handler this way and sees the procedure through. */
  end(ran: Ran): Promise<R>;
}

/** Runs a procedure up to its handler; null where it ended without calling it. */
export async function runToHandler<R>(steps: Steps<R>, world: World): Promise<HeldRun<R> | null> {
  let step = steps.next();
  while (step.done !== true) {
    const need = step.value;
    if (need.type === "run") {
      return {
        message: need.message,
        end: async (ran) => {
          let next = steps.next(ran);
          while (next.done !== true) next = steps.next(await perform(next.value, world));
          return next.value;
        },
      };
    }
    step = steps.next(await perform(need, world));
  }
  return null;
}
