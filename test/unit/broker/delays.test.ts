import fc from "fast-check";
import { expect, test } from "vitest";
import { DelayHeap } from "../../../src/broker/delays.ts";
import { Entry } from "../../../src/broker/entry.ts";

type Step = { do: "push"; dueAt: number; starts: number } | { do: "pop" } | { do: "cancel"; which: number };

const steps = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant("push" as const),
        dueAt: fc.integer({ min: 1, max: 40 }),
        starts: fc.nat(1),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("pop" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("cancel" as const), which: fc.nat(60) }) },
  ),
  { maxLength: 120 },
);

const shown = (e: Entry | undefined) => (e === undefined ? undefined : [e.seq, e.dueAt, e.starts, e.size]);

/** What a sorted list would do. */
class Plain {
  readonly all: Entry[] = [];

  push(e: Entry): void {
    this.all.push(e);
    this.all.sort((a, b) => a.dueAt - b.dueAt || a.seq - b.seq);
  }

  cancel(seq: number): Entry | undefined {
    const at = this.all.findIndex((e) => e.seq === seq);
    return at < 0 ? undefined : this.all.splice(at, 1)[0];
  }
}

function entry(seq: number, dueAt: number, starts: number): Entry {
  const e = new Entry(seq, seq, seq % 7, 0, true);
  e.dueAt = dueAt;
  e.starts = starts;
  return e;
}

test("delayed messages come out as from a sorted list, whatever is put in, taken and cancelled", () => {
  fc.assert(
    fc.property(steps, (all: Step[]) => {
      const heap = new DelayHeap();
      const plain = new Plain();
      let seq = 0;
      for (const step of all) {
        if (step.do === "push") {
          seq++;
          heap.push(entry(seq, step.dueAt, step.starts));
          plain.push(entry(seq, step.dueAt, step.starts));
        } else if (step.do === "pop") expect(shown(heap.pop())).toEqual(shown(plain.all.shift()));
        else expect(shown(heap.cancel(step.which))).toEqual(shown(plain.cancel(step.which)));
        expect(heap.length).toBe(plain.all.length);
        expect(heap.nextDueAt()).toBe(plain.all[0]?.dueAt ?? Number.POSITIVE_INFINITY);
        expect(heap.bytes).toBe(plain.all.reduce((sum, e) => sum + e.size, 0));
      }
      expect(heap.list().map(shown)).toEqual(plain.all.map(shown));
    }),
    { numRuns: 300 },
  );
});
