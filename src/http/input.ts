/** Reading what a request asks, with an error that names the field, the value and what was expected. */
import { DloError } from "../core/index.ts";
import type { Selection } from "../office/index.ts";
import type { WireMessage } from "./wire.ts";

const refuse = (what: string): never => {
  throw new DloError("BAD_ARGUMENT", what);
};

/** How a value is shown in an error: short, and never a body. */
function shown(value: unknown): string {
  if (value === null || typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value === "string")
    return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}...` : value);
  if (value === undefined) return "missing";
  return Array.isArray(value) ? "an array" : `a value of type ${typeof value}`;
}

export type Fields = Readonly<Record<string, unknown>>;

/** The request's JSON object; refuses other content types, so that no web page can post here by accident. */
export async function readJson(request: Request): Promise<Fields> {
  const type = request.headers.get("content-type") ?? "none";
  if (!/^application\/json\b/i.test(type)) refuse(`content type ${shown(type)}; expected application/json`);
  const text = await request.text();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    refuse("the request body is not JSON");
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    refuse(`the request body is ${shown(value)}; expected a JSON object`);
  }
  return value as Fields;
}

export function textField(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (value === undefined || typeof value === "string") return value;
  return refuse(`${name} is ${shown(value)}; expected a string`);
}

export function flagField(fields: Fields, name: string): boolean {
  const value = fields[name];
  if (value === undefined || typeof value === "boolean") return value === true;
  return refuse(`${name} is ${shown(value)}; expected true or false`);
}

export function idsField(fields: Fields, name: string): readonly string[] | undefined {
  const value = fields[name];
  if (value === undefined) return undefined;
  if (!Array.isArray(value)) return refuse(`${name} is ${shown(value)}; expected an array of strings`);
  const wrong = value.findIndex((id) => typeof id !== "string");
  if (wrong >= 0) refuse(`${name}[${wrong}] is ${shown(value[wrong])}; expected a string`);
  return value as string[];
}

export function selectionOf(fields: Fields): Selection {
  const ids = idsField(fields, "ids");
  const group = textField(fields, "group");
  const where = textField(fields, "where");
  return {
    ...(ids && { ids }),
    ...(group !== undefined && { group }),
    ...(where !== undefined && { where }),
    ...(flagField(fields, "all") && { all: true }),
  };
}

/** `action` of a plan. */
export function actionOf(fields: Fields): "replay" | "discard" {
  const action = fields["action"];
  if (action === "replay" || action === "discard") return action;
  return refuse(`action is ${shown(action)}; expected "replay" or "discard"`);
}

function messageOf(value: unknown, index: number): WireMessage {
  const message = `messages[${index}]`;
  if (value === null || typeof value !== "object")
    refuse(`${message} is ${shown(value)}; expected an object`);
  const { id, contentType, encoding, data } = value as Record<string, unknown>;
  if (id !== undefined && (typeof id !== "string" || id === "")) {
    refuse(`the id of ${message} is ${shown(id)}; expected a string that is not empty`);
  }
  if (contentType !== undefined && typeof contentType !== "string") {
    refuse(`the contentType of ${message} is ${shown(contentType)}; expected a string`);
  }
  if (encoding !== "utf8" && encoding !== "base64") {
    refuse(`the encoding of ${message} is ${shown(encoding)}; expected "utf8" or "base64"`);
  }
  if (typeof data !== "string") refuse(`the data of ${message} is ${shown(data)}; expected a string`);
  return value as WireMessage;
}

export function messagesOf(fields: Fields): readonly WireMessage[] {
  const { messages } = fields;
  if (!Array.isArray(messages)) return refuse(`messages is ${shown(messages)}; expected an array`);
  return messages.map(messageOf);
}

/** A page size from the query string. */
export function limitOf(text: string | undefined, most: number): number {
  if (text === undefined) return Math.min(100, most);
  const limit = Number(text);
  if (/^\d+$/.test(text) && limit >= 1 && limit <= most) return limit;
  return refuse(`limit is ${shown(text)}; expected a whole number from 1 to ${most}`);
}
