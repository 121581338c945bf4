/**
 * How a plain queue wants a message sent again. The port's `send` takes `{ id, body }`; queues that were written
 * before, or for a test, often take `body` and perhaps an id, or the id first. Their parameters' names tell, and
 * nothing else can: the wrong form would be taken without an error and hand the handler `{ id, body }` as a body.
 */
import type { DeadLetter, World } from "../core/index.ts";

const BODY_FIRST = /^_?(?:body|payload|content|data)$/i;
const ID_FIRST = /^_?(?:id|key|[a-z]+id)$/i;

/** The names of a function's parameters as written; "" where one is a pattern or a rest. */
function parameters(of: (...args: never[]) => unknown): string[] {
  const text = Function.prototype.toString.call(of);
  const single = /^(?:async\s+)?([\w$]+)\s*=>/.exec(text)?.[1];
  if (single !== undefined) return [single];
  const list = text.slice(text.indexOf("(") + 1);
  const names: string[] = [];
  for (const part of list.slice(0, list.indexOf(")")).split(","))
    names.push(/^\s*([\w$]+)\s*(?:=|$)/.exec(part)?.[1] ?? "");
  return names;
}

/** Nothing for queues that take `{ id, body }`, which is what is sent unless the names say otherwise. */
export function sendingApart(queue: object): Pick<World, "send"> {
  const { send, supports } = queue as { send?: unknown; supports?: unknown };
  if (typeof send !== "function" || supports !== undefined) return {};
  const call = (...args: unknown[]): unknown => Reflect.apply(send, queue, args);
  const [first = "", second = ""] = parameters(send as (...args: never[]) => unknown);
  if (BODY_FIRST.test(first)) return { send: (entry: DeadLetter) => call(entry.body, entry.id) };
  if (ID_FIRST.test(first) && BODY_FIRST.test(second))
    return { send: (entry: DeadLetter) => call(entry.id, entry.body) };
  return {};
}
