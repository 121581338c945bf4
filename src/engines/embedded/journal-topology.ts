/** Queues, exchanges, bindings and policies in the file. */
import {
  type BindingRecord,
  type ExchangeRecord,
  type ExchangeType,
  HeaderTable,
  type JournalEffect,
  type Policy,
  type QueueRecord,
  type QueueType,
} from "../../broker/index.ts";
import type { Database, Row, SqlValue } from "./sqlite.ts";

/** Inside the open transaction, in the order the machine did it. */
export function writeTopology(db: Database, vhost: number, effects: readonly JournalEffect[]): void {
  for (const effect of effects) {
    const [sql, values] = statementFor(vhost, effect);
    db.prepare(sql).run(...values);
  }
}

const flag = (value: boolean): number => (value ? 1 : 0);

function statementFor(vhost: number, effect: JournalEffect): [string, SqlValue[]] {
  switch (effect.type) {
    case "queue-put": {
      const q = effect.queue;
      return [
        `INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO UPDATE SET name = excluded.name,
         type = excluded.type, durable = excluded.durable, auto_delete = excluded.auto_delete,
         exclusive = excluded.exclusive, arguments = excluded.arguments`,
        [
          vhost,
          q.id,
          q.name,
          q.type,
          flag(q.durable),
          flag(q.autoDelete),
          flag(q.exclusive),
          q.arguments.bytes,
        ],
      ];
    }
    case "queue-gone":
      return ["DELETE FROM queues WHERE vhost = ? AND id = ?", [vhost, effect.queueId]];
    case "exchange-put": {
      const e = effect.exchange;
      return [
        "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?, ?, ?)",
        [vhost, e.name, e.type, flag(e.durable), flag(e.autoDelete), flag(e.internal), e.arguments.bytes],
      ];
    }
    case "exchange-gone":
      return ["DELETE FROM exchanges WHERE vhost = ? AND name = ?", [vhost, effect.name]];
    case "binding-put":
      return [
        `INSERT OR IGNORE INTO bindings (vhost, source, destination, destination_type, routing_key, arguments)
         VALUES (?, ?, ?, ?, ?, ?)`,
        bindingValues(vhost, effect.binding),
      ];
    case "binding-gone":
      return [
        `DELETE FROM bindings WHERE vhost = ? AND source = ? AND destination = ? AND destination_type = ?
         AND routing_key = ? AND arguments = ?`,
        bindingValues(vhost, effect.binding),
      ];
    case "policy-put":
      return [
        "INSERT OR REPLACE INTO policies VALUES (?, ?, ?, ?)",
        [vhost, effect.policy.name, flag(effect.policy.operator ?? false), JSON.stringify(effect.policy)],
      ];
    case "policy-gone":
      return [
        "DELETE FROM policies WHERE vhost = ? AND name = ? AND operator = ?",
        [vhost, effect.name, flag(effect.operator)],
      ];
    default:
      throw new Error(`${effect.type} is no topology`);
  }
}

function bindingValues(vhost: number, b: BindingRecord): SqlValue[] {
  return [vhost, b.source, b.destination, b.destinationType, b.routingKey, b.arguments.bytes];
}

export interface Topology {
  readonly queues: readonly QueueRecord[];
  readonly exchanges: readonly ExchangeRecord[];
  readonly bindings: readonly BindingRecord[];
  readonly policies: readonly Policy[];
  readonly handed: readonly (readonly [number, number])[];
}

export function readTopology(db: Database, vhost: number): Topology {
  const rows = (table: string, order: string): Row[] =>
    db.prepare(`SELECT * FROM ${table} WHERE vhost = ? ORDER BY ${order}`).all(vhost) as Row[];
  const queues = rows("queues", "id");
  return {
    queues: queues.map((row) => ({
      id: row.id as number,
      name: row.name as string,
      type: row.type as QueueType,
      durable: row.durable === 1,
      autoDelete: row.auto_delete === 1,
      exclusive: row.exclusive === 1,
      arguments: HeaderTable.fromBytes(row.arguments as Uint8Array),
    })),
    handed: queues.map((row) => [row.id as number, row.delivered as number] as const),
    exchanges: rows("exchanges", "name").map((row) => ({
      name: row.name as string,
      type: row.type as ExchangeType,
      durable: row.durable === 1,
      autoDelete: row.auto_delete === 1,
      internal: row.internal === 1,
      arguments: HeaderTable.fromBytes(row.arguments as Uint8Array),
    })),
    bindings: rows("bindings", "n").map((row) => ({
      source: row.source as string,
      destination: row.destination as string,
      destinationType: row.destination_type as "queue" | "exchange",
      routingKey: row.routing_key as string,
      arguments: HeaderTable.fromBytes(row.arguments as Uint8Array),
    })),
    policies: rows("policies", "name").map((row) => JSON.parse(row.policy as string) as Policy),
  };
}
