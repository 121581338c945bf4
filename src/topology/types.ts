/**
 * The doctor's words. A topology is what a definitions file or a management API says: virtual hosts with queues,
 * exchanges, bindings and policies. A report says for every queue where its dead letters end, then what is wrong.
 */

/** How bad a finding is: letters (or messages) are lost or stuck; may be; worth knowing. */
export type Severity = "error" | "warning" | "info";

/** Why a message dies, in the broker's words. */
export type DeathReason = "rejected" | "expired" | "maxlen" | "delivery_limit";

/** Where a letter ends: in a queue, nowhere (it is gone), back where it died, or that cannot be known. */
export type EndKind = "queue" | "nowhere" | "back" | "unknown";

/** Why a letter ends as it does, where that is not plain: closed list, for programs. */
export type EndWhy =
  | "no-dlx"
  | "dlx-not-declared"
  | "unroutable"
  | "cycle"
  | "held"
  | "routing-unknown"
  | "policy-unknown"
  | "not-in-file";

/** One way a queue's letters go. */
export interface LetterEnd {
  readonly reason: DeathReason;
  /** The key the letter was judged with: the DLRK, or an original key; a pattern stands for all its keys, `#` for any. */
  readonly key: string;
  readonly ends: EndKind;
  /** The queue it ends in, or the exchange or queue where it vanishes or its way is lost from sight. */
  readonly at: string;
  /** The queues it passes and ends in, in order; long ways are cut. */
  readonly path: readonly string[];
  readonly why?: EndWhy;
}

/** A queue and where its letters end. */
export interface QueueVerdict {
  readonly vhost: string;
  readonly queue: string;
  readonly type: QueueType;
  /** How the doctor reads the queue: does work, waits, keeps letters. */
  readonly role: Role;
  readonly letters: readonly LetterEnd[];
  /** Where each dead-letter setting comes from: argument, policy by name, operator policy, broker default. */
  readonly settings: Readonly<Record<string, { readonly value: string | number; readonly source: string }>>;
  /** Keys that were not followed because there are too many of them; 0 nearly always. */
  readonly keysLeftOut: number;
}

/** One thing the doctor found. Equal findings of many objects may be folded by who prints them. */
export interface Finding {
  readonly code: DoctorCode;
  readonly severity: Severity;
  readonly vhost: string;
  /** The queue, exchange, policy, virtual host or file it is about. */
  readonly object: string;
  /** All objects, where one finding speaks of several. */
  readonly objects?: readonly string[];
  readonly why: string;
  /** What to do, with the exact argument or command. */
  readonly fix: string;
  /** Where the setting comes from: `argument x-...`, `policy NAME`, `operator policy NAME`, `binding`, `file` ... */
  readonly source: string;
}

/** Something seen on a live broker that is no fault of the topology. */
export interface Observation {
  readonly vhost: string;
  readonly queue: string;
  readonly what: "letters-stuck" | "letters-unattended" | "no-consumer";
  readonly messages: number;
  readonly why: string;
}

/** What a file says and a live broker does not. */
export interface Difference {
  readonly vhost: string;
  readonly object: string;
  readonly what:
    | "missing"
    | "argument-differs"
    | "property-differs"
    | "binding-missing"
    | "policy-missing"
    | "policy-differs";
  readonly file: string;
  readonly live: string;
  readonly why: string;
}

/** What {@link examine} answers. One JSON document, safe to paste: no user, permission or URI is ever in it. */
export interface Report {
  readonly queues: readonly QueueVerdict[];
  /** Worst first. */
  readonly findings: readonly Finding[];
  /** Findings an allow-list said are wanted, with its reason. */
  readonly allowed: readonly (Finding & { readonly allowedBecause: string })[];
  /** Live only. */
  readonly observations: readonly Observation[];
  /** About the file itself: what a broker would refuse, what was skipped. */
  readonly notes: readonly string[];
  /** The version the rules were judged for; absent: for both lines. */
  readonly brokerVersion?: string;
  /** Set when the text could not be read at all; then there is one finding, `definitions-unreadable`. */
  readonly unreadable?: { readonly line: number; readonly column: number };
}

/** A loss that is wanted, with the reason it is. `queue` is a pattern with `*` for any run of characters. */
export interface AllowRule {
  readonly queue: string;
  readonly code: DoctorCode | "*";
  readonly reason: string;
  readonly vhost?: string;
}

