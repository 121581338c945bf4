import { connect, createServer, type Server, type Socket } from "node:net";

/** A TCP proxy a test can cut, freeze and mend, on a loopback port of its own. */
export interface TcpProxy {
  /** `host:port` of the target in `url` replaced by the proxy's. */
  through(url: string): string;
  /** Resets every connection, the target's side so many ms later; new ones are refused while `down`. */
  cut(farLaterMs?: number): void;
  down: boolean;
  /** While frozen nothing passes in either direction, and nobody is told. */
  frozen: boolean;
  thaw(): void;
  readonly connections: number;
  close(): Promise<void>;
}

export async function tcpProxy(target: string): Promise<TcpProxy> {
  const at = new URL(target);
  const pairs = new Set<[Socket, Socket]>();
  const server: Server = createServer((near) => {
    if (proxy.down) {
      near.resetAndDestroy();
      return;
    }
    const far = connect(Number(at.port || 5672), at.hostname);
    const pair: [Socket, Socket] = [near, far];
    pairs.add(pair);
    for (const [from, to] of [pair, [far, near]] as [Socket, Socket][]) {
      from.setNoDelay(true);
      from.on("data", (bytes) => {
        to.write(bytes);
        if (proxy.frozen) from.pause();
      });
      from.on("error", () => {});
      from.on("close", () => {
        if (pairs.delete(pair)) to.destroy();
      });
    }
    if (proxy.frozen) for (const side of pair) side.pause();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  let frozen = false;
  const proxy: TcpProxy = {
    down: false,
    get frozen() {
      return frozen;
    },
    set frozen(value: boolean) {
      frozen = value;
      for (const pair of pairs) for (const side of pair) value ? side.pause() : side.resume();
    },
    through(url) {
      const own = new URL(url);
      own.hostname = "127.0.0.1";
      own.port = String(port);
      return own.href;
    },
    cut(farLaterMs = 0) {
      const gone = [...pairs];
      pairs.clear();
      for (const [near] of gone) near.resetAndDestroy();
      const hangUp = (): void => {
        for (const [, far] of gone) far.resetAndDestroy();
      };
      if (farLaterMs > 0) setTimeout(hangUp, farLaterMs);
      else hangUp();
    },
    thaw() {
      proxy.frozen = false;
    },
    get connections() {
      return pairs.size;
    },
    async close() {
      proxy.cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}
