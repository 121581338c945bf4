/** Spares the next message the wake-up of a sleeping process. */
import { performance } from "node:perf_hooks";

/** How long a process looks for its next message before it sleeps, ms. */
const AWAKE_MS = 0.15;
/** Who lost the processor for so long while looking has company that needs it, ms. */
const PUSHED_MS = 2;
/** How many times as long it then leaves the processor to others. */
const YIELD_TIMES = 20;

/**
 * Keeps this process's event loop turning for a moment, again from each call on. A process that sleeps is woken by the
 * kernel, and on a virtual processor that has gone to rest this takes longer than all else between a parent and its
 * child, or a broker and its client: what is answered at once is read twice as soon. When nothing comes it sleeps as
 * ever, so at rest it costs nothing; and where the processors are busy it does not look at all, for then it is pushed
 * aside for having looked. To be called when something came and again when it was dealt with.
 */
export const stayAwake: () => void = turning();

function turning(): () => void {
  let until = 0;
  let turnedAt = 0;
  let yieldsUntil = 0;
  let turns = false;
  const turn = (): void => {
    const now = performance.now();
    const lost = now - turnedAt;
    if (lost > PUSHED_MS) yieldsUntil = now + lost * YIELD_TIMES;
    turnedAt = now;
    if (now < until && now >= yieldsUntil) setImmediate(turn);
    else turns = false;
  };
  return () => {
    const now = performance.now();
    if (now < yieldsUntil) return;
    until = now + AWAKE_MS;
    // The work that led here took its own time: only what passes between two looks was taken by others.
    turnedAt = now;
    if (turns) return;
    turns = true;
    setImmediate(turn);
  };
}
