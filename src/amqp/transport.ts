/** The socket, as a connection sees it. */
export interface Transport {
  readonly remoteAddress: string | undefined;
  /** Bytes given to {@link write} that the peer has not taken yet. */
  readonly waiting: number;
  write(pieces: readonly Uint8Array[]): void;
  /** No more reading until {@link resume}. */
  pause(): void;
  resume(): void;
  /** Lets what was written go out, then closes. */
  end(): void;
  /** Cuts at once. */
  destroy(): void;
}
