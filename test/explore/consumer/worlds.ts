/**
 * What the checker plays the rules against. A world's state is plain data that can be copied, so that the checker
 * can go back to any point: the contract's fakes (in the two forms that matter), and the memory engine itself.
 */

import type { DeadLetter, World } from "../../../src/core/index.ts";
import { copyState, emptyState, type MemoryState } from "../../../src/engines/memory/state.ts";
import { MemoryStore } from "../../../src/engines/memory/store.ts";

export interface Held {
  readonly id: string;
  readonly generation: number;
  readonly holder: number;
}

/** How the checker looks at a world, and moves what no consumer moves. */
export interface Scene<S> {
  start(messages: readonly string[]): S;
  copy(state: S): S;
  /** Everything in the state that can make a difference; processes by their place, fences by order of appearance. */
  key(state: S, place: (process: number) => string, fence: (receipt: unknown) => string): string;
  /** The ports of a process, working on this very state. */
  ports(state: S, process: number): World;
  /** A new process; answers its number. */
  open(state: S): number;
  crash(state: S, process: number): void;
  /** What dead processes held waits again. */
  recover(state: S): void;
  /** The hold of a live process runs out. */
  takeOver(state: S, index: number): void;
  /** The queue, waiting and held. */
  rows(state: S): readonly Held[];
  letters(state: S): readonly DeadLetter[];
}

interface PlainRow {
  id: string;
  receiveCount: number;
  holder: number;
}

export interface PlainState {
  rows: PlainRow[];
  letters: DeadLetter[];
  dead: number[];
  next: number;
}

const NOW = 1;
const noRun = () => {
  throw new Error("the checker runs the handlers itself");
};

/** The contract's fakes: by id, no fences, no lives. `recoversAll`: a recover that asks nobody who is still alive. */
export function plainScene(options: { recoversAll?: boolean } = {}): Scene<PlainState> {
  const settle = (state: PlainState, process: number, id: string): PlainRow => {
    // Fakes settle by id: what this process holds under it, or else whatever is in flight under it.
    const own = state.rows.findIndex((row) => row.id === id && row.holder === process);
    const at = own >= 0 ? own : state.rows.findIndex((row) => row.id === id && row.holder !== 0);
    const [row] = at >= 0 ? state.rows.splice(at, 1) : [];
    return row ?? { id: "", receiveCount: 0, holder: 0 };
  };
  const back = (state: PlainState, holds: (row: PlainRow) => boolean): void => {
    for (const row of state.rows) if (row.holder !== 0 && holds(row)) row.holder = 0;
  };
  return {
    start: (messages) => ({
      rows: messages.map((id) => ({ id, receiveCount: 0, holder: 0 })),
      letters: [],
      dead: [],
      next: 1,
    }),
    copy: (state) => ({
      rows: state.rows.map((row) => ({ ...row })),
      letters: [...state.letters],
      dead: [...state.dead],
      next: state.next,
    }),
    key: (state, place) =>
      `${state.rows.map((row) => `${row.id}${row.receiveCount}${place(row.holder)}`).join()}|${state.letters
        .map((entry) => `${entry.id}${entry.reason}${entry.attempts}`)
        .join()}`,
    ports: (state, process) => ({
      queue: {
        send: (message: { id: string }) => {
          state.rows.push({ id: message.id, receiveCount: 0, holder: 0 });
        },
        receive: () => {
          const row = state.rows.find((one) => one.holder === 0);
          if (row === undefined) return null;
          row.holder = process;
          row.receiveCount++;
          return { id: row.id, body: row.id, receiveCount: row.receiveCount, firstReceivedAt: NOW };
        },
        ack: (id) => void settle(state, process, id),
        retry: (id) => {
          const row = settle(state, process, id);
          if (row.id !== "") state.rows.push({ ...row, holder: 0 });
        },
      },
      deadLetters: {
        put: (entry: DeadLetter) => void state.letters.push(entry),
        has: (id) => state.letters.some((entry) => entry.id === id),
        remove: (id) => {
          state.letters = state.letters.filter((entry) => entry.id !== id);
        },
        list: () => state.letters,
      },
      run: noRun,
      now: () => NOW,
    }),
    open: (state) => state.next++,
    crash: (state, process) => void state.dead.push(process),
    recover: (state) => back(state, (row) => options.recoversAll === true || state.dead.includes(row.holder)),
    takeOver: () => {},
    rows: (state) => state.rows.map((row) => ({ ...row, generation: 1 })),
    letters: (state) => state.letters,
  };
}

type StoreState = MemoryState<unknown>;

/** More processes than any exploration starts. */
const PROCESSES = 40;

/**
 * The memory engine: starts, fences, lives. `apart`: queue and letters share no transaction, as a broker and an
 * office's database do not.
 */
export function storeScene(options: { apart?: boolean; Store?: typeof MemoryStore } = {}): Scene<StoreState> {
  const Store = options.Store ?? MemoryStore;
  const store = new Store<unknown>({ clock: { now: () => NOW } });
  const handles = Array.from({ length: PROCESSES }, () => store.open());
  const mount = (state: StoreState) => {
    store.restore(state);
    return state;
  };
  const messageKey = (
    row: StoreState["rows"][number],
    place: (n: number) => string,
    fence: (r: unknown) => string,
  ) =>
    `${row.id}.${row.generation}.${row.starts}.${row.allStarts}${row.suspect ? "s" : ""}${row.startedAt ? "r" : ""}${
      row.holder === 0 ? "" : place(row.holder) + fence(row.receipt)
    }`;
  return {
    start: (messages) => {
      const state = emptyState<unknown>();
      mount(state);
      for (const id of messages) store.enqueue({ id, body: id });
      return state;
    },
    copy: copyState,
    key: (state, place, fence) =>
      [
        state.rows.map((row) => messageKey(row, place, fence)).join(),
        state.letters
          .map(
            ({ entry, marker }) =>
              `${entry.id}.${entry.generation}${entry.reason}${entry.attempts}${place(marker)}`,
          )
          .join(),
        [...state.tombstones]
          .map(([id, all]) => `${id}.${all.map((tomb) => tomb.generation).join(".")}`)
          .join(),
        [...state.sent].map(([id, generation]) => `${id}.${generation}`).join(),
      ].join("|"),
    ports: (state, process) => {
      mount(state);
      const { queue, deadLetters } = handles[process - 1]!;
      const ports = { queue, deadLetters, run: noRun, now: () => NOW } as World;
      if (!options.apart) return ports;
      // Bound, and without the two methods that need one transaction.
      const bind = <T extends object>(port: T, names: (keyof T)[]) =>
        Object.fromEntries(names.map((name) => [name, (port[name] as () => void).bind(port)]));
      return {
        ...ports,
        queue: bind(queue, [
          "send",
          "receive",
          "ack",
          "retry",
          "begin",
          "release",
        ]) as unknown as World["queue"],
        deadLetters: bind(deadLetters, [
          "put",
          "has",
          "remove",
          "list",
          "markReplaying",
        ]) as unknown as World["deadLetters"],
      };
    },
    open: (state) => {
      const process = state.nextProcess++;
      state.alive.add(process);
      return process;
    },
    crash: (state, process) => {
      mount(state);
      store.crash(process);
    },
    recover: (state) => {
      mount(state);
      store.reclaim();
    },
    takeOver: (state, index) => {
      const row = state.rows[index];
      if (row) row.heldUntil = 0;
      mount(state);
      store.reclaim();
    },
    rows: (state) => state.rows,
    letters: (state) => state.letters.map(({ entry }) => entry),
  };
}