export interface ExamineOptions {
  /** "3.10.8", "4.2": wins over the file's own. Without either, both lines are judged. */
  readonly brokerVersion?: string;
  /** The rest is declared elsewhere: what is "not declared in this file" is lowered, and its verdict is unknown. */
  readonly partial?: boolean;
  readonly allow?: readonly AllowRule[];
  /** Names the text in findings and messages. */
  readonly sourceName?: string;
  /** The definitions come from a live broker (see `LiveQueue`). */
  readonly live?: boolean;
}

export type QueueType = "classic" | "quorum" | "stream";

/** `work`: consumed. `wait`: holds messages for a time, then passes them on. `letters`: a dead-letter queue. */
export type Role = "work" | "wait" | "letters";

/** A value and where it was set. */
export interface Setting<T> {
  readonly value: T;
  readonly kind: "argument" | "policy" | "operator" | "default";
  /** For people: "argument x-message-ttl", "policy limits", "operator policy caps". */
  readonly source: string;
}

/** What applies to one queue after arguments, policy and operator policy were merged key by key. */
export interface Effective {
  readonly dlx?: Setting<string>;
  readonly dlrk?: Setting<string>;
  readonly strategy?: Setting<string>;
  readonly overflow?: Setting<string>;
  readonly ttl?: Setting<number>;
  readonly expires?: Setting<number>;
  readonly maxLength?: Setting<number>;
  readonly maxLengthBytes?: Setting<number>;
  readonly deliveryLimit?: Setting<number>;
}

export interface QueueModel {
  readonly name: string;
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly exclusive: boolean;
  readonly type: QueueType;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly live?: LiveQueue;
}

/** What only a live broker can say of a queue. */
export interface LiveQueue {
  readonly policy?: string;
  readonly operatorPolicy?: string;
  readonly effectivePolicy?: Readonly<Record<string, unknown>>;
  readonly consumers?: number;
  readonly ready?: number;
  readonly stuckLetters?: number;
}

export interface ExchangeModel {
  readonly name: string;
  readonly type: string;
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly internal: boolean;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly builtin: boolean;
}

export interface BindingModel {
  readonly source: string;
  readonly destination: string;
  readonly destinationType: "queue" | "exchange";
  readonly routingKey: string;
}

export interface PolicyModel {
  readonly name: string;
  readonly pattern: string;
  readonly applyTo: string;
  readonly priority: number;
  readonly definition: Readonly<Record<string, unknown>>;
  readonly operator: boolean;
}

export interface VhostModel {
  /** Empty for the one unnamed virtual host of a per-vhost export. */
  readonly name: string;
  readonly queues: readonly QueueModel[];
  readonly exchanges: readonly ExchangeModel[];
  readonly bindings: readonly BindingModel[];
  readonly policies: readonly PolicyModel[];
  readonly operatorPolicies: readonly PolicyModel[];
}

/** A whole topology, as the rules judge it. */
export interface Topology {
  readonly vhosts: readonly VhostModel[];
  readonly version?: string;
  /** Virtual hosts that objects name and the (non-empty) list does not. */
  readonly undeclaredVhosts: readonly string[];
  readonly notes: readonly string[];
}

/** Every code a finding can carry; each is explained in docs/reference/doctor.md. */
export type DoctorCode = (typeof DOCTOR_CODES)[number];

export const DOCTOR_CODES = [
  "dlx-not-declared",
  "dlx-without-bindings",
  "dlx-unroutable",
  "dlx-partly-unroutable",
  "dlx-default-exchange-no-such-queue",
  "dlx-default-exchange-without-key",
  "dead-letter-to-self",
  "ttl-cycle-dropped",
  "retry-loop-without-broker-limit",
  "dlq-drops-letters",
  "dlq-deletes-itself",
  "dlq-delivery-limit",
  "dlq-not-durable",
  "dlx-not-durable",
  "dlx-auto-delete",
  "dlq-never-fed",
  "expiry-without-dlx",
  "overflow-without-dlx",
  "delivery-limit-without-dlx",
  "quorum-delivery-limit-not-set",
  "delivery-limit-minus-one-before-4",
  "reject-without-dlx",
  "classic-no-delivery-limit",
  "at-least-once-not-active",
  "at-least-once-blocked",
  "at-least-once-chain-weak",
  "policy-priority-tie",
  "policy-hides-dlx",
  "policy-never-applies",
  "policy-matches-nothing",
  "policy-argument-conflict",
  "policy-pattern-invalid",
  "policy-wrong-apply-to",
  "dlrk-without-dlx",
  "dlx-dlrk-from-two-places",
  "argument-wrong-type",
  "argument-unknown",
  "argument-not-for-this-queue-type",
  "binding-to-missing-object",
  "vhost-not-declared",
  "retry-return-fans-out",
  "wait-queue-without-ttl",
  "definitions-unreadable",
] as const;
