/** Those who wait for something to happen. */
export class Wakers {
  private readonly waiting = new Set<() => void>();

  wake(): void {
    for (const waker of [...this.waiting]) waker();
  }

  /** Resolves at the next `wake`, or when the signal aborts. */
  next(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal.removeEventListener("abort", done);
        this.waiting.delete(done);
        resolve();
      };
      this.waiting.add(done);
      signal.addEventListener("abort", done);
    });
  }
}
