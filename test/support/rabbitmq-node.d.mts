export declare const NO_RABBITMQ: string;

export interface RabbitServer {
  readonly url: string;
  /** Null when only DLO_RABBITMQ_URL is set: no virtual hosts of our own then. */
  readonly managementUrl: string | null;
  readonly version?: string;
}

export interface PrivateRabbit extends RabbitServer {
  readonly managementUrl: string;
  readonly dir: string;
  /** SIGKILL to the node; resolves when it has gone. Its files and ports stay for `start`. */
  kill9(): Promise<void>;
  /** An orderly shutdown. */
  stop(): Promise<void>;
  start(): Promise<RabbitServer>;
  /** `rabbitmqctl ARGS` against this node; answers what it printed. */
  ctl(...args: string[]): Promise<string>;
  /** kill9, then start on the same ports and files. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface Vhost extends RabbitServer {
  /** Null when the server's own virtual host had to do. */
  readonly name: string | null;
  drop(): Promise<void>;
}

export declare function haveRabbit(): boolean;
export declare function sharedRabbit(): Promise<RabbitServer | null>;
export declare function startPrivateRabbit(options?: {
  conf?: string;
  advanced?: string;
  plugins?: readonly string[];
}): Promise<PrivateRabbit | null>;
export declare function freshVhost(server: RabbitServer, label?: string): Promise<Vhost>;
export declare function uniqueName(label?: string): string;
export declare function management(
  server: RabbitServer,
  method: string,
  path: string,
  body?: unknown,
): Promise<unknown>;
