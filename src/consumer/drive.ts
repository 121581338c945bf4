/** Runs a procedure: at once while every answer is there, with a promise from the first pending one on. */
import { isPending, perform, type Steps, type World } from "../core/index.ts";
import type { Maybe } from "../ports/index.ts";

/** The end of the procedure, now or later. What a port throws ends it: thrown while synchronous, else rejected. */
export function drive<R>(steps: Steps<R>, world: World): Maybe<R> {
  let step = steps.next();
  while (step.done !== true) {
    const answer = perform(step.value, world);
    if (isPending(answer)) return later(steps, world, answer);
    step = steps.next(answer);
  }
  return step.value;
}

async function later<R>(steps: Steps<R>, world: World, pending: PromiseLike<unknown>): Promise<R> {
  let step = steps.next(await pending);
  while (step.done !== true) {
    const answer = perform(step.value, world);
    step = steps.next(isPending(answer) ? await answer : answer);
  }
  return step.value;
}
