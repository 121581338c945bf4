/**
 * The checker: walks every state that processes, crashes, takeovers and replays can reach, breadth first, and stops
 * at the first state in which a promise is broken, with the shortest way there. It runs the generators of
 * src/core themselves: a process is the answers its procedure has been given so far.
 */
import {
  type DeadLetter,
  type Message,
  type Need,
  PermanentError,
  perform,
  processOne,
  type Ran,
  replay,
  replayRulesFor,
  rulesFor,
  type Steps,
} from "../../../src/core/index.ts";
import type { Held, Scene } from "./worlds.ts";

/** How a message's handler ends. `any`: each of ok, permanent and failing, at every run anew. */
export type Kind = "ok" | "permanent" | "failing" | "pill" | "any";

/** What is checked, by its words. */
export type Check =
  | "is lost"
  | "has two entries"
  | "is started too often"
  | "runs after its dead letter"
  | "runs in a life that is over"
  | "is in the queue twice"
  | "is handled and waits again"
  | "is handled and still among the dead"
  | "is dead-lettered without fault"
  | "can never be settled";

export interface Setting<S> {
  readonly scene: Scene<S>;
  /** The messages by id, in the queue's order; a doubled send is the same id again in `doubled`. */
  readonly messages: Readonly<Record<string, Kind>>;
  readonly doubled?: readonly string[];
  readonly consumers: number;
  readonly maxAttempts: number;
  /** Processes that may be killed from outside, anywhere. */
  readonly kills?: number;
  /** Holds of live processes that may run out. */
  readonly takeovers?: number;
  /** Replays of everything, and by how many processes. */
  readonly replays?: number;
  readonly replayers?: number;
  /** Nothing comes between send and remove of a replay: one synchronous process. */
  readonly unbroken?: boolean;
  /** What this world does not promise, by the words of the check; each is said in GUARANTEES. */
  readonly without?: readonly Check[];
  /** The rules under test; the production ones unless a mutant is given. */
  readonly rules?: { processOne?: typeof processOne; replay?: typeof replay };
}

export interface Found {
  readonly states: number;
  /** What was broken, and the way there; null when nothing was. */
  readonly broken: string | null;
  readonly way: readonly string[];
}

interface Process {
  readonly replayer: boolean;
  /** 0: dead. */
  process: number;
  answers: unknown[];
  /** Its handler has returned in this procedure. */
  returned: boolean;
  /** Its start was counted in this procedure. */
  begun: boolean;
}

/** What has happened, as far as promises depend on it. */
interface Facts {
  /** Per id: handler starts in this life. */
  starts: Record<string, number>;
  /** Per id: in this life a handler returned and the message was acked for it. */
  done: Record<string, boolean>;
  /** Per id: the life a start or success belongs to. */
  life: Record<string, number>;
}

interface World<S> {
  state: S;
  processes: Process[];
  facts: Facts;
  kills: number;
  takeovers: number;
  replays: number;
}

interface Node<S> {
  readonly world: World<S>;
  readonly from: Node<S> | null;
  readonly label: string;
  readonly key: string;
}

const failure: Ran = { ended: "failed", error: new Error("no") };
const never: Ran = { ended: "failed", error: new PermanentError("no") };

export function explore<S>(setting: Setting<S>, limit = 2_000_000): Found {
  const machine = new Machine(setting);
  const start = machine.start();
  const first: Node<S> = { world: start, from: null, label: "start", key: machine.key(start) };
  const seen = new Set([first.key]);
  let front = [first];
  while (front.length > 0) {
    const next: Node<S>[] = [];
    for (const node of front) {
      let moved = false;
      for (const step of machine.moves(node.world)) {
        const key = machine.key(step.world);
        const made: Node<S> = { world: step.world, from: node, label: step.label, key };
        if (step.broken !== null) return { states: seen.size, broken: step.broken, way: wayTo(made) };
        if (key !== node.key) moved = true;
        if (seen.has(key)) continue;
        seen.add(key);
        next.push(made);
      }
      const stuck = moved ? null : machine.atRest(node.world);
      if (stuck !== null) return { states: seen.size, broken: stuck, way: wayTo(node) };
      if (seen.size > limit) throw new Error(`more than ${limit} states; the setting is too large`);
    }
    front = next;
  }
  return { states: seen.size, broken: null, way: [] };
}

