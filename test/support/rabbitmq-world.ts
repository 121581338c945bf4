import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectRabbitMQ, type Ledger, openLedger } from "../../src/engines/rabbitmq/index.ts";
import type { ConformanceProcess, ConformanceWorld } from "../../src/testing/index.ts";
import { tcpProxy } from "./tcp-proxy.ts";

export interface RabbitWorldOptions {
  readonly type: "quorum" | "classic";
  readonly ledger?: boolean;
  readonly prefetch?: number;
}

/** A fresh work queue with everything around it, for the conformance suites; processes die by their TCP connection. */
export async function rabbitWorld(
  url: string,
  queue: string,
  options: RabbitWorldOptions,
): Promise<ConformanceWorld> {
  const delays = [300];
  const setUp = await connectRabbitMQ({ url });
  await setUp.setUpTopology({ queue, type: options.type, delays });
  const dir = options.ledger ? await mkdtemp(join(tmpdir(), "dlo-ledger-")) : null;
  const ends: (() => unknown)[] = [];
  return {
    process: async (): Promise<ConformanceProcess> => {
      const proxy = await tcpProxy(url);
      const rabbit = await connectRabbitMQ({ url: proxy.through(url) });
      const ledger: Ledger | null = dir ? await openLedger(join(dir, "starts.db")) : null;
      ends.push(async () => {
        await rabbit.close();
        await ledger?.close();
        await proxy.close();
      });
      return {
        queue: rabbit.queue(queue, {
          type: options.type,
          delays,
          ...(ledger ? { ledger } : {}),
          ...(options.prefetch ? { prefetch: options.prefetch } : {}),
        }),
        deadLetters: rabbit.deadLetters(`${queue}.dead`),
        crash: () => {
          proxy.down = true;
          proxy.cut();
        },
      };
    },
    wait: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    close: async () => {
      await Promise.all(ends.map((end) => end()));
      await setUp.close();
      if (dir) await rm(dir, { recursive: true });
    },
  };
}
