/** Which letters are known: the same id with another body is another letter. */
import { createHash } from "node:crypto";

/** Names bytes. */
export function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64url");
}

/** Id and body -> the highest generation known of it. Bounded: the ids that came first are forgotten. */
export class Known {
  private readonly most: number;
  private readonly ids = new Map<string, Map<string, number>>();

  constructor(most: number) {
    this.most = most;
  }

  note(id: string, digest: string, generation: number): void {
    const bodies = this.ids.get(id) ?? new Map<string, number>();
    bodies.set(digest, Math.max(generation, bodies.get(digest) ?? 0));
    this.ids.set(id, bodies);
    if (this.ids.size > this.most) this.ids.delete(this.ids.keys().next().value as string);
  }

  /** The highest generation; of one body where its digest is given (asked for only when the id is known); 0: none. */
  generation(id: string, digest?: () => string | undefined): number {
    const bodies = this.ids.get(id);
    if (bodies === undefined) return 0;
    const body = digest?.();
    return body === undefined ? Math.max(...bodies.values()) : (bodies.get(body) ?? 0);
  }

  /** True when a letter of this id is known, of exactly this generation where one is given. */
  has(id: string, generation?: number): boolean {
    const bodies = this.ids.get(id);
    if (bodies === undefined) return false;
    return generation === undefined || [...bodies.values()].includes(generation);
  }

  forget(id: string, digest: string): void {
    const bodies = this.ids.get(id);
    bodies?.delete(digest);
    if (bodies?.size === 0) this.ids.delete(id);
  }
}
