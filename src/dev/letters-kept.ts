/** Before a consumer starts: would the broker keep what dies in its queue? */
import type { BrokerHost } from "../broker/index.ts";
import { DloError } from "../core/index.ts";
import { type DoctorCode, examine, type LetterEnd, type Report } from "../topology/index.ts";
import { examineVhost } from "./topology-model.ts";

/** Which queues {@link checkLettersKept} looks at, and where. */
export interface LettersKeptOptions {
  /** The queue that is going to be consumed. */
  readonly queue: string;
  /** A queue (of RabbitMQ) that the consumer puts its own dead letters into: it must keep them too. */
  readonly deadLetters?: string;
  /** Default "/". */
  readonly vhost?: string;
  /** An embedded broker, or anything with its `host`. */
  readonly broker?: { readonly host: BrokerHost };
  /** Or a RabbitMQ: its management address with credentials, `http://guest:guest@127.0.0.1:15672`. */
  readonly managementUrl?: string;
  readonly signal?: AbortSignal;
}

/** A dead-letter queue with one of these loses what it was given. */
const LOSES: ReadonlySet<DoctorCode> = new Set(["dlq-drops-letters", "dlq-deletes-itself"]);

/**
 * Refuses where the dead letters of a queue would vanish: through a dead-letter exchange that is missing or leads
 * nowhere, by a limit (length, time, deliveries) without such an exchange, in a cycle, or in a dead-letter queue
 * that drops them. Call it before `consumer.run()`; it only looks.
 *
 * A queue without a dead-letter exchange passes while the broker itself lets nothing die in it: this product's
 * consumers never reject, they put what they give up among their own dead letters.
 *
 * @throws DloError REFUSED naming the queue, where its letters end, and what to do; QUEUE_NOT_FOUND; for a
 *   RabbitMQ NOT_CONNECTED and BAD_ARGUMENT too.
 * @example
 * await checkLettersKept({ queue: "orders", broker });
 * await checkLettersKept({ queue: "orders", managementUrl: "http://guest:guest@127.0.0.1:15672" });
 */
export async function checkLettersKept(options: LettersKeptOptions): Promise<void> {
  const vhost = options.vhost ?? "/";
  const report = await reportFor(options, vhost);
  for (const queue of [options.queue, ...(options.deadLetters === undefined ? [] : [options.deadLetters])]) {
    const lost = lossOf(report, vhost, queue);
    if (lost !== undefined) throw new DloError("REFUSED", lost);
  }
}

async function reportFor(options: LettersKeptOptions, vhost: string): Promise<Report> {
  const { broker, managementUrl, signal } = options;
  if ((broker === undefined) === (managementUrl === undefined)) {
    throw new DloError("BAD_ARGUMENT", "expected either a broker or a managementUrl");
  }
  if (broker !== undefined) {
    const found = broker.host.vhost(vhost);
    if (found === undefined) throw new DloError("NOT_FOUND", `no virtual host '${vhost}'`);
    return examineVhost(broker.host, found);
  }
  const { readLiveTopology } = await import("../engines/rabbitmq/index.ts");
  const url = managementUrl as string;
  const { definitions } = await readLiveTopology({ url, vhost, ...(signal === undefined ? {} : { signal }) });
  return examine(definitions, { live: true });
}

/** What would be lost of this queue's letters, in one sentence with the way out; undefined: nothing. */
export function lossOf(report: Report, vhost: string, queue: string): string | undefined {
  const verdict = report.queues.find((one) => one.queue === queue && one.vhost === vhost);
  if (verdict === undefined) throw new DloError("QUEUE_NOT_FOUND", `no queue '${queue}' in vhost '${vhost}'`);
  const lost = verdict.letters.find(vanishes);
  if (lost !== undefined) return `queue '${queue}': ${sentence(lost)}; ${fixOf(report, vhost, queue, lost)}`;
  const reached = new Set([queue, ...verdict.letters.flatMap(({ path }) => path)]);
  const drops = report.findings.find(
    (one) =>
      one.vhost === vhost && one.severity === "error" && LOSES.has(one.code) && reached.has(one.object),
  );
  return drops === undefined ? undefined : `queue '${queue}': ${drops.why}; ${drops.fix}`;
}

const vanishes = ({ reason, ends, why, path, at }: LetterEnd): boolean => {
  if (ends === "back") return reason === "rejected" && path[0] === at;
  return ends === "nowhere" && !(reason === "rejected" && why === "no-dlx");
};

const DEATHS: Readonly<Record<LetterEnd["reason"], string>> = {
  rejected: "what a consumer rejects",
  expired: "what expires",
  maxlen: "what its length limit pushes out",
  delivery_limit: "what exceeds its delivery limit",
};

function sentence({ reason, ends, why, at, key }: LetterEnd): string {
  const what = DEATHS[reason];
  if (ends === "back") return `${what} comes straight back to it, for ever`;
  if (why === "no-dlx") return `${what} is gone, as no dead-letter exchange takes it`;
  if (why === "cycle") return `${what} is dropped as a cycle at '${at}' (key '${key}')`;
  if (why === "dlx-not-declared") return `${what} vanishes: exchange '${at}' does not exist (key '${key}')`;
  return `${what} vanishes at '${at}', where nothing is bound for key '${key}'`;
}

/** The finding that speaks of it says what to do; the worst comes first. */
function fixOf(report: Report, vhost: string, queue: string, { why }: LetterEnd): string {
  const finding = report.findings.find(
    ({ severity, object, objects, code, vhost: at }) =>
      at === vhost &&
      severity !== "info" &&
      (objects ?? [object]).includes(queue) &&
      (why !== "no-dlx" || code.endsWith("without-dlx") || code.startsWith("quorum-")),
  );
  return (
    finding?.fix ?? "set x-dead-letter-exchange and x-dead-letter-routing-key to a queue that keeps letters"
  );
}
