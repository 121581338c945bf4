import { DloError, type DloErrorCode } from "../core/index.ts";

/** Exit statuses of `dlo`, the same for every command. */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  partly: 3,
  notFound: 4,
  notConnected: 5,
  refused: 6,
  findings: 10,
  interrupted: 130,
} as const;

const BY_CODE: Partial<Record<DloErrorCode, number>> = {
  BAD_ARGUMENT: EXIT.usage,
  BAD_HANDLER: EXIT.usage,
  NOT_FOUND: EXIT.notFound,
  QUEUE_NOT_FOUND: EXIT.notFound,
  DATA_IN_USE: EXIT.notConnected,
  DATA_UNWRITABLE: EXIT.notConnected,
  NOT_CONNECTED: EXIT.notConnected,
  TIMED_OUT: EXIT.notConnected,
  REFUSED: EXIT.refused,
  CONFLICT: EXIT.refused,
  UNSUPPORTED: EXIT.refused,
};

/** The exit status of an error. */
export const exitOf = (error: unknown): number =>
  error instanceof DloError ? (BY_CODE[error.code] ?? EXIT.failed) : EXIT.failed;
