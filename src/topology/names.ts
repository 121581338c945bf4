/**
 * What a name suggests. Names never decide where a letter ends; they only help to tell a dead-letter queue from a
 * work queue where the wiring leaves it open.
 */

const STRONG = new Set([
  "dlq",
  "dlqs",
  "dead",
  "deadletter",
  "deadletters",
  "deadletterqueue",
  "deadqueue",
  "parking",
  "parked",
  "parkinglot",
  "poison",
  "graveyard",
  "morgue",
  "quarantine",
]);
const WEAK = new Set([
  "fail",
  "failed",
  "failure",
  "failures",
  "error",
  "errors",
  "err",
  "reject",
  "rejected",
  "rejects",
  "invalid",
  "undeliverable",
  "unprocessed",
  "unprocessable",
  "skipped",
  "trash",
  "dl",
  "dlx",
]);
const WAIT = new Set([
  "wait",
  "waiting",
  "delay",
  "delayed",
  "delays",
  "retry",
  "retries",
  "later",
  "backoff",
  "defer",
  "deferred",
  "sleep",
  "hold",
  "pause",
  "paused",
  "schedule",
  "scheduled",
  "timer",
  "postponed",
  "cooldown",
  "requeue",
  "redeliver",
  "redelivery",
]);
const EXCHANGE = new Set(["dlx", "dlxs", "dle", "dlq", "dl", "dead", "deadletter", "deadletters"]);

/** Words of a name, lower case: cut at anything that is no letter or digit, and at humps. */
export function nameWords(name: string): string[] {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1.$2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}

const isStrong = (word: string): boolean => STRONG.has(word) || /(?:dlq|deadletters?)$/.test(word);

export const looksLikeDlq = (name: string): boolean => nameWords(name).some(isStrong);
export const looksLikeFailures = (name: string): boolean => nameWords(name).some((word) => WEAK.has(word));
export const looksLikeWait = (name: string): boolean =>
  nameWords(name).some((word) => WAIT.has(word.replace(/\d+[a-z]*$/, "")));
export const looksLikeDlx = (name: string): boolean =>
  nameWords(name).some((word) => EXCHANGE.has(word) || /dlx$/.test(word));

/** The name without its dead-letter words: of `orders.dlq` it is `orders`. Empty when nothing is left. */
export function stemOf(name: string): string {
  return nameWords(name)
    .filter(
      (word) =>
        !isStrong(word) && !WEAK.has(word) && !["letter", "letters", "queue", "lot", "q"].includes(word),
    )
    .join(".");
}
