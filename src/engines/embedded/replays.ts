/**
 * Letters on their way back and into the trash. Each letter and its new message (the same body and properties, the
 * next generation, without the broker's death headers) change place in one transaction; many letters go in several,
 * so a crash leaves each of them either a letter or a message, and the rest where they were.
 */
import { HeaderTable, type Properties } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import type { OperationResult } from "../../ports/index.ts";
import { BYTES } from "./body.ts";
import { decodeHead } from "./content.ts";
import type { Host } from "./host.ts";
import type { LetterRow } from "./letter-rows.ts";
import type { Letters } from "./letters.ts";
import { DEATH_HEADERS, GENERATION_HEADER, toProperties, withGeneration } from "./message.ts";
import type { EmbeddedQueue } from "./queue.ts";
import type { Resends } from "./resends.ts";

// Letters of one transaction: enough that its cost does not matter, few enough that nobody waits for it.
const PER_TRANSACTION = 200;
const GONE = "there is no such letter";

type Row = LetterRow & { fenced: number };

/** What replays need of the broker they belong to. */
export interface ReplayTargets {
  /** A handle on an existing queue; undefined when there is none. */
  find(name: string): EmbeddedQueue | undefined;
  /** The same, for a port that may be of another broker. */
  own(queue: unknown): EmbeddedQueue | undefined;
}

export class Replays {
  readonly #host: Host;
  readonly #letters: Letters;
  readonly #resends: Resends;
  readonly #targets: ReplayTargets;

  constructor(host: Host, letters: Letters, resends: Resends, targets: ReplayTargets) {
    this.#host = host;
    this.#letters = letters;
    this.#resends = resends;
    this.#targets = targets;
  }

  /** `DeadLetters.resend`: true, null (no such letter), false (a queue of another broker). */
  resend(store: string, id: string, generation: number, queue: unknown): boolean | null {
    const target = this.#targets.own(queue);
    if (target === undefined) return false;
    const row = this.#letters.latest(store, id, generation, target.name);
    if (row === undefined) return null;
    this.#sendBack(row, target);
    return true;
  }

  #sendBack(row: Row, target: EmbeddedQueue): void {
    const generation = row.generation + 1;
    const bytes = this.#letters.bytesOf(row) ?? new Uint8Array(0);
    this.#host.committer.atomically(() => {
      // Refused (no room, a full queue) it throws here, and the letter stays as it is.
      // Marked and sent by somebody who died before removing it, it is only removed. That went to its own queue;
      // in another one a message of this id may be one more letter's.
      const own = row.queue === "" || row.queue === target.name;
      if (own && this.#resends.has(target.name, row.id, generation, bytes)) {
        this.#letters.move(row, "replayed");
        return;
      }
      const properties = withGeneration(propertiesOf(row, this.#letters), generation);
      const seq = target.publish(properties, bytes, 0);
      try {
        this.#letters.move(row, "replayed");
      } catch (error) {
        // No room for the letter's change: then the message must not be there either.
        target.takeBack([{ id: row.id, seq }])?.();
        throw error;
      }
      this.#resends.add(target.name, row.id, generation, bytes);
    });
  }

  /** Sends letters back to the queue they failed in, or to another, in order of death. */
  async replay(ids: readonly string[], options: { to?: string } = {}): Promise<OperationResult> {
    const done: string[] = [];
    const failed: { id: string; why: string }[] = [];
    const rows = this.#rows(ids, failed);
    for (let at = 0; at < rows.length; at += PER_TRANSACTION) {
      const sent: string[] = [];
      for (const { id, row } of rows.slice(at, at + PER_TRANSACTION)) {
        // Others may have moved it while an earlier part was written.
        const now = at === 0 ? row : this.#letters.numbered(row.n);
        const why = now === undefined ? GONE : this.#tryReplay(now, options.to ?? row.queue);
        if (why === null) sent.push(id);
        else failed.push({ id, why });
      }
      await this.#committed();
      done.push(...sent);
    }
    return { done, failed };
  }

  #tryReplay(row: Row, to: string): string | null {
    if (row.state !== "dead") return `it is ${row.state} already`;
    const target = this.#targets.find(to);
    if (target === undefined) return `there is no queue '${to}'`;
    try {
      this.#sendBack(row, target);
      return null;
    } catch (error) {
      if (error instanceof DloError) return error.message;
      throw error;
    }
  }

  /** To the trash; its body stays until the trash is emptied. */
  async discard(ids: readonly string[]): Promise<OperationResult> {
    return this.#moveAll(ids, "dead", "discarded");
  }

  /** Out of the trash. */
  async restore(ids: readonly string[]): Promise<OperationResult> {
    return this.#moveAll(ids, "discarded", "dead");
  }

  async #moveAll(
    ids: readonly string[],
    from: "dead" | "discarded",
    to: "dead" | "discarded",
  ): Promise<OperationResult> {
    const done: string[] = [];
    const failed: { id: string; why: string }[] = [];
    for (const { id, row } of this.#rows(ids, failed)) {
      if (row.state !== from) failed.push({ id, why: `it is ${row.state}, not ${from}` });
      else {
        this.#letters.move(row, to);
        done.push(id);
      }
    }
    await this.#committed();
    return { done, failed };
  }

  /** Each letter once, in order of death. */
  #rows(ids: readonly string[], failed: { id: string; why: string }[]): { id: string; row: Row }[] {
    const rows = new Map<number, { id: string; row: Row }>();
    for (const id of new Set(ids)) {
      const row = this.#letters.find(id);
      if (row === undefined) failed.push({ id, why: GONE });
      else if (!rows.has(row.n)) rows.set(row.n, { id, row });
    }
    return [...rows.values()].sort((a, b) => a.row.n - b.row.n);
  }

  #committed(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#host.committer.after((error) => (error === null ? resolve() : reject(error)));
    });
  }
}

/** The properties the message had, without what only the dead one carried. */
function propertiesOf(row: Row, letters: Letters): Properties {
  const base = row.head === null ? plainOf(row, letters) : decodeHead(row.head, new Uint8Array(0)).properties;
  const { headers, expiration: _expired, ...rest } = base;
  const kept = headers?.without([...DEATH_HEADERS, GENERATION_HEADER]) ?? HeaderTable.empty;
  return { ...rest, messageId: row.id, deliveryMode: 2, ...(kept.size > 0 ? { headers: kept } : {}) };
}

function plainOf(row: Row, letters: Letters): Properties {
  const { headers, properties } = letters.entryOf(row);
  const contentType = row.kind === "" ? BYTES : row.kind;
  return { contentType, ...toProperties(properties ?? {}, headers) };
}
