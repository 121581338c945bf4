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

/** One run of a job at a time. Asked for meanwhile it runs once more afterwards, where there is still reason to. */
export class OneAtATime {
  private running = false;
  private again = false;

  /** Rejects with what the job throws; who asked meanwhile is answered at once. */
  async run(job: () => Promise<void>, more: () => boolean): Promise<void> {
    this.again = this.running;
    if (this.running) return;
    this.running = true;
    try {
      do {
        this.again = false;
        await job();
      } while (this.again && more());
    } finally {
      this.running = false;
    }
  }
}
