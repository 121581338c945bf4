/**
 * replay: letters go back to the queue, in order of death. With a store and queue that share a transaction each is
 * sent and removed in one; with a store that marks, the mark comes first, the queue knows a life it was already
 * sent, and a replay that died is finished by the next one; with plain stores it is send, then remove, and nothing
 * pending in between (see GUARANTEES for what that does and does not promise).
 */
import { isOfQueue } from "./decide.ts";
import type { DeadLetter } from "./message.ts";
import type { Steps } from "./steps.ts";

/** What the procedure must know of the store. */
export interface ReplayRules {
  /** The store has `resend`. */
  readonly resends: boolean;
  /** The store has `markReplaying`. */
  readonly marks: boolean;
  readonly queueName?: string | undefined;
}

/** The rules for a store, by which of the optional methods it has, and a queue. */
export function replayRulesFor(
  store: { resend?: unknown; markReplaying?: unknown },
  queue: { name?: unknown } = {},
): ReplayRules {
  return {
    queueName: typeof queue.name === "string" ? queue.name : undefined,
    resends: typeof store.resend === "function",
    marks: typeof store.markReplaying === "function",
  };
}

/**
 * Sends letters back: those with these ids (each once, in the order given; unknown ones are left out), or all. Letters
 * of other queues in the same store are left where they are.
 * Answers the ids sent. A crash in the middle leaves every letter either in the store or sent, and at the point
 * between the two in both.
 */
export function* replay(rules: ReplayRules, ids?: readonly string[] | null): Steps<string[]> {
  const letters = (yield { type: "list" }) as readonly DeadLetter[];
  const sent: string[] = [];
  const own = letters.filter((entry) => isOfQueue(entry.sourceQueue, rules.queueName));
  for (const entry of choose(own, ids)) {
    if (rules.resends && entry.generation !== undefined) {
      const done = yield { type: "resend", entry };
      if (done === true) sent.push(entry.id);
      if (done !== false) continue;
    }
    if (rules.marks && entry.generation !== undefined && !(yield { type: "mark", entry })) continue;
    yield { type: "send", entry };
    yield { type: "remove", entry };
    sent.push(entry.id);
  }
  return sent;
}

/** The letters meant, each once. Of several letters under one id (versions) all go, in order of death. */
function choose(letters: readonly DeadLetter[], ids: readonly string[] | null | undefined): DeadLetter[] {
  if (ids === undefined || ids === null) return [...letters];
  const byId = new Map<string, DeadLetter[]>();
  for (const letter of letters) {
    const known = byId.get(letter.id);
    if (known) known.push(letter);
    else byId.set(letter.id, [letter]);
  }
  return [...new Set(ids)].flatMap((id) => byId.get(id) ?? []);
}
