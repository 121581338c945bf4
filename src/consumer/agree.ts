import { DloError } from "../core/index.ts";
import type { Maybe } from "../ports/index.ts";
import type { Plan } from "./options.ts";

/** Who works on which queue in this process, and up to how many attempts. */
const working = new WeakMap<object, { maxAttempts: number; consumers: number }>();

/**
 * Begins to work on a queue, unless its own limit is lower, or a consumer of this process or (where the queue can
 * tell) of another one has another number: a message's fate would hang on who happens to take it. Answers what ends it.
 * @throws DloError CONFLICT naming both numbers.
 */
export async function join(queue: Plan["queue"], maxAttempts: number): Promise<() => Maybe<void>> {
  const leave = joinHere(queue, maxAttempts);
  try {
    await queue.accepts?.(maxAttempts);
    const leaveOthers = await queue.join?.(maxAttempts);
    return () => {
      leave();
      return leaveOthers?.();
    };
  } catch (error) {
    leave();
    throw error;
  }
}

function joinHere(queue: { readonly name?: string }, maxAttempts: number): () => void {
  const known = working.get(queue) ?? { maxAttempts, consumers: 0 };
  if (known.consumers > 0 && known.maxAttempts !== maxAttempts) {
    const name = queue.name === undefined ? "the queue" : `queue ${JSON.stringify(queue.name)}`;
    const words = `${name} has a running consumer with maxAttempts ${known.maxAttempts}, this one asks for ${maxAttempts}`;
    throw new DloError("CONFLICT", `${words}; expected the same number`);
  }
  working.set(queue, { maxAttempts, consumers: known.consumers + 1 });
  return () => working.set(queue, { maxAttempts, consumers: (working.get(queue)?.consumers ?? 1) - 1 });
}