function wayTo(node: Node<unknown>): string[] {
  const way: string[] = [];
  for (let at: Node<unknown> | null = node; at?.from; at = at.from) way.unshift(at.label);
  return way;
}

interface Move<S> {
  readonly label: string;
  readonly world: World<S>;
  readonly broken: string | null;
}

class Machine<S> {
  readonly setting: Setting<S>;
  readonly scene: Scene<S>;
  readonly ids: string[];

  constructor(setting: Setting<S>) {
    this.setting = setting;
    this.scene = setting.scene;
    this.ids = Object.keys(setting.messages);
  }

  start(): World<S> {
    const { setting, scene } = this;
    const state = scene.start([...this.ids, ...(setting.doubled ?? [])]);
    const make = (replayer: boolean): Process => ({
      replayer,
      process: scene.open(state),
      answers: [],
      returned: false,
      begun: false,
    });
    return {
      state,
      processes: [
        ...Array.from({ length: setting.consumers }, () => make(false)),
        ...Array.from({ length: setting.replays ? (setting.replayers ?? 1) : 0 }, () => make(true)),
      ],
      facts: { starts: {}, done: {}, life: {} },
      kills: setting.kills ?? 0,
      takeovers: setting.takeovers ?? 0,
      replays: setting.replays ?? 0,
    };
  }

  copy(world: World<S>): World<S> {
    const { facts } = world;
    return {
      ...world,
      state: this.scene.copy(world.state),
      processes: world.processes.map((process) => ({ ...process, answers: [...process.answers] })),
      facts: { starts: { ...facts.starts }, done: { ...facts.done }, life: { ...facts.life } },
    };
  }

  key(world: World<S>): string {
    const fences = new Map<unknown, string>();
    const fence = (receipt: unknown): string => {
      if (receipt === undefined) return "";
      const known = fences.get(receipt) ?? `#${fences.size}`;
      fences.set(receipt, known);
      return known;
    };
    const place = (process: number): string => {
      if (process === 0) return "";
      const at = world.processes.findIndex((one) => one.process === process);
      return at < 0 ? "x" : `p${at}`;
    };
    const shown = (answer: unknown): string => {
      if (typeof answer !== "object" || answer === null) return String(answer);
      if (Array.isArray(answer))
        return answer.map((entry: DeadLetter) => `${entry.id}.${entry.generation}`).join();
      const message = answer as Message & { ended?: string; error?: Error };
      if (message.ended) return `${message.ended}${message.error?.name}`;
      return `${message.id}.${message.generation}.${message.receiveCount}.${message.starts}${fence(message.receipt)}`;
    };
    const state = this.scene.key(world.state, place, fence);
    const processes = world.processes.map(
      (one) => `${one.replayer ? "R" : "C"}${one.process === 0 ? "dead" : one.answers.map(shown).join(";")}`,
    );
    const { starts, done, life } = world.facts;
    const facts = this.ids.map((id) => `${starts[id] ?? 0}${done[id] ? "k" : ""}${life[id] ?? 1}`).join();
    return `${state}/${processes.join("/")}/${facts}/${world.kills}.${world.takeovers}.${world.replays}`;
  }

  /** The procedure of a process, brought to where it stands. */
  stepsOf(world: World<S>, process: Process): { steps: Steps<unknown>; need: Need } {
    const { rules, maxAttempts } = this.setting;
    const ports = this.scene.ports(world.state, process.process);
    const steps: Steps<unknown> = process.replayer
      ? (rules?.replay ?? replay)(replayRulesFor(ports.deadLetters))
      : (rules?.processOne ?? processOne)(rulesFor(ports.queue, maxAttempts));
    let step = steps.next();
    for (const answer of process.answers) step = steps.next(answer);
    if (step.done) throw new Error("a procedure that has ended cannot be gone on with");
    return { steps, need: step.value };
  }

