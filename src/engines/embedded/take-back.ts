/** A send that found no room on the disk is refused: then its message must not be there. */
import type { Journal } from "./journal.ts";
import type { Connection } from "./vhost.ts";

/** What was sent, under which number (0: it cannot be taken back). */
export interface Sent {
  readonly id: string;
  readonly seq: number;
}

/**
 * How to undo these sends, all or none; undefined where it is known already that it cannot be done. It cannot once
 * anybody had one of the messages, the file has one, or more came of it than the message.
 */
export function takeBack(
  journal: Journal,
  where: { readonly connection: Connection; readonly channel: number; readonly queue: string },
  sent: readonly Sent[],
): (() => boolean) | undefined {
  if (sent.length === 0 || sent.some(({ seq }) => seq === 0)) return undefined;
  return () => {
    const seqs = sent.map(({ seq }) => seq);
    if (!seqs.every((seq) => journal.isUnwritten(seq))) return false;
    const { connection, channel, queue } = where;
    try {
      const reply = connection.submit({ type: "withdraw", channel, queue, seqs });
      return reply.type === "count" && reply.messageCount > 0;
    } catch {
      // The handle is closed, or the queue is gone.
      return false;
    }
  };
}
