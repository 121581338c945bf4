/**
 * A handler works on its own copy of a body. Bodies are data: strings, numbers, plain objects and arrays, bytes,
 * dates, maps, sets. Class instances are copied with their class (private fields cannot be); functions are shared.
 */

/** Beyond these a body may be cyclic or share parts so often that a plain walk would never end. */
const PLAIN_DEPTH = 64;
const PLAIN_NODES = 10_000;

class TooDeep extends Error {}

interface Walk {
  nodes: number;
  /** Set on the second, careful walk: what has been copied, so that cycles and shared parts stay what they are. */
  readonly seen: Map<object, object> | undefined;
}

/** A deep copy of `body`; primitives cost nothing. */
export function copyBody<B>(body: B): B {
  if (typeof body !== "object" || body === null) return body;
  try {
    return copy(body, 0, { nodes: 0, seen: undefined }) as B;
  } catch (error) {
    if (!(error instanceof TooDeep)) throw error;
    return copy(body, 0, { nodes: 0, seen: new Map() }) as B;
  }
}

function copy(value: unknown, depth: number, walk: Walk): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (walk.seen === undefined) {
    if (depth > PLAIN_DEPTH || ++walk.nodes > PLAIN_NODES) throw new TooDeep();
  } else {
    const known = walk.seen.get(value);
    if (known !== undefined) return known;
  }
  if (Array.isArray(value)) return copyArray(value, depth, walk);
  const proto: unknown = Object.getPrototypeOf(value);
  if (proto === Object.prototype || proto === null) return copyFields(value, proto, depth, walk);
  return copySpecial(value, proto as object, depth, walk);
}

function remember<T extends object>(walk: Walk, from: object, to: T): T {
  walk.seen?.set(from, to);
  return to;
}

function copyArray(value: readonly unknown[], depth: number, walk: Walk): unknown[] {
  const to = remember(walk, value, value.slice());
  for (let i = 0; i < to.length; i++) {
    const inner = to[i];
    if (typeof inner === "object" && inner !== null) to[i] = copy(inner, depth + 1, walk);
  }
  return to;
}

/** The engine's own shallow copy first, and then only what lies deeper: most fields are no objects. */
function copyFields(value: object, proto: object | null, depth: number, walk: Walk): object {
  const own: Record<string, unknown> = { ...value };
  const to = remember(
    walk,
    value,
    proto === Object.prototype ? own : Object.setPrototypeOf(own, proto),
  ) as Record<string, unknown>;
  for (const key in to) {
    const inner = to[key];
    if (typeof inner === "object" && inner !== null && Object.hasOwn(to, key)) {
      to[key] = copy(inner, depth + 1, walk);
    }
  }
  return to;
}

function copySpecial(value: object, proto: object, depth: number, walk: Walk): unknown {
  if (ArrayBuffer.isView(value)) return remember(walk, value, copyView(value));
  if (value instanceof ArrayBuffer) return remember(walk, value, value.slice(0));
  if (value instanceof Date) return remember(walk, value, new Date(value.getTime()));
  if (value instanceof Map) {
    const to = remember(walk, value, new Map<unknown, unknown>());
    for (const [k, v] of value) to.set(copy(k, depth + 1, walk), copy(v, depth + 1, walk));
    return to;
  }
  if (value instanceof Set) {
    const to = remember(walk, value, new Set<unknown>());
    for (const one of value) to.add(copy(one, depth + 1, walk));
    return to;
  }
  // Stateless to look at, or (promises, weak collections) not data at all.
  if (value instanceof RegExp || value instanceof Promise || value instanceof WeakMap) return value;
  const to = copyFields(value, proto, depth, walk);
  // An error's message and stack are not enumerable.
  if (value instanceof Error) {
    for (const key of ["message", "stack", "cause"]) {
      const own = Object.getOwnPropertyDescriptor(value, key);
      if (own) Object.defineProperty(to, key, own);
    }
  }
  return to;
}

/** Bytes keep their class (a Buffer stays a Buffer), never their memory. */
function copyView(value: ArrayBufferView): ArrayBufferView {
  const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof Uint8Array) return Uint8Array.prototype.slice.call(value);
  const memory = bytes.slice().buffer;
  if (value instanceof DataView) return new DataView(memory);
  const make = value.constructor as new (memory: ArrayBufferLike) => ArrayBufferView;
  return new make(memory);
}
