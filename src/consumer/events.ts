import type { Reason } from "../core/index.ts";

/** What a {@link Consumer} tells, by name. No event carries a message body. */
export interface ConsumerEvents {
  /** A handler is about to be called. `attempt` counts from 1. */
  started: { readonly id: string; readonly attempt: number };
  /** It returned, and the message is acked. */
  handled: { readonly id: string; readonly attempt: number; readonly durationMs: number };
  /** It failed (error null: its process died) and goes back; not before `delayMs` from now. */
  retried: {
    readonly id: string;
    readonly attempt: number;
    readonly error: string | null;
    readonly delayMs: number;
  };
  /** It is in the dead letters. Without a reason: it was there already, and is only acked. */
  dead: {
    readonly id: string;
    readonly reason?: Reason;
    readonly error?: string | null;
    readonly attempts?: number;
  };
  /** It was in flight when a process died; it runs alone now. */
  suspect: { readonly id: string; readonly attempt: number };
  /** Its run was ended from outside; it goes back, and the start does not count. */
  interrupted: { readonly id: string; readonly cause: string };
  /** It was taken over by another consumer; what came of it here is not settled. */
  stale: { readonly id: string };
  /** A port failed. The consumer backs off and tries again; nothing is acked that is not safe. */
  error: { readonly error: unknown; readonly during: string; readonly id?: string };
  /** Nothing is waiting and nothing is running. */
  idle: Record<never, never>;
}

type Listener<E> = (event: E) => void;

/** A small typed emitter. A listener that throws is reported and disturbs nobody. */
export class Emitter<Events extends object> {
  readonly #listeners = new Map<keyof Events, Set<Listener<never>>>();
  readonly #report: (error: unknown) => void;

  constructor(report: (error: unknown) => void) {
    this.#report = report;
  }

  on<K extends keyof Events>(name: K, listener: Listener<Events[K]>): () => void {
    const all = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, all);
    all.add(listener);
    return () => void all.delete(listener);
  }

  /** Whether anybody listens: an event nobody hears need not be made. */
  hears(name: keyof Events): boolean {
    return (this.#listeners.get(name)?.size ?? 0) > 0;
  }

  emit<K extends keyof Events>(name: K, event: Events[K]): void {
    for (const listener of this.#listeners.get(name) ?? []) {
      try {
        (listener as Listener<Events[K]>)(event);
      } catch (error) {
        this.#report(error);
      }
    }
  }
}
