import type { FieldValue } from "./table.ts";
import { HeaderTable } from "./table.ts";
import type { Compat, Content, DeathReason, Properties } from "./types.ts";
import { integerOf } from "./values.ts";

/** An x-death list never grows beyond this; the oldest entries go. Real paths have a handful of queues. */
export const MAX_DEATH_ENTRIES = 256;

/** One entry of x-death; its table is kept as it came, so that odd fields survive. */
export interface Death {
  readonly queue: string | undefined;
  readonly reason: string | undefined;
  readonly count: bigint | undefined;
  readonly table: HeaderTable;
}

export interface DeathOf {
  readonly queue: string;
  readonly reason: DeathReason;
  readonly content: Content;
  /** The message's x-death was written by the broker. */
  readonly died: boolean;
  readonly now: number;
  readonly compat: Compat;
  readonly dlx: string;
  readonly dlrk: string | undefined;
}

/** The dead letter as it is published to the DLX, and the deaths on it, the order the cycle rule walks. */
export interface Dead {
  readonly content: Content;
  readonly deaths: readonly Death[];
}

/** Writes a death on a message (rules B1, B2, E1 to E6). */
export function deadLetter(death: DeathOf): Dead {
  const { content, compat, dlx, dlrk } = death;
  const deaths = nextDeaths(death);
  const { expiration: _gone, headers: before, ...kept } = content.properties;
  let headers = (before ?? HeaderTable.empty).with(deathHeaders(death, deaths, before));
  // Before 3.13 a CC header went away together with its routing keys.
  if (dlrk !== undefined && compat === "3.x") headers = headers.without(["CC"]);
  const properties: Properties = { ...kept, headers };
  const base = { exchange: dlx, routingKey: dlrk ?? content.routingKey, properties, body: content.body };
  const withKeys = dlrk === undefined && content.keys !== undefined ? { ...base, keys: content.keys } : base;
  return { content: withKeys, deaths };
}

/**
 * The x-death a message brings. A client's own counts in 3.x and is nothing in 4.x; whatever is not an array of
 * tables with a sane count is taken for absent (RabbitMQ 3.10 crashes on it).
 */
export function readDeaths(headers: HeaderTable | undefined, compat: Compat, died: boolean): Death[] {
  if (compat === "4.x" && !died) return [];
  const value = headers?.get("x-death");
  if (value === undefined || value.t !== "A") return [];
  const deaths: Death[] = [];
  for (const item of value.v) {
    if (item.t !== "F") return [];
    const count = item.v.get("count");
    const n = count === undefined ? undefined : integerOf(count);
    if (count !== undefined && (n === undefined || n < 0)) return [];
    deaths.push({
      queue: textOf(item.v.get("queue")),
      reason: textOf(item.v.get("reason")),
      count: count?.t === "l" ? count.v : n === undefined ? undefined : BigInt(n),
      table: item.v,
    });
  }
  return deaths;
}

/** Rule G1: back in a queue it died in, with no reject on the way, newest first. */
export function isCycle(target: string, deaths: readonly Death[]): boolean {
  for (const death of deaths) {
    if (death.reason === "rejected") return false;
    if (death.queue === target) return true;
  }
  return false;
}

function textOf(value: FieldValue | undefined): string | undefined {
  return value?.t === "S" ? value.v : undefined;
}

function nextDeaths(death: DeathOf): Death[] {
  const old = readDeaths(death.content.properties.headers, death.compat, death.died);
  const isSame = (d: Death): boolean => d.queue === death.queue && d.reason === death.reason;
  const match = old.find(isSame);
  const others = old.filter((d) => !isSame(d));
  const entry = match === undefined ? firstDeath(death) : countedDeath(match);
  // 3.10 turns the rest round at every death (rule E4).
  if (death.compat === "3.x") others.reverse();
  return [entry, ...others].slice(0, MAX_DEATH_ENTRIES);
}

function countedDeath(death: Death): Death {
  const count = (death.count ?? 0n) + 1n;
  return { ...death, count, table: death.table.with({ count: { t: "l", v: count } }) };
}

function firstDeath({ queue, reason, content, now, compat }: DeathOf): Death {
  const keys = [content.routingKey, ...(content.keys?.cc ?? [])];
  const fields: Record<string, FieldValue> = {
    count: { t: "l", v: 1n },
    reason: { t: "S", v: reason },
    queue: { t: "S", v: queue },
    time: { t: "T", v: Math.floor(now / 1000) },
    exchange: { t: "S", v: content.exchange },
    "routing-keys": { t: "A", v: keys.map((v): FieldValue => ({ t: "S", v })) },
  };
  const expiration = content.properties.expiration;
  if (expiration !== undefined) {
    const text = compat === "4.x" ? String(Number(expiration)) : expiration;
    fields["original-expiration"] = { t: "S", v: text };
  }
  return { queue, reason, count: 1n, table: HeaderTable.empty.with(fields) };
}

function deathHeaders(
  { queue, reason, content, died, compat }: DeathOf,
  deaths: readonly Death[],
  before: HeaderTable | undefined,
): Record<string, FieldValue> {
  const headers: Record<string, FieldValue> = {
    "x-death": { t: "A", v: deaths.map((d): FieldValue => ({ t: "F", v: d.table })) },
  };
  const first = compat === "4.x" ? !died : before?.has("x-death") !== true || isJunkArray(before);
  const note = (prefix: string): void => {
    headers[`${prefix}-queue`] = { t: "S", v: queue };
    headers[`${prefix}-reason`] = { t: "S", v: reason };
    headers[`${prefix}-exchange`] = { t: "S", v: content.exchange };
  };
  if (first) note("x-first-death");
  if (compat === "4.x") note("x-last-death");
  return headers;
}

/** An array that crashes RabbitMQ 3.10: absent here, so this death is the first. */
function isJunkArray(headers: HeaderTable): boolean {
  const value = headers.get("x-death");
  return value?.t === "A" && value.v.length > 0 && readDeaths(headers, "3.x", true).length === 0;
}
