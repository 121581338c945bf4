/**
 * Bodies as values. A string is stored as its UTF-8 bytes (`text/plain`), a Uint8Array or Buffer as it is
 * (`application/octet-stream`, read back as a Buffer), and any other value as what JSON.stringify makes of it
 * (`application/json`), so it reads back as JSON.parse answers: dates as text, `undefined` members left out. What
 * has no JSON form (undefined, a function, a symbol, a bigint, a cycle) is refused.
 */
import { DloError } from "../../core/index.ts";

export interface EncodedBody {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

export const TEXT = "text/plain; charset=utf-8";
export const BYTES = "application/octet-stream";
export const JSON_TYPE = "application/json";

/** @throws DloError BAD_BODY, BODY_TOO_LARGE */
export function encodeBody(body: unknown, maxBytes: number, where: string): EncodedBody {
  const encoded = encode(body, where);
  if (encoded.bytes.length > maxBytes)
    throw new DloError(
      "BODY_TOO_LARGE",
      `${where}: the body has ${encoded.bytes.length} bytes, the limit is ${maxBytes}`,
    );
  return encoded;
}

function encode(body: unknown, where: string): EncodedBody {
  if (typeof body === "string") return { bytes: Buffer.from(body, "utf8"), contentType: TEXT };
  // Copied: the sender may change its buffer while the message waits.
  if (body instanceof Uint8Array) return { bytes: Buffer.from(body), contentType: BYTES };
  let text: string | undefined;
  try {
    text = JSON.stringify(body);
  } catch (error) {
    const why = error instanceof Error ? error.message.split("\n")[0] : "it cannot be read";
    throw new DloError("BAD_BODY", `${where}: the body has no JSON form (${why})`, { cause: error });
  }
  if (text === undefined)
    throw new DloError("BAD_BODY", `${where}: a body of type ${typeof body} has no JSON form`);
  return { bytes: Buffer.from(text, "utf8"), contentType: JSON_TYPE };
}

/** The value of stored bytes. JSON that cannot be parsed, and unknown types, are handed out as a Buffer. */
export function decodeBody(bytes: Uint8Array, contentType: string | undefined): unknown {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const type = contentType?.split(";")[0]?.trim().toLowerCase() ?? "";
  if (type === "application/json" || type.endsWith("+json")) {
    try {
      return JSON.parse(buffer.toString("utf8")) as unknown;
    } catch {
      return buffer;
    }
  }
  return type.startsWith("text/") ? buffer.toString("utf8") : buffer;
}
