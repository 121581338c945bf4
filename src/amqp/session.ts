import type { Compat, HostConnection } from "../broker/index.ts";
import type { AmqpLimits } from "./limits.ts";
import type { ReplyTo } from "./reply-to.ts";
import type { Access } from "./users.ts";
import type { Reader, Writer } from "./wire.ts";

/** What all connections of one server share. */
export interface Shared {
  readonly compat: Compat;
  readonly limits: AmqpLimits;
  readonly reader: Reader;
  readonly replyTo: ReplyTo;
  /** Bytes of message bodies that are still arriving, over all connections. */
  unfinished: number;
  /** Text for names the broker makes up (`amq.gen-...`), unguessable. */
  randomName(): string;
}

/** What a channel needs of its open connection. */
export interface Session {
  readonly shared: Shared;
  readonly host: HostConnection;
  readonly access: Access;
  readonly vhost: string;
  readonly writer: Writer;
  /** Negotiated, with the frame's overhead. */
  readonly frameMax: number;
  /** The client wants basic.cancel pushed when its queue goes. */
  readonly wantsCancels: boolean;
  /** The connection has published: it is held while there is an alarm. */
  published(): void;
  /** Writes now what the writer holds, for bytes that come from outside this connection's own commits. */
  flush(): void;
  channelClosed(number: number): void;
  /** Ends the whole connection with this error, naming the method that caused it. */
  fail(error: unknown, method: number): void;
}