  *moves(world: World<S>): Generator<Move<S>> {
    for (const [at, process] of world.processes.entries()) {
      const name = `${process.replayer ? "replayer" : "consumer"} ${at}`;
      if (process.process === 0) {
        yield this.moved(world, `${name} starts anew`, (own) => {
          own.processes[at]!.process = this.scene.open(own.state);
          return null;
        });
        continue;
      }
      yield* this.steps(world, at, name);
      if (world.kills > 0 && process.answers.length > 0) {
        yield this.moved(world, `${name} is killed`, (own) => {
          own.kills--;
          this.kill(own, at);
          return null;
        });
      }
    }
    yield this.moved(world, "recover", (own) => {
      this.scene.recover(own.state);
      return null;
    });
    if (world.takeovers === 0) return;
    for (const [index, row] of this.scene.rows(world.state).entries()) {
      if (row.holder === 0) continue;
      yield this.moved(world, `the hold of ${row.id} runs out`, (own) => {
        own.takeovers--;
        this.scene.takeOver(own.state, index);
        return null;
      });
    }
  }

  moved(world: World<S>, label: string, change: (own: World<S>) => string | null | undefined): Move<S> {
    const own = this.copy(world);
    const broken = change(own) ?? this.promises(own);
    return { label, world: own, broken };
  }

  /** A broken promise in words, unless this world does not give it. */
  breaks(id: string, check: Check): string | null {
    return this.setting.without?.includes(check) ? null : `${id} ${check}`;
  }

  kill(own: World<S>, at: number): void {
    const process = own.processes[at]!;
    this.scene.crash(own.state, process.process);
    process.process = 0;
    process.answers = [];
  }

  *steps(world: World<S>, at: number, name: string): Generator<Move<S>> {
    const process = world.processes[at]!;
    if (process.replayer && process.answers.length === 0 && world.replays === 0) return;
    const { need } = this.stepsOf(world, process);
    if (need.type === "run") {
      yield* this.runs(world, at, name, need.message);
      return;
    }
    yield this.moved(world, `${name}: ${label(need)}`, (own) =>
      this.go(own, at, need, Number.POSITIVE_INFINITY),
    );
    if (!this.setting.unbroken || !process.replayer || world.kills === 0) return;
    // Nothing comes between the effects of a synchronous replay but its own death, after any of them.
    for (let effects = 2; effects <= 2 * this.ids.length; effects++) {
      yield this.moved(world, `${name}: ${label(need)}, and is killed after ${effects} effects`, (own) => {
        own.kills--;
        const broken = this.go(own, at, need, effects);
        this.kill(own, at);
        return broken;
      });
    }
  }

  /** One effect; of a replay that nothing interrupts, all of them, or so many. */
  go(own: World<S>, at: number, need: Need, most: number): string | null {
    const process = own.processes[at]!;
    if (need.type === "list") own.replays--;
    // A refused begin starts nothing: the procedure ends there.
    const begun = this.answer(own, at) === "begin" && process.answers.length > 0;
    if (begun) process.begun = true;
    const broken = begun && need.type === "begin" ? this.started(own, need.message) : null;
    const all = this.setting.unbroken === true && process.replayer;
    for (let effects = 1; all && effects < most && process.answers.length > 0; effects++)
      this.answer(own, at);
    return broken;
  }

  /** Performs the next effect of a process. A settlement that is refused ends the procedure, as it ends the call. */
  answer(own: World<S>, at: number): string {
    const process = own.processes[at]!;
    const { steps, need } = this.stepsOf(own, process);
    let answer: unknown;
    try {
      answer = perform(need, this.scene.ports(own.state, process.process));
    } catch {
      process.answers = [];
      return need.type;
    }
    if (need.type === "ack" && process.returned) own.facts.done[need.message.id] = true;
    if (need.type === "receive") process.returned = process.begun = false;
    if (need.type === "send" || (need.type === "resend" && answer === true)) this.reborn(own, need.entry);
    const frozen = Array.isArray(answer) ? [...answer] : answer;
    if (steps.next(frozen).done) process.answers = [];
    else process.answers.push(frozen);
    return need.type;
  }

  /** A new life: what was said of the last one no longer counts. */
  reborn(own: World<S>, entry: DeadLetter): void {
    const life = entry.generation === undefined ? (own.facts.life[entry.id] ?? 1) + 1 : entry.generation + 1;
    if (life <= (own.facts.life[entry.id] ?? 1)) return;
    own.facts.life[entry.id] = life;
    own.facts.done[entry.id] = false;
    own.facts.starts[entry.id] = 0;
  }

