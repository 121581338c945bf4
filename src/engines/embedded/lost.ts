/**
 * Dead letters that had nowhere to go: no dead-letter exchange, a missing one, no route, a cycle, a full target.
 * RabbitMQ drops them without a word; here they are counted by queue and reason, told once, and kept.
 */
import type { OutwardEffect } from "../../broker/index.ts";
import type { DeadLetter } from "../../core/index.ts";
import type { Logger } from "../../ports/index.ts";
import { decodeBody } from "./body.ts";
import type { Committer, Writer } from "./committer.ts";
import { encodeHead } from "./content.ts";
import { emptiedSet } from "./emptied.ts";
import type { Letters } from "./letters.ts";
import { plainProperties } from "./message.ts";
import type { Database, Row } from "./sqlite.ts";
import type { Vhost } from "./vhost.ts";

/** Where they are kept. */
export const LOST_LETTERS = "lost letters";

type Lost = Extract<OutwardEffect, { type: "lost" }>;

/** How many dead letters of one queue vanished for one reason. */
export interface LostCount {
  readonly vhost: string;
  readonly queue: string;
  readonly reason: Lost["reason"];
  readonly why: Lost["why"];
  readonly count: number;
  readonly lastAt: number;
}

type Counter = { -readonly [K in keyof LostCount]: LostCount[K] } & { vhostId: number; told: boolean };

const WORDS: Record<Lost["why"], string> = {
  "no-dlx": "the queue has no dead-letter exchange",
  "dlx-missing": "the dead-letter exchange does not exist",
  unroutable: "the dead-letter exchange routes it nowhere",
  cycle: "it would go round in a circle",
  refused: "the target queue is full and refuses it",
};

export class LostLetters implements Writer {
  readonly #letters: Letters | null;
  readonly #logger: Logger | undefined;
  readonly #counters = new Map<string, Counter>();
  #dirty = new Set<Counter>();
  readonly #put: ReturnType<Database["prepare"]>;

  /** `letters` null: counted and told, not kept. */
  constructor(db: Database, committer: Committer, letters: Letters | null, logger: Logger | undefined) {
    this.#letters = letters;
    this.#logger = logger;
    this.#put = db.prepare("INSERT OR REPLACE INTO lost VALUES (?, ?, ?, ?, ?, ?)");
    committer.writers.add(this);
    const rows = db
      .prepare("SELECT lost.*, name FROM lost JOIN vhosts ON vhosts.id = lost.vhost")
      .all() as Row[];
    for (const row of rows) {
      const counter = {
        vhostId: row.vhost as number,
        vhost: row.name as string,
        queue: row.queue as string,
        reason: row.reason as Lost["reason"],
        why: row.why as Lost["why"],
        count: row.count as number,
        lastAt: row.last_at as number,
        told: false,
      };
      this.#counters.set(keyOf(counter), counter);
    }
  }

  get isPending(): boolean {
    return this.#dirty.size > 0;
  }

  get size(): number {
    return 0;
  }

  write(): void {
    for (const c of this.#dirty) this.#put.run(c.vhostId, c.queue, c.reason, c.why, c.count, c.lastAt);
  }

  written(): void {
    this.#dirty = emptiedSet(this.#dirty);
  }

  /** Counts it, tells once per queue and reason, keeps it. `goesOn`: another queue takes the same message over. */
  keep(vhost: Vhost, lost: Lost, goesOn: boolean): void {
    const now = vhost.host.now();
    const fresh = {
      vhostId: vhost.id,
      vhost: vhost.name,
      queue: lost.queue,
      reason: lost.reason,
      why: lost.why,
      count: 0,
      lastAt: now,
      told: false,
    };
    const counter = this.#counters.get(keyOf(fresh)) ?? fresh;
    this.#counters.set(keyOf(counter), counter);
    counter.count++;
    counter.lastAt = now;
    this.#dirty.add(counter);
    if (!counter.told) {
      counter.told = true;
      this.#tell(lost);
    }
    if (this.#letters === null) return;
    const { journal } = vhost;
    const sole = !goesOn && lost.content.body.length > 0 && journal.isSoleOwner(lost.seq);
    this.#letters.put(LOST_LETTERS, entryOf(vhost, lost, now), {
      head: encodeHead(lost.content),
      takeBody: sole ? () => journal.shareBody(lost.seq) : null,
    });
  }

  #tell({ queue, reason, why, exchange, routingKey }: Lost): void {
    const kept = this.#letters === null ? "dropped" : `kept in '${LOST_LETTERS}'`;
    const way = why === "no-dlx" ? "" : ` (exchange '${exchange}', key '${routingKey}')`;
    this.#logger?.warn(
      `a dead letter of queue '${queue}' has no place: ${WORDS[why]}${way}; ${kept}. The next ones are counted only`,
      { queue, reason, why, exchange, routingKey },
    );
  }

  counts(): LostCount[] {
    return [...this.#counters.values()].map(({ told: _told, vhostId: _id, ...count }) => count);
  }
}

const keyOf = (c: { vhostId: number; queue: string; reason: string; why: string }): string =>
  `${c.vhostId}\0${c.queue}\0${c.reason}\0${c.why}`;

function entryOf(vhost: Vhost, lost: Lost, now: number): DeadLetter {
  const { properties, body } = lost.content;
  const plain = plainProperties(properties);
  return {
    id: properties.messageId ?? `${vhost.name === "/" ? "" : `${vhost.name}/`}${lost.queue}#${lost.seq}`,
    body: decodeBody(body, properties.contentType),
    reason: lost.reason,
    error: null,
    attempts: 0,
    firstAttemptAt: now,
    failedAt: now,
    generation: 1,
    sourceQueue: vhost.addressOf(lost.queue),
    raw: body,
    properties: plain.properties,
    ...(plain.headers === undefined ? {} : { headers: plain.headers }),
  };
}
