import type { Compat } from "../broker/index.ts";
import { checkTimer, DloError } from "../core/index.ts";

/** What the server allows; every one has a default, see {@link limitsFor}. */
export interface AmqpLimits {
  /** Open connections; more are refused with 530. */
  readonly connections: number;
  /** Channels of one connection (announced as channel-max). */
  readonly channels: number;
  /** Bytes of one frame (announced as frame-max). */
  readonly frameBytes: number;
  /** Bytes of one message's body; more closes the channel with 406. */
  readonly messageBytes: number;
  /** Bytes of message bodies that are still arriving, all connections together; beyond it the arriving one is closed with 506. */
  readonly unfinishedBytes: number;
  /** Seconds, announced; a client may ask for less, or 0 for none. */
  readonly heartbeatSeconds: number;
  /** From the first byte to connection.open. */
  readonly handshakeMs: number;
  /** From a publish to the last byte of its body. */
  readonly bodyMs: number;
  /** A channel that holds a delivery unsettled for longer is closed with 406, and what it holds goes back; 0: never. */
  readonly ackTimeoutMs: number;
  /** How long the server waits for close-ok before it cuts. */
  readonly closeMs: number;
  /** A socket whose peer takes nothing for this long while bytes wait for it is cut. */
  readonly stalledMs: number;
  /** Bytes waiting in one socket above which its channels get no more deliveries. */
  readonly writeHighBytes: number;
  /** Resident memory of the process above which publishers are held (connection.blocked). */
  readonly memoryBytes: number;
}

const MIB = 1024 * 1024;

/** Those that a timer waits for. */
const TIMERS: ReadonlySet<string> = new Set(["handshakeMs", "closeMs"]);

/** Only what is said counts. */
function checked(given: Partial<AmqpLimits>): Partial<AmqpLimits> {
  const said = Object.entries(given).filter(([, value]) => value !== undefined);
  for (const [name, value] of said) {
    if (TIMERS.has(name)) checkTimer(`limits.${name}`, value, 0);
    else if (!(typeof value === "number" && value >= 0)) {
      const shown = typeof value === "number" ? value : typeof value;
      throw new DloError("BAD_ARGUMENT", `limits.${name} is ${shown}; expected a number of at least 0`);
    }
  }
  return Object.fromEntries(said);
}

/**
 * The defaults of a compatibility line; the message size is RabbitMQ's own of that line.
 * @throws DloError `BAD_ARGUMENT`, naming the limit, its value and what was expected.
 */
export function limitsFor(compat: Compat, given: Partial<AmqpLimits> = {}): AmqpLimits {
  return {
    connections: 4096,
    channels: 2047,
    frameBytes: 131072,
    messageBytes: compat === "4.x" ? 16 * MIB : 128 * MIB,
    unfinishedBytes: 256 * MIB,
    heartbeatSeconds: 60,
    handshakeMs: 10_000,
    bodyMs: 60_000,
    ackTimeoutMs: 1_800_000,
    closeMs: 5_000,
    stalledMs: 300_000,
    writeHighBytes: MIB,
    memoryBytes: 1024 * MIB,
    ...checked(given),
  };
}
