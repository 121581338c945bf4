// A LetterStore in memory, for tests of what stands above the port. It keeps the port's promises and nothing more.
import type { DeadLetter } from "../../../src/core/index.ts";
import type {
  Letter,
  LetterFilter,
  LetterGroup,
  LetterState,
  LetterStore,
  LetterSummary,
  OperationResult,
  QueueStatus,
} from "../../../src/ports/index.ts";

export interface Planted extends Partial<LetterSummary> {
  id: string;
  text?: string;
  entry?: Partial<DeadLetter>;
}

export class StoreDouble implements LetterStore {
  readonly rows: { summary: LetterSummary; entry: DeadLetter }[] = [];
  readonly sent: { id: string; queue: string }[] = [];
  queues: string[] = ["orders"];

  add(planted: Planted): this {
    const { text = "{}", entry, ...over } = planted;
    const n = this.rows.length + 1;
    const summary: LetterSummary = {
      letterId: `L${String(n).padStart(4, "0")}`,
      generation: 1,
      deadLetters: "orders.dead",
      sourceQueue: "orders",
      reason: "permanent",
      error: "PermanentError: negative price",
      attempts: 1,
      firstAttemptAt: 1000 + n,
      failedAt: 2000 + n,
      state: "dead",
      size: text.length,
      fingerprint: "f1",
      replays: 0,
      ...over,
    };
    const { id, reason, error, attempts, firstAttemptAt, failedAt } = summary;
    const raw = Buffer.from(text);
    this.rows.push({
      summary,
      entry: { id, body: text, raw, reason, error, attempts, firstAttemptAt, failedAt, ...entry },
    });
    return this;
  }

  #matches(s: LetterSummary, f: LetterFilter): boolean {
    return (
      (f.deadLetters === undefined || f.deadLetters === s.deadLetters) &&
      (f.sourceQueue === undefined || f.sourceQueue === s.sourceQueue) &&
      (f.reason === undefined || f.reason === s.reason) &&
      (f.fingerprint === undefined || f.fingerprint === s.fingerprint) &&
      (f.state === undefined || f.state === s.state) &&
      (f.ids === undefined || f.ids.includes(s.id) || f.ids.includes(s.letterId))
    );
  }

  #all(filter: LetterFilter = {}): LetterSummary[] {
    return this.rows
      .map((row) => row.summary)
      .filter((s) => this.#matches(s, filter))
      .sort((a, b) => a.failedAt - b.failedAt || (a.letterId < b.letterId ? -1 : 1));
  }

  status(): QueueStatus[] {
    return this.queues.map((queue) => ({ queue, waiting: 0, inFlight: 0, delayed: 0 }));
  }

  count(filter?: LetterFilter): number {
    return this.#all(filter).length;
  }

  page(filter: LetterFilter, limit: number, after?: string): LetterSummary[] {
    const all = this.#all(filter);
    const from = after === undefined ? 0 : all.findIndex((s) => s.letterId === after) + 1;
    return all.slice(from, from + limit);
  }

  get(id: string): Letter | null {
    const row = this.rows.findLast((r) => r.summary.letterId === id || r.summary.id === id);
    return row ? { ...row.summary, entry: row.entry, earlier: [] } : null;
  }

  groups(filter?: LetterFilter): LetterGroup[] {
    const groups = new Map<string, LetterSummary[]>();
    for (const s of this.#all(filter)) groups.set(s.fingerprint, [...(groups.get(s.fingerprint) ?? []), s]);
    return [...groups].map(([fingerprint, letters]) => ({
      fingerprint,
      title: letters[0]?.error ?? "poison",
      count: letters.length,
      firstSeenAt: letters[0]?.failedAt ?? 0,
      lastSeenAt: letters.at(-1)?.failedAt ?? 0,
      queues: [...new Set(letters.map((s) => s.sourceQueue))],
      reasons: [...new Set(letters.map((s) => s.reason))],
      sample: letters[0]?.letterId ?? "",
    }));
  }

  #settle(ids: readonly string[], state: LetterState, to?: string): OperationResult {
    const done: string[] = [];
    const failed: { id: string; why: string }[] = [];
    for (const letterId of new Set(ids)) {
      const row = this.rows.find((r) => r.summary.letterId === letterId);
      const queue = to ?? row?.summary.sourceQueue ?? "";
      if (!row) failed.push({ id: letterId, why: "no such letter" });
      else if (row.summary.state !== "dead")
        failed.push({ id: row.summary.id, why: `already ${row.summary.state}` });
      else if (state === "replayed" && !this.queues.includes(queue)) {
        failed.push({ id: row.summary.id, why: `queue "${queue}" does not exist` });
      } else {
        row.summary = { ...row.summary, state };
        if (state === "replayed") this.sent.push({ id: row.summary.id, queue });
        done.push(row.summary.id);
      }
    }
    return { done, failed };
  }

  replay(ids: readonly string[], options: { to?: string } = {}): OperationResult {
    return this.#settle(ids, "replayed", options.to);
  }

  discard(ids: readonly string[]): OperationResult {
    return this.#settle(ids, "discarded");
  }
}
