import { DloError } from "../core/index.ts";

/** Who works on which queue in this process, and up to how many attempts. */
const working = new WeakMap<object, { maxAttempts: number; consumers: number }>();

/** Refuses a second limit on one queue: a message's fate would hang on who happens to take it. */
export function join(queue: { readonly name?: string }, maxAttempts: number): () => void {
  const known = working.get(queue) ?? { maxAttempts, consumers: 0 };
  if (known.consumers > 0 && known.maxAttempts !== maxAttempts) {
    const name = queue.name === undefined ? "the queue" : `queue ${JSON.stringify(queue.name)}`;
    const words = `${name} has a running consumer with maxAttempts ${known.maxAttempts}, this one asks for ${maxAttempts}`;
    throw new DloError("CONFLICT", `${words}; expected the same number`);
  }
  working.set(queue, { maxAttempts, consumers: known.consumers + 1 });
  return () => working.set(queue, { maxAttempts, consumers: (working.get(queue)?.consumers ?? 1) - 1 });
}
