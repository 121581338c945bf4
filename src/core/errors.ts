/** Every code a {@link DloError} can carry. The list is closed and documented in docs/reference/errors.md. */
export const DLO_ERROR_CODES = [
  "BAD_ARGUMENT",
  "BAD_BODY",
  "BAD_HANDLER",
  "BODY_TOO_LARGE",
  "NOT_FOUND",
  "QUEUE_NOT_FOUND",
  "CONFLICT",
  "STALE_DELIVERY",
  "CLOSED",
  "DATA_IN_USE",
  "DATA_FOREIGN",
  "DATA_DAMAGED",
  "DATA_NEWER",
  "DATA_UNWRITABLE",
  "DISK_FULL",
  "NOT_CONNECTED",
  "TIMED_OUT",
  "UNROUTABLE",
  "REFUSED",
  "UNSUPPORTED",
  "WORKER_FAILED",
  "DEFINITIONS_UNREADABLE",
  "PORT_IN_USE",
  "INTERNAL",
] as const;

/** One of {@link DLO_ERROR_CODES}. */
export type DloErrorCode = (typeof DLO_ERROR_CODES)[number];

/** Whose fault an error is: the caller's input, the surroundings (disk, network, peer), or a defect of ours. */
export type Fault = "caller" | "environment" | "defect";

const FAULTS: Partial<Record<DloErrorCode, Fault>> = {
  CLOSED: "environment",
  DATA_IN_USE: "environment",
  DATA_DAMAGED: "environment",
  DATA_UNWRITABLE: "environment",
  DISK_FULL: "environment",
  NOT_CONNECTED: "environment",
  TIMED_OUT: "environment",
  STALE_DELIVERY: "environment",
  WORKER_FAILED: "environment",
  PORT_IN_USE: "environment",
  INTERNAL: "defect",
};

/**
 * The one error class of the product. `message` names the thing, the value and what was expected, and never
 * holds a message body or a secret.
 *
 * @example
 * try { openBroker({ file }) } catch (error) {
 *   if (error instanceof DloError && error.code === "DATA_IN_USE") console.error(error.message);
 * }
 */
export class DloError extends Error {
  override readonly name: string = "DloError";
  readonly code: DloErrorCode;
  readonly fault: Fault;

  constructor(code: DloErrorCode, message: string, options: { cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.fault = FAULTS[code] ?? "caller";
  }
}
