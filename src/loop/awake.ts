/** Spares the next message the wake-up of a sleeping process. */
import { performance } from "node:perf_hooks";

/** How long a process looks for its next message before it sleeps, ms. */
const AWAKE_MS = 0.15;
/** Steps of a counter between two looks, about 10 us: each look makes garbage, and collecting it holds up everything. */
const STEPS = 6_000;
/** Who lost the processor for so long while looking has company that needs it, ms. */
const PUSHED_MS = 2;
/** How many times as long it then leaves the processor to others. */
const YIELD_TIMES = 20;

// Times are kept in an array: each change of a variable that holds one would make a number to be collected.
const [UNTIL, TURNED_AT, YIELDS_UNTIL] = [0, 1, 2] as const;

/**
 * Keeps this process's event loop turning for a moment, again from each call on. A process that sleeps is woken by the
 * kernel, and on a virtual processor that has gone to rest this takes longer than all else between a parent and its
 * child, or a broker and its client: what is answered at once is read twice as soon. When nothing comes it sleeps as
 * ever, so at rest it costs nothing; and where the processors are busy it does not look at all, for then it is pushed
 * aside for having looked. To be called when something came and again when it was dealt with.
 */
export const stayAwake: () => void = turning();

function turning(): () => void {
  const times = new Float64Array(3);
  let turns = false;
  const turn = (): void => {
    const now = performance.now();
    const lost = now - (times[TURNED_AT] as number);
    if (lost > PUSHED_MS) times[YIELDS_UNTIL] = now + lost * YIELD_TIMES;
    times[TURNED_AT] = now;
    if (now < (times[UNTIL] as number) && now >= (times[YIELDS_UNTIL] as number)) {
      linger();
      setImmediate(turn);
    } else turns = false;
  };
  return () => {
    const now = performance.now();
    if (now < (times[YIELDS_UNTIL] as number)) return;
    times[UNTIL] = now + AWAKE_MS;
    // The work that led here took its own time: only what passes between two looks was taken by others.
    times[TURNED_AT] = now;
    if (turns) return;
    turns = true;
    setImmediate(turn);
  };
}

const counted = new Int32Array(1);

/** A moment in which nothing is done and nothing made; asking a clock when it is over would make a number each time. */
function linger(): void {
  let count = counted[0] as number;
  for (let step = 0; step < STEPS; step++) count = (Math.imul(count, 31) + step) | 0;
  counted[0] = count;
}
