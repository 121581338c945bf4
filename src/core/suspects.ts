/**
 * Who runs beside whom. A suspect (a message that was started and whose process died) runs alone in its process:
 * if it kills again, nobody else is there to be blamed.
 *
 *   open --a suspect arrives--> closing --the last other run ends--> solo --it ends--> open
 *   While closing or solo nothing else is received or started.
 */
import type { Message } from "./message.ts";

/** One process's window on a queue. */
export interface Window {
  /** Handlers running. */
  readonly running: number;
  /** The suspect that waits for the window to empty, or runs in it. */
  readonly suspect: Message | null;
}

/** Whether one more message may be taken from the queue. */
export function mayReceive(window: Window, concurrency: number): boolean {
  return window.suspect === null && window.running < concurrency;
}

/** Whether this message may be started now. */
export function mayStart(window: Window, message: Message): boolean {
  if (window.suspect === null) return message.suspect !== true || window.running === 0;
  return window.suspect === message && window.running === 0;
}
