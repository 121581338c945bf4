/** One named store of dead letters as the consumer's port. Every store lies in the broker's file. */
import type { DeadLetter } from "../../core/index.ts";
import type { DeadLetters, Queue } from "../../ports/index.ts";
import { encodeBody } from "./body.ts";
import type { Host } from "./host.ts";
import type { Letters, Taken } from "./letters.ts";
import type { Replays } from "./replays.ts";

export class DeadLetterStore<B = unknown> implements DeadLetters<B> {
  readonly name: string;
  /** @internal */
  readonly host: Host;
  readonly #letters: Letters;
  readonly #replays: Replays;

  /** @internal */
  constructor(host: Host, letters: Letters, replays: Replays, name: string) {
    this.name = name;
    this.host = host;
    this.#letters = letters;
    this.#replays = replays;
  }

  /** Keeps an entry, once by (id, generation); resolves when it is durable. */
  async put(entry: DeadLetter<B>): Promise<void> {
    this.#letters.put(this.name, entry);
    return this.#committed(undefined);
  }

  /** @internal Keeps it with this turn's commit, taking over what the message left. */
  keep(entry: DeadLetter, taken: Taken): void {
    this.#letters.put(this.name, entry, taken);
  }

  /** An entry or tombstone of this generation (1 unless said) or a later one; see the port for the rest. */
  has(id: string, generation: number = 1, body?: B, sourceQueue?: string): boolean {
    return this.#letters.has(this.name, id, generation, { bytes: bytesOf(id, body), queue: sourceQueue });
  }

  /**
   * Removes the entry. With a generation: only an entry of exactly that one, and a tombstone stays, so that a late
   * copy of that life is known. Without: whatever is there, and nothing stays in the way of a new message.
   */
  async remove(id: string, generation?: number, body?: B, sourceQueue?: string): Promise<void> {
    this.#letters.remove(this.name, id, generation, { bytes: bytesOf(id, body), queue: sourceQueue });
    return this.#committed(undefined);
  }

  /** All entries in order of death. Reads every body: see `broker.letters.page` for many. */
  list(): DeadLetter<B>[] {
    return this.#letters.list(this.name) as DeadLetter<B>[];
  }

  get(id: string): DeadLetter<B> | null {
    const row = this.#letters.latest(this.name, id);
    return row === undefined ? null : (this.#letters.entryOf(row) as DeadLetter<B>);
  }

  /** Marks a letter as on its way back; false when another replay has it, or there is none. */
  async markReplaying(id: string, generation: number, sourceQueue?: string): Promise<boolean> {
    const row = this.#letters.latest(this.name, id, generation, sourceQueue);
    if (row === undefined || row.state === "replaying") return this.#committed(false);
    this.#letters.move(row, "replaying");
    return this.#committed(true);
  }

  /** Sends the letter as the next life and removes it, in one transaction with this broker's queues. */
  async resend(id: string, generation: number, queue: Queue<B>): Promise<boolean | null> {
    const sent = this.#replays.resend(this.name, id, generation, queue);
    return this.#committed(sent);
  }

  #committed<T>(value: T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.host.committer.after((error) => (error === null ? resolve(value) : reject(error)));
    });
  }
}

const bytesOf = (id: string, body: unknown): Uint8Array | undefined =>
  body === undefined ? undefined : encodeBody(body, Number.POSITIVE_INFINITY, `message '${id}'`).bytes;
