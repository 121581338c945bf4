/**
 * How a front (the AMQP server, the management API) reaches a running broker. A host owns the machine of each
 * virtual host, its clock and its journal: the embedded engine on SQLite, or a plain one in memory for tests.
 *
 * The contract in time: {@link HostConnection.submit} changes the machine's memory at once and answers at once.
 * The host commits what was submitted in one event-loop turn together, and after the commit calls the sinks and
 * the `afterCommit` callbacks in exactly the order the commands were submitted (the callbacks registered after a
 * command and before the next come before the effects of that next command, and after those of the command).
 * A front therefore answers a client only from there, and what it answered is durable. A crash between submit and
 * commit leaves nothing of that turn, and nobody was told.
 */
import type {
  BindingRecord,
  ChannelId,
  Command,
  Compat,
  ConnectionId,
  DeliveryTag,
  ExchangeRecord,
  OutwardEffect,
  Policy,
  QueueRecord,
  Reply,
} from "./types.ts";

/** What a connection hears from its host. None of these may throw. */
export interface HostSink {
  /** After the commit, in order; only effects of this connection's channels (never `lost`). */
  effect(effect: OutwardEffect): void;
  /** All effects and callbacks of this commit were handed out: write to the socket now. */
  flush(): void;
  /**
   * The host cannot go on (the commit failed, or it is closing): nothing submitted since the last `flush` is
   * promised. The front ends the connection; it must not submit again.
   */
  ended(why: Error): void;
}

/** The deliveries of a channel that wait for their settlement. */
export interface Unsettled {
  readonly oldest: DeliveryTag;
  /** The queue the oldest one came from. */
  readonly queue: string;
  /** The tag given out last, settled or not. */
  readonly latest: DeliveryTag;
}

/** One connection of a virtual host; owns its channels and exclusive queues. */
export interface HostConnection {
  readonly id: ConnectionId;
  /** Opens a channel of the machine; numbers are the host's, unique while it lives. */
  openChannel(): ChannelId;
  /**
   * Applies one command of a channel of this connection.
   * @throws AmqpError when refused; nothing was changed then.
   */
  submit(command: Command): Reply;
  /**
   * Runs after everything submitted so far is durable, in order. Also when nothing is pending (next turn's end),
   * and after `close`.
   */
  afterCommit(run: () => void): void;
  /** What a channel of this connection holds; null: nothing. Without it nobody's acks are ever late. */
  unsettled?(channel: ChannelId): Unsettled | null;
  /**
   * Closes all its channels (unsettled messages return) and ends its exclusive queues. Idempotent. `clean`: the
   * client said goodbye, so what it held is not suspected of having killed it; absent: it was lost.
   */
  close(options?: { readonly clean?: boolean }): void;
}

/** A queue as lists show it. */
export interface QueueInfo {
  readonly record: QueueRecord;
  readonly ready: number;
  readonly unacked: number;
  readonly delayed: number;
  readonly consumers: number;
  /** Name of the policy that applies, where one does. */
  readonly policy?: string;
  readonly operatorPolicy?: string;
}

/** An exchange as lists show it. */
export interface ExchangeInfo {
  readonly record: ExchangeRecord;
  readonly policy?: string;
}

/** One virtual host: a name space of queues and exchanges with a machine of its own. */
export interface VirtualHost {
  readonly name: string;
  connect(sink: HostSink): HostConnection;
  queues(): readonly QueueInfo[];
  exchanges(): readonly ExchangeInfo[];
  bindings(): readonly BindingRecord[];
  policies(): readonly Policy[];
}

/** Why publishers are held: the host is short of this. */
export type Alarm = "memory" | "disk";

/** A running broker. */
export interface BrokerHost {
  readonly compat: Compat;
  vhosts(): readonly string[];
  vhost(name: string): VirtualHost | undefined;
  /** Absent where the host has exactly one virtual host. Idempotent. */
  createVhost?(name: string): VirtualHost;
  deleteVhost?(name: string): void;
  /** Raised alarms; empty: none. Fronts stop reading from publishers while there are any. */
  alarms?(): readonly Alarm[];
  /** Calls back whenever the set of alarms changes; answers a function that ends it. */
  onAlarm?(listener: (alarms: readonly Alarm[]) => void): () => void;
  /**
   * Calls back with the name of a virtual host after a command changed (or may have changed) its queues, exchanges,
   * bindings or policies; declarations of exclusive queues are not told. Answers a function that ends it.
   */
  onTopology?(listener: (vhost: string) => void): () => void;
}
