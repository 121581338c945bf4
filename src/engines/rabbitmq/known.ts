/** Which letters are known: the same id with another body, or from another queue, is another letter. */
import { hash } from "node:crypto";

/** Names bytes. */
export function digestOf(bytes: Uint8Array): string {
  return hash("sha256", bytes, "base64url");
}

/** Names a letter among those of its id: the digest of its body, and the queue it died in, "" where that is not known. */
export const kindOf = (digest: string, source: string | undefined): string => `${digest} ${source ?? ""}`;

/** Whether a kind may be this one: an unknown queue may be any. */
function isKind(known: string, digest: string, source: string | undefined): boolean {
  return source === undefined
    ? known.startsWith(kindOf(digest, undefined))
    : known === kindOf(digest, source) || known === kindOf(digest, undefined);
}

/** Id and kind -> the highest generation known of it. Bounded: the ids that came first are forgotten. */
export class Known {
  private readonly most: number;
  private readonly ids = new Map<string, Map<string, number>>();

  constructor(most: number) {
    this.most = most;
  }

  note(id: string, kind: string, generation: number): void {
    const kinds = this.ids.get(id) ?? new Map<string, number>();
    kinds.set(kind, Math.max(generation, kinds.get(kind) ?? 0));
    this.ids.set(id, kinds);
    if (this.ids.size > this.most) this.ids.delete(this.ids.keys().next().value as string);
  }

  /** The highest generation; of one body where its digest is given (asked for only when the id is known); 0: none. */
  generation(id: string, digest?: () => string | undefined, source?: string): number {
    const kinds = this.ids.get(id);
    if (kinds === undefined) return 0;
    const body = digest?.();
    if (body === undefined) return Math.max(...kinds.values());
    return Math.max(
      0,
      ...[...kinds].filter(([kind]) => isKind(kind, body, source)).map(([, generation]) => generation),
    );
  }

  /** True when a letter of this id is known, of exactly this generation where one is given. */
  has(id: string, generation?: number): boolean {
    const kinds = this.ids.get(id);
    if (kinds === undefined) return false;
    return generation === undefined || [...kinds.values()].includes(generation);
  }

  forget(id: string, kind: string): void {
    const kinds = this.ids.get(id);
    kinds?.delete(kind);
    if (kinds?.size === 0) this.ids.delete(id);
  }
}
