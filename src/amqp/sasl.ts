import { AmqpError, HeaderTable } from "../broker/index.ts";
import { decodeUtf8 } from "../core/index.ts";

/** A name and a password as a client sent them. */
export interface Credentials {
  readonly name: string;
  readonly password: string;
}

/**
 * Reads the response of connection.start-ok.
 * @throws AmqpError 503 for an unknown mechanism, 502 for a response that is none.
 */
export function readCredentials(mechanism: string, response: Uint8Array): Credentials {
  if (mechanism === "PLAIN") return plain(response);
  if (mechanism === "AMQPLAIN") return amqplain(response);
  throw new AmqpError(503, `unknown authentication mechanism '${mechanism}'`);
}

/** `authzid NUL name NUL password`; the first part is not used. */
function plain(response: Uint8Array): Credentials {
  const first = response.indexOf(0);
  const second = first < 0 ? -1 : response.indexOf(0, first + 1);
  if (second < 0 || response.indexOf(0, second + 1) >= 0) {
    throw new AmqpError(502, "the response of mechanism PLAIN is not a name and a password");
  }
  return {
    name: decodeUtf8(response, first + 1, second),
    password: decodeUtf8(response, second + 1),
  };
}

/** A field table with LOGIN and PASSWORD. */
function amqplain(response: Uint8Array): Credentials {
  const table = HeaderTable.fromBytes(response);
  const login = table.get("LOGIN");
  const password = table.get("PASSWORD");
  if (login?.t !== "S" || password?.t !== "S") {
    throw new AmqpError(502, "the response of mechanism AMQPLAIN lacks LOGIN or PASSWORD");
  }
  return { name: login.v, password: password.v };
}
