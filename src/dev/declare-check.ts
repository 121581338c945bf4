/**
 * The doctor at declare time: while an application sets up its queues, says what would lose its letters, once per
 * finding, before any letter is lost.
 *
 *   quiet ---- something is declared, bound, deleted ---> waiting
 *   waiting -- `settleMs` without another change, or `longestMs` in all ---> judged, said what is new ---> quiet
 *
 * A dead-letter exchange may be declared after the queue that names it, so nothing is judged in the middle of a
 * set-up: only what has come to rest. What was mended is forgotten, so that it is said again if it comes back.
 */
import type { BrokerHost } from "../broker/index.ts";
import type { Logger } from "../ports/index.ts";
import type { DoctorCode, Finding, Report } from "../topology/index.ts";
import { examineVhost } from "./topology-model.ts";

/** How {@link watchDeclarations} listens and waits. */
export interface DeclareCheckOptions {
  readonly logger: Logger;
  /** Judges when nothing was declared for so long, ms; default 1 s. */
  readonly settleMs?: number;
  /** Judges at the latest so long after the first change, ms, however busily queues come and go; default 30 s. */
  readonly longestMs?: number;
}

const SETTLE_MS = 1_000;
const LONGEST_MS = 30_000;
/** A virtual host with more queues is not judged while it serves: that would hold it up. `dlo doctor` does it beside. */
const MOST_QUEUES = 2_000;
/** Worth a line here although nothing is wrong with the topology itself: what is sent decides. */
const ALSO: ReadonlySet<DoctorCode> = new Set(["wait-queue-without-ttl"]);

/**
 * Watches the declarations of a running broker and tells the logger what the doctor finds: every warning and error
 * once, with code, object, why and fix. Costs nothing while messages flow. Answers a function that ends it.
 *
 * @example
 * const stop = watchDeclarations(broker.host, { logger: console });
 */
export function watchDeclarations(host: BrokerHost, options: DeclareCheckOptions): () => void {
  const watches = new Map<string, VhostWatch>();
  const end = host.onTopology?.((vhost) => {
    let watch = watches.get(vhost);
    if (watch === undefined) watches.set(vhost, (watch = new VhostWatch(host, vhost, options)));
    watch.changed();
  });
  return () => {
    end?.();
    for (const watch of watches.values()) watch.stop();
  };
}

class VhostWatch {
  readonly #host: BrokerHost;
  readonly #vhost: string;
  readonly #options: DeclareCheckOptions;
  #said: ReadonlySet<string> = new Set();
  #saidTooMany = false;
  #firstAt = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(host: BrokerHost, vhost: string, options: DeclareCheckOptions) {
    this.#host = host;
    this.#vhost = vhost;
    this.#options = options;
  }

  changed(): void {
    const { settleMs = SETTLE_MS, longestMs = LONGEST_MS } = this.#options;
    const now = performance.now();
    if (this.#timer === undefined) {
      this.#firstAt = now;
      this.#timer = setTimeout(() => this.#judge(), settleMs);
      this.#timer.unref();
    } else if (now - this.#firstAt + settleMs < longestMs) this.#timer.refresh();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #judge(): void {
    this.#timer = undefined;
    const vhost = this.#host.vhost(this.#vhost);
    if (vhost === undefined) return;
    const count = vhost.queues().length;
    if (count > MOST_QUEUES) {
      if (this.#saidTooMany) return;
      this.#saidTooMany = true;
      this.#options.logger.info(
        `${count} queues are too many to be judged while they are served; 'dlo doctor' judges them beside`,
        { vhost: this.#vhost },
      );
      return;
    }
    this.#tell(linesOf(examineVhost(this.#host, vhost)));
  }

  #tell(lines: ReadonlyMap<string, Line>): void {
    const { logger } = this.#options;
    for (const [id, { severity, text, fields }] of lines) {
      if (this.#said.has(id)) continue;
      const told = { vhost: this.#vhost, ...fields };
      if (severity === "error") logger.error(text, told);
      else logger.warn(text, told);
    }
    this.#said = new Set(lines.keys());
  }
}

interface Line {
  readonly severity: "error" | "warning";
  readonly text: string;
  readonly fields: Readonly<Record<string, string>>;
}

/** What is worth a line, by what makes it the same thing when it is found again. */
function linesOf(report: Report): Map<string, Line> {
  const lines = new Map<string, Line>();
  for (const finding of report.findings) {
    const objects = (finding.objects ?? [finding.object]).filter((name) => !name.startsWith("amq.gen-"));
    if (objects.length === 0 || (finding.severity === "info" && !ALSO.has(finding.code))) continue;
    lines.set(`${finding.code}\u0000${objects.join("\u0000")}`, lineOf(finding, objects));
  }
  for (const note of report.notes) lines.set(note, { severity: "warning", text: note, fields: {} });
  return lines;
}

function lineOf({ code, severity, why, fix }: Finding, objects: readonly string[]): Line {
  return {
    severity: severity === "error" ? "error" : "warning",
    text: `${code}: ${why}`,
    fields: { about: objects.join(", "), fix },
  };
}
