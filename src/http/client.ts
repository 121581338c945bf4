import { DloError } from "../core/index.ts";
import type { LetterPage, Plan, Selection } from "../office/index.ts";
import type { LetterGroup, OperationResult } from "../ports/index.ts";
import { errorFrom, type WireLetter, type WireMessage, type WireSent, type WireStatus } from "./wire.ts";

/** Whatever answers requests: the app itself, or the socket of the process that has it. */
export type Fetch = (request: Request) => Promise<Response>;

/** Who changes something and why, for the record. */
export interface Said {
  readonly actor?: string;
  readonly reason?: string;
}

/**
 * The office as typed calls over its HTTP API, the same whether the app runs in this process or another one. Every
 * call throws the `DloError` that the office answered; `NOT_CONNECTED` when nobody answers.
 */
export class OfficeClient {
  readonly #fetch: Fetch;

  constructor(fetch: Fetch) {
    this.#fetch = fetch;
  }

  async #ask<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T> {
    const init =
      body === undefined
        ? { method }
        : { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } };
    const response = await this.#fetch(new Request(`http://office${path}`, init));
    const text = await response.text();
    let answer: unknown;
    try {
      answer = JSON.parse(text);
    } catch (cause) {
      const message = `the office answered something that is not JSON (HTTP status ${response.status})`;
      throw new DloError("INTERNAL", message, { cause });
    }
    if (!response.ok) throw errorFrom(response.status, answer);
    return answer as T;
  }

  status(): Promise<WireStatus> {
    return this.#ask("GET", "/v1/status");
  }

  /** One page in order of death. */
  letters(where: string, options: { limit: number; after?: string }): Promise<LetterPage> {
    const search = new URLSearchParams({ where, limit: String(options.limit) });
    if (options.after !== undefined) search.set("after", options.after);
    return this.#ask("GET", `/v1/letters?${search}`);
  }

  letter(id: string): Promise<WireLetter> {
    return this.#ask("GET", `/v1/letters/${encodeURIComponent(id)}`);
  }

  async groups(where: string): Promise<readonly LetterGroup[]> {
    const search = new URLSearchParams({ where });
    return (await this.#ask<{ groups: LetterGroup[] }>("GET", `/v1/groups?${search}`)).groups;
  }

  /** Says what an operation would do. Changes nothing. */
  plan(
    action: "replay" | "discard",
    selection: Selection,
    options: { to?: string; force?: boolean } = {},
  ): Promise<Plan> {
    return this.#ask("POST", "/v1/plans", { action, ...selection, ...options });
  }

  /** Sends these letters back; one transaction of the store. */
  replay(letterIds: readonly string[], options: Said & { to?: string } = {}): Promise<OperationResult> {
    return this.#ask("POST", "/v1/replays", { letterIds, ...options });
  }

  /** Moves these letters to the trash; one transaction of the store. */
  discard(letterIds: readonly string[], options: Said = {}): Promise<OperationResult> {
    return this.#ask("POST", "/v1/discards", { letterIds, ...options });
  }

  /** Sends in order; stops at the first refusal and says which. */
  send(queue: string, messages: readonly WireMessage[]): Promise<WireSent> {
    return this.#ask("POST", `/v1/queues/${encodeURIComponent(queue)}/messages`, { messages });
  }
}
