/** A handle's queue is made where it does not exist. */
import { AmqpError } from "../../broker/index.ts";
import { DloError } from "../../core/index.ts";
import { type QueueDeclaration, queueArguments } from "./options.ts";
import type { Connection, Vhost } from "./vhost.ts";

/** Closes the connection where it throws: QUEUE_NOT_FOUND, or CONFLICT with how the queue is. */
export function declare(
  vhost: Vhost,
  connection: Connection,
  channel: number,
  queue: { readonly name: string; readonly declaration: QueueDeclaration | undefined },
): void {
  const exists = vhost.queueInfo(queue.name) !== undefined;
  const { create = true, ...described } = queue.declaration ?? {};
  if (exists && Object.keys(described).length === 0) return;
  if (!exists && !create) {
    connection.close();
    throw new DloError("QUEUE_NOT_FOUND", `no queue '${queue.name}' in this broker`);
  }
  const table = queueArguments(described);
  try {
    connection.submit({
      type: "queue-declare",
      channel,
      queue: queue.name,
      durable: described.durable ?? true,
      autoDelete: described.autoDelete ?? false,
      arguments: exists ? table : table.with({ "x-dlo-isolate-suspects": { t: "t", v: true } }),
    });
  } catch (error) {
    connection.close();
    if (!(error instanceof AmqpError)) throw error;
    throw new DloError("CONFLICT", `queue '${queue.name}': ${error.message}`, { cause: error });
  }
}
