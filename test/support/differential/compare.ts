import fc from "fast-check";
import { runOnMachine } from "./machine-side.ts";
import type { RabbitSide } from "./rabbit-side.ts";
import { type Run, type Script, scripts } from "./script.ts";

/** How many scripts agreed, and how many the machine was too slow for (their TTLs would prove nothing). */
export interface Tally {
  agreed: number;
  inconclusive: number;
}

const TRIES = 3;

/**
 * Runs `count` random scripts on both sides, `lanes` at a time; throws fast-check's report with the shrunk script
 * and both runs at the first difference.
 */
export async function compare(
  rabbit: RabbitSide,
  kind: { quorum: boolean; ttl: boolean },
  count: number,
  options: { seed: number; lanes: number; onRun?: (script: Script, run: Run) => void },
): Promise<Tally> {
  const tally: Tally = { agreed: 0, inconclusive: 0 };
  const lane = (index: number) =>
    fc.assert(
      fc.asyncProperty(scripts(kind), async (script) => {
        const expected = runOnMachine(script);
        fc.pre(!expected.racy);
        let actual: Run | null = null;
        for (let i = 0; i < TRIES && !actual; i++) actual = await rabbit.run(script, expected);
        if (!actual) {
          tally.inconclusive += 1;
          return;
        }
        const difference = firstDifference(expected, actual, script);
        if (difference) throw new Error(difference);
        tally.agreed += 1;
        options.onRun?.(script, actual);
      }),
      { seed: options.seed + index, numRuns: Math.ceil(count / options.lanes), endOnFailure: false },
    );
  await Promise.all(Array.from({ length: options.lanes }, (_, index) => lane(index)));
  return tally;
}

/** In words: the first step, or queue at the end, where the two runs differ; null when they agree. */
export function firstDifference(machine: Run, rabbit: Run, script: Script): string | null {
  for (const [index, mine] of machine.observations.entries()) {
    const theirs = rabbit.observations[index];
    if (JSON.stringify(mine) !== JSON.stringify(theirs))
      return `step ${index} ${JSON.stringify(script.steps[index] ?? "last")}\n  machine:  ${JSON.stringify(mine)}\n  rabbitmq: ${JSON.stringify(theirs)}`;
  }
  for (const [queue, mine] of Object.entries(machine.left)) {
    if (JSON.stringify(mine) !== JSON.stringify(rabbit.left[queue]))
      return `left in ${queue}\n  machine:  ${JSON.stringify(mine)}\n  rabbitmq: ${JSON.stringify(rabbit.left[queue])}`;
  }
  return null;
}