  *runs(world: World<S>, at: number, name: string, message: Message): Generator<Move<S>> {
    const kind = this.setting.messages[message.id]!;
    const ends: [string, Ran | "dies"][] = [];
    if (kind === "ok" || kind === "any") ends.push(["returns", undefined]);
    if (kind === "permanent" || kind === "any") ends.push(["fails for good", never]);
    if (kind === "failing" || kind === "any") ends.push(["fails", failure]);
    if (kind === "pill") ends.push(["kills the process", "dies"]);
    for (const [words, end] of ends) {
      yield this.moved(
        world,
        `${name}: the handler of ${message.id} (${message.receiveCount}) ${words}`,
        (own) => {
          const broken = own.processes[at]!.begun ? null : this.started(own, message);
          if (end === "dies") {
            this.kill(own, at);
            return broken;
          }
          const current =
            (message.generation ?? own.facts.life[message.id] ?? 1) >= (own.facts.life[message.id] ?? 1);
          const process = own.processes[at]!;
          process.returned = end === undefined && current;
          const { steps } = this.stepsOf(own, process);
          if (steps.next(end).done) process.answers = [];
          else process.answers.push(end);
          return broken;
        },
      );
    }
  }

  /** A handler starts: not too often, and not for what is dead already. */
  started(own: World<S>, { id, generation }: Message): string | null {
    const { facts } = own;
    const life = facts.life[id] ?? 1;
    if (generation !== undefined && generation !== life)
      return this.breaks(id, "runs in a life that is over");
    facts.starts[id] = (facts.starts[id] ?? 0) + 1;
    if (this.setting.doubled?.includes(id)) return null;
    if (facts.starts[id] > this.setting.maxAttempts) return this.breaks(id, "is started too often");
    const dead = this.scene
      .letters(own.state)
      .some((entry) => entry.id === id && (entry.generation ?? life) === life);
    return dead ? this.breaks(id, "runs after its dead letter") : null;
  }

  /** What holds in every state. */
  promises(own: World<S>): string | null {
    const rows = this.scene.rows(own.state);
    const letters = this.scene.letters(own.state);
    for (const id of this.ids) {
      const broken = this.promisesOf(own, id, rows, letters);
      if (broken !== null) return broken;
    }
    return this.blamed(own);
  }

  promisesOf(
    own: World<S>,
    id: string,
    rows: readonly Held[],
    letters: readonly DeadLetter[],
  ): string | null {
    const copies = rows.filter((row) => row.id === id);
    const entries = letters.filter((entry) => entry.id === id).length;
    const done = own.facts.done[id] === true;
    if (copies.length === 0 && entries === 0 && !done) return this.breaks(id, "is lost");
    if (entries > 1) return this.breaks(id, "has two entries");
    if (this.setting.doubled?.includes(id)) return null;
    const life = own.facts.life[id] ?? 1;
    if (copies.filter((row) => row.generation === life).length > 1)
      return this.breaks(id, "is in the queue twice");
    const waits = copies.some((row) => row.generation >= life && row.holder === 0);
    return done && waits && this.clean(own) ? this.breaks(id, "is handled and waits again") : null;
  }

  /** Whether nothing has been killed or taken over: then nothing may come twice. */
  clean(own: World<S>): boolean {
    const { kills = 0, takeovers = 0, messages } = this.setting;
    return own.kills === kills && own.takeovers === takeovers && !Object.values(messages).includes("pill");
  }

  /** A message whose handler always returns dies only if it is hit by maxAttempts kills itself. */
  blamed(own: World<S>): string | null {
    const hits = (this.setting.kills ?? 0) + (this.setting.takeovers ?? 0);
    if (hits >= this.setting.maxAttempts) return null;
    for (const { id } of this.scene.letters(own.state)) {
      if (this.setting.messages[id] === "ok") return this.breaks(id, "is dead-lettered without fault");
    }
    return null;
  }

  /** Nothing moves any more: then nothing may be left. */
  atRest(world: World<S>): string | null {
    const rows = this.scene.rows(world.state);
    if (rows.length > 0) return this.breaks(rows.map((row) => row.id).join(), "can never be settled");
    const handled = this.scene
      .letters(world.state)
      .find((entry) => world.facts.done[entry.id] && !this.setting.doubled?.includes(entry.id));
    return handled ? this.breaks(handled.id, "is handled and still among the dead") : null;
  }
}

function label(need: Need): string {
  if ("message" in need) return `${need.type} ${need.message.id}`;
  if ("entry" in need) return `${need.type} ${need.entry.id}`;
  return need.type;
}
