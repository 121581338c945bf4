import type { Outcome } from "../core/index.ts";
import type { ConsumerEvents, Emitter } from "./events.ts";
import type { Job } from "./job.ts";
import type { Plan } from "./options.ts";

/** Says what became of a message, to those who listen and to the log. */
export function report(
  job: Job,
  outcome: Outcome | null,
  events: Emitter<ConsumerEvents>,
  plan: Pick<Plan, "logger" | "now">,
): void {
  const { id } = job.message;
  const attempt = job.started?.receiveCount ?? job.message.receiveCount;
  const { settled, ran } = job;
  if (outcome === "ok") {
    if (!events.hears("handled")) return;
    events.emit("handled", { id, attempt, durationMs: plan.now() - job.startedAt });
  } else if (ran?.ended === "interrupted") {
    events.emit("interrupted", { id, cause: ran.cause });
  } else if (settled?.type === "retry") {
    const { error, delayMs } = settled;
    const why = error ?? (ran?.ended === "crashed" ? `its process died: ${ran.cause}` : "");
    plan.logger.info(`message ${id} goes back: ${why}`, { attempt, delayMs });
    events.emit("retried", { id, attempt, error, delayMs });
  } else if (settled?.type === "put" || settled?.type === "bury") {
    const { reason, error, attempts } = settled.entry;
    plan.logger.warn(`message ${id} is dead (${reason}): ${error ?? "its process died"}`, {
      attempts,
    });
    events.emit("dead", { id, reason: reason as "poison", error, attempts });
  } else events.emit("dead", { id });
}
