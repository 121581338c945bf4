import { AmqpError } from "../broker/index.ts";
import { DloError } from "../core/index.ts";

/** What a client is told of an error of the host, which speaks DloError; anything else as it is. */
export function asAmqpError(error: unknown): unknown {
  if (!(error instanceof DloError)) return error;
  // Only the command that needs room fails: the connection may go on, ack, and make room.
  if (error.code === "DISK_FULL")
    return new AmqpError(506, "low on disk: nothing new is accepted", "channel");
  if (error.code === "CLOSED") return new AmqpError(320, "broker forced connection closure");
  return error;
}
