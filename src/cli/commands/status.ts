import type { Command } from "commander";
import type { WireQueue, WireStatus } from "../../http/index.ts";
import { Settings } from "../config.ts";
import { EXIT } from "../exit.ts";
import { type Io, say } from "../io.ts";
import { withOffice } from "../office.ts";
import { type FormOptions, withData, withForm } from "../options.ts";
import { type Column, emitJson, emitList, formOf } from "../output.ts";
import type { Act } from "../program.ts";
import { ago, counted } from "../text.ts";

const COLUMNS: readonly Column<WireQueue>[] = [
  { head: "QUEUE", value: (q) => q.queue, flex: true },
  { head: "WAITING", value: (q) => String(q.waiting), right: true },
  { head: "IN FLIGHT", value: (q) => String(q.inFlight), right: true },
  { head: "DELAYED", value: (q) => String(q.delayed), right: true },
  { head: "DEAD", value: (q) => String(q.dead), right: true },
];

/** What stands beside the table, for people. */
function notes(status: WireStatus, data: string, now: number): string[] {
  const { dead, replaying, replayed, discarded } = status.letters;
  const lines = [
    `${counted(dead, "dead letter")}, ${replaying} on the way back, ${replayed} replayed, ${discarded} discarded`,
  ];
  for (const worker of status.workers) {
    lines.push(
      `worker on ${worker.queue}: ${worker.concurrency} at a time, ${counted(worker.maxAttempts, "attempt")}, isolation ${worker.isolate}, up ${ago(worker.startedAt, now)}`,
    );
  }
  const { pid, command } = status.owner;
  lines.push(
    pid === process.pid ? `nobody else has ${data} open` : `${data} is owned by process ${pid} (${command})`,
  );
  return lines;
}

async function status(io: Io, options: FormOptions): Promise<number> {
  const form = formOf(io, options);
  const { data } = await Settings.read(io, { ...options });
  return withOffice(data, async (client) => {
    const found = await client.status();
    if (form === "json") {
      await emitJson(io, { data, ...found });
      return EXIT.done;
    }
    await emitList(io, form, found.queues, COLUMNS);
    if (form === "table") {
      if (found.queues.length === 0) await say(io, "no queues yet");
      for (const line of notes(found, data, Date.now())) await say(io, line);
    }
    return EXIT.done;
  });
}

export function define(command: Command, act: Act): void {
  withForm(withData(command))
    .addHelpText("after", "\nIn a pipe: queue, waiting, in flight, delayed, dead, separated by tabs.")
    .action(act(status));
}
