/**
 * The experiment behind "a lease is not a delivery": some messages, a few of which kill the process that handles
 * them, processes that take a window of them, and the question who is dead-lettered at the end.
 */
import { type Message, mayReceive, mayStart, processOne, rulesFor } from "../core/index.ts";
import { type HeldRun, runToHandler, worldOf } from "./steps.ts";
import type { ConformanceProcess, ConformanceWorld } from "./world.ts";

/** The setting of one run. */
export interface Experiment {
  readonly messages: number;
  /** How many messages a process takes before it has settled any. */
  readonly window: number;
  /** How many handlers run at the same time; at most the window. */
  readonly concurrency: number;
  /** How many messages kill. */
  readonly pills: number;
}

/** What the run showed; ids in order. */
export interface ExperimentResult {
  readonly pills: readonly string[];
  readonly deadPills: readonly string[];
  readonly deadInnocents: readonly string[];
  /** Innocents whose handler never returned. */
  readonly unhandled: readonly string[];
  readonly mostPillStarts: number;
  /** Messages left in the queue. */
  readonly left: number;
}

const MAX_ATTEMPTS = 3;
/** Each pill kills at most three processes; more lives than this mean that nothing moves any more. */
const SPARE_LIVES = 10;
/** How often a process finds nothing before it takes the queue for empty. */
const EMPTY_LOOKS = 50;
const pause = (): Promise<void> => new Promise((done) => setTimeout(done, 5));

/** Runs the experiment on a fresh world. */
export async function runExperiment(world: ConformanceWorld, setting: Experiment): Promise<ExperimentResult> {
  const name = (n: number): string => `${n}`.padStart(4, "0");
  const ids = Array.from({ length: setting.messages }, (_, n) => name(n));
  const step = Math.floor(setting.messages / setting.pills);
  const pills = Array.from({ length: setting.pills }, (_, n) => name(n * Math.min(step, 5) + 3));
  const sender = await world.process();
  for (const id of ids) await sender.queue.send(`body ${id}`, id);
  const starts = new Map<string, number>();
  const handled = new Set<string>();
  const lives = setting.pills * MAX_ATTEMPTS + SPARE_LIVES;
  for (let life = 0; life < lives; life++) {
    const own = await world.process();
    await own.queue.recover();
    if (await live(own, setting, { pills: new Set(pills), starts, handled })) break;
    await own.crash();
  }
  const last = await world.process();
  const dead = (await last.deadLetters.list()).map((entry) => entry.id).sort();
  return {
    pills,
    deadPills: dead.filter((id) => pills.includes(id)),
    deadInnocents: dead.filter((id) => !pills.includes(id)),
    unhandled: ids.filter((id) => !pills.includes(id) && !handled.has(id)),
    mostPillStarts: Math.max(...pills.map((id) => starts.get(id) ?? 0)),
    left: await last.queue.pending(),
  };
}

interface Notes {
  readonly pills: ReadonlySet<string>;
  readonly starts: Map<string, number>;
  readonly handled: Set<string>;
}

/** One process: true when the queue was emptied, false when a pill killed it. */
async function live(own: ConformanceProcess, setting: Experiment, notes: Notes): Promise<boolean> {
  const held: Message[] = [];
  const running: HeldRun<unknown>[] = [];
  let suspect: Message | null = null;
  for (let empty = 0; empty < EMPTY_LOOKS; ) {
    while (mayReceive({ running: running.length + held.length, suspect }, setting.window)) {
      const message: Message | null = await own.queue.receive();
      if (message === null) break;
      if (message.suspect === true) suspect = message;
      held.push(message);
    }
    await startAll(own, setting, { held, running, suspect }, notes);
    const run = running.shift();
    if (run === undefined) {
      if (held.length > 0) continue;
      suspect = null;
      if ((await own.queue.pending()) === 0) return true;
      empty++;
      await pause();
      continue;
    }
    empty = 0;
    const id = run.message?.id ?? "";
    if (notes.pills.has(id)) return false;
    await run.end(undefined);
    notes.handled.add(id);
    if (suspect?.id === id) suspect = null;
  }
  return true;
}

interface Slots {
  readonly held: Message[];
  readonly running: HeldRun<unknown>[];
  readonly suspect: Message | null;
}

/** Starts what may run beside what runs already; a message that ends without its handler makes room at once. */
async function startAll(
  own: ConformanceProcess,
  setting: Experiment,
  slots: Slots,
  notes: Notes,
): Promise<void> {
  const { held, running, suspect } = slots;
  while (running.length < setting.concurrency) {
    const window = { running: running.length, suspect };
    // Those taken before the suspect came finish first; it runs when the window is empty.
    const at = held.findIndex((one) => one !== suspect || (running.length === 0 && held.length === 1));
    const message = held[at];
    if (message === undefined || (message === suspect && !mayStart(window, message))) return;
    held.splice(at, 1);
    const world = worldOf({ ...own, queue: given(own, message) }, () => {});
    const run = await runToHandler(processOne(rulesFor(own.queue, MAX_ATTEMPTS)), world);
    if (run === null) continue;
    const id = message.id;
    notes.starts.set(id, (notes.starts.get(id) ?? 0) + 1);
    running.push(run);
  }
}

/** The queue with one message that was received before as its next. */
function given(own: ConformanceProcess, message: Message): ConformanceProcess["queue"] {
  return new Proxy(own.queue, {
    get(queue, key) {
      if (key === "receive") return () => message;
      const value: unknown = Reflect.get(queue, key, queue);
      return typeof value === "function" ? value.bind(queue) : value;
    },
  });
}
