import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** State LISTEN in /proc/net/tcp. */
const LISTEN = "0A";

/**
 * Who listens on this TCP port of this machine, as far as can be known: `pid 4711 (beam.smp)`, or `a process of
 * user 999`, or null. Only Linux tells (/proc); of other users' processes it tells the user alone.
 */
export function whoListens(port: number): string | null {
  const sockets = listeningSockets(port);
  if (sockets.length === 0) return null;
  const links = new Set(sockets.map(({ inode }) => `socket:[${inode}]`));
  for (const pid of numeric("/proc")) {
    if (numeric(`/proc/${pid}/fd`).some((fd) => links.has(linkOf(`/proc/${pid}/fd/${fd}`)))) {
      return `pid ${pid} (${textOf(`/proc/${pid}/comm`).trim() || "unknown"})`;
    }
  }
  return `a process of user ${sockets[0]?.uid}`;
}

function listeningSockets(port: number): { inode: string; uid: string }[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const lines = ["/proc/net/tcp", "/proc/net/tcp6"].flatMap((file) => textOf(file).split("\n").slice(1));
  return lines.flatMap((line) => {
    // sl local remote st queues timer retransmits uid timeout inode ...
    const fields = line.trim().split(/\s+/);
    if (fields[3] !== LISTEN || !fields[1]?.endsWith(suffix)) return [];
    return [{ uid: fields[7] ?? "?", inode: fields[9] ?? "" }];
  });
}

// Processes come and go, and others' are closed to us: what cannot be read is not there.
function numeric(folder: string): string[] {
  try {
    return readdirSync(folder).filter((name) => /^\d+$/.test(name));
  } catch {
    return [];
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
