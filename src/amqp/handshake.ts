/**
 * From the protocol header to connection.open:
 *
 *   starting  connection.start was sent; only start-ok may come
 *   login     the password is being checked; nothing may come
 *   tuning    connection.tune was sent; only tune-ok may come
 *   opening   only connection.open may come
 *   done      the connection is open, or has failed
 */
import { AmqpError, type BrokerHost, type VirtualHost } from "../broker/index.ts";
import { LOCALES, MECHANISMS, serverProperties } from "./announce.ts";
import * as m from "./methods.ts";
import { readCredentials } from "./sasl.ts";
import type { Shared } from "./session.ts";
import { Access, type User, type Users } from "./users.ts";
import { FRAME_MIN_SIZE, type Writer } from "./wire.ts";

/** What a connection needs besides its transport. */
export interface ConnectionContext {
  readonly host: BrokerHost;
  readonly users: Users;
  readonly shared: Shared;
  /** Why no more connection may be opened (too many of them); null: it may. */
  readonly refusal: () => string | null;
  /** Epoch ms. */
  readonly now: () => number;
  readonly log: (text: string, fields: Readonly<Record<string, unknown>>) => void;
}

/** What the handshake asks of its connection. */
export interface HandshakePeer {
  readonly writer: Writer;
  readonly remoteAddress: string | undefined;
  flush(): void;
  fail(error: unknown, method: number): void;
  /** Closes without a word, as clients that cannot read a refusal expect. */
  hangUp(): void;
  opened(vhost: VirtualHost, user: User): void;
}

const LOGIN_REFUSED = "Login was refused using authentication mechanism";

export class Handshake {
  user: User | null = null;
  heartbeatSeconds = 0;
  frameMax: number;
  channelMax = 0;
  clientProperties: Readonly<Record<string, unknown>> = {};
  step: "starting" | "login" | "tuning" | "opening" | "done" = "starting";
  readonly #context: ConnectionContext;
  readonly #peer: HandshakePeer;

  constructor(context: ConnectionContext, peer: HandshakePeer) {
    this.#context = context;
    this.#peer = peer;
    this.frameMax = context.shared.limits.frameBytes;
    const announced = serverProperties(context.shared.compat);
    m.writeConnectionStart(peer.writer, 0, 0, 9, announced, MECHANISMS, LOCALES);
  }

  /** What the client said it understands. */
  can(capability: string): boolean {
    const capabilities = this.clientProperties["capabilities"];
    if (typeof capabilities !== "object" || capabilities === null) return false;
    return (capabilities as Record<string, unknown>)[capability] === true;
  }

  /** A method on channel 0; its arguments are in the shared reader. False when it is not its turn. */
  method(id: number): boolean {
    const { reader } = this.#context.shared;
    if (id === m.ConnectionStartOkId && this.step === "starting")
      this.#startOk(m.readConnectionStartOk(reader));
    else if (id === m.ConnectionTuneOkId && this.step === "tuning")
      this.#tuneOk(m.readConnectionTuneOk(reader));
    else if (id === m.ConnectionOpenId && this.step === "opening") {
      this.#open(m.readConnectionOpen(reader).virtualHost);
    } else return false;
    return true;
  }

  #startOk({ clientProperties, mechanism, response }: m.ConnectionStartOk): void {
    this.clientProperties = clientProperties.toObject();
    const { name, password } = readCredentials(mechanism, response);
    this.step = "login";
    const { users, log } = this.#context;
    users.authenticate(name, password, this.#peer.remoteAddress).then(
      (user) => this.#loggedIn(user, name, mechanism),
      (error: unknown) => {
        log("a login could not be checked", { user: name, error: String(error) });
        this.#loggedIn(null, name, mechanism);
      },
    );
  }

  #loggedIn(user: User | null, name: string, mechanism: string): void {
    if (this.step !== "login") return;
    if (user === null) {
      this.#context.log("login refused", { user: name, from: this.#peer.remoteAddress });
      this.step = "done";
      const text = `${LOGIN_REFUSED} ${mechanism}. For details see the broker logfile.`;
      if (this.can("authentication_failure_close")) {
        this.#peer.fail(new AmqpError(403, text, "connection"), 0);
        this.#peer.flush();
      } else this.#peer.hangUp();
      return;
    }
    this.user = user;
    this.step = "tuning";
    const { channels, frameBytes, heartbeatSeconds } = this.#context.shared.limits;
    m.writeConnectionTune(this.#peer.writer, 0, channels, frameBytes, heartbeatSeconds);
    this.#peer.flush();
  }

  #tuneOk({ channelMax, frameMax, heartbeat }: m.ConnectionTuneOk): void {
    const { channels, frameBytes } = this.#context.shared.limits;
    this.channelMax = negotiated("channel_max", channelMax, 1, channels);
    this.frameMax = negotiated("frame_max", frameMax, FRAME_MIN_SIZE, frameBytes);
    this.heartbeatSeconds = heartbeat;
    this.step = "opening";
  }

  #open(name: string): void {
    const { host, refusal } = this.#context;
    const user = this.user as User;
    const vhost = host.vhost(name);
    if (vhost === undefined) throw new AmqpError(530, `vhost ${name} not found`);
    const refused = `access to vhost '${name}' refused for user '${user.name}'`;
    if (!Access.mayEnter(user, name)) throw new AmqpError(530, refused);
    const why = refusal();
    if (why !== null) throw new AmqpError(530, `${refused}: ${why}`);
    this.step = "done";
    this.#peer.opened(vhost, user);
  }
}

/** @throws AmqpError 530 in RabbitMQ's words when outside. */
function negotiated(name: string, asked: number, least: number, most: number): number {
  if (asked !== 0 && asked < least) {
    throw new AmqpError(
      530,
      `negotiated ${name} = ${asked} is lower than the minimum allowed value (${least})`,
    );
  }
  if (asked === 0 || asked > most) {
    const shown = asked === 0 ? "0 (no limit)" : String(asked);
    throw new AmqpError(
      530,
      `negotiated ${name} = ${shown} is higher than the maximum allowed value (${most})`,
    );
  }
  return asked;
}
