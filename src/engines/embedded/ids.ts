/** Message ids: uuids of version 7, in order of making. Randomness is fetched in bulk: a call each costs more than all the rest. */
import { randomFillSync } from "node:crypto";
import { V7Generator } from "uuidv7";

const pool = new Uint32Array(1024);
let next: number = pool.length;

const generator: V7Generator = new V7Generator({
  nextUint32: () => {
    if (next === pool.length) {
      randomFillSync(pool);
      next = 0;
    }
    return pool[next++] as number;
  },
});

export function newId(): string {
  return generator.generate().toString();
}
