/** How far an AMQP error reaches: the channel that made the call, or the whole connection. */
export type Reach = "channel" | "connection";

/** AMQP 0-9-1 reply codes with the names RabbitMQ puts in front of its texts. */
export const AMQP_ERRORS: Readonly<Record<AmqpErrorCode, readonly [string, Reach]>> = {
  311: ["CONTENT_TOO_LARGE", "channel"],
  312: ["NO_ROUTE", "channel"],
  313: ["NO_CONSUMERS", "channel"],
  320: ["CONNECTION_FORCED", "connection"],
  402: ["INVALID_PATH", "connection"],
  403: ["ACCESS_REFUSED", "channel"],
  404: ["NOT_FOUND", "channel"],
  405: ["RESOURCE_LOCKED", "channel"],
  406: ["PRECONDITION_FAILED", "channel"],
  501: ["FRAME_ERROR", "connection"],
  502: ["SYNTAX_ERROR", "connection"],
  503: ["COMMAND_INVALID", "connection"],
  504: ["CHANNEL_ERROR", "connection"],
  505: ["UNEXPECTED_FRAME", "connection"],
  506: ["RESOURCE_ERROR", "connection"],
  530: ["NOT_ALLOWED", "connection"],
  540: ["NOT_IMPLEMENTED", "connection"],
  541: ["INTERNAL_ERROR", "connection"],
};

/** One of the protocol's reply codes. */
export type AmqpErrorCode =
  | 311
  | 312
  | 313
  | 320
  | 402
  | 403
  | 404
  | 405
  | 406
  | 501
  | 502
  | 503
  | 504
  | 505
  | 506
  | 530
  | 540
  | 541;

/**
 * A refused command, in AMQP's and RabbitMQ's words: `message` is the reply text (`NOT_FOUND - no queue 'q' in
 * vhost '/'`). Thrown by the machine before anything was changed.
 */
export class AmqpError extends Error {
  override readonly name: string = "AmqpError";
  readonly code: AmqpErrorCode;
  readonly reach: Reach;

  constructor(code: AmqpErrorCode, text: string, reach?: Reach) {
    super(`${AMQP_ERRORS[code][0]} - ${text}`);
    this.code = code;
    this.reach = reach ?? AMQP_ERRORS[code][1];
  }
}
