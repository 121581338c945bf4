// Private servers for the bench: in folders of their own, on sockets of their own, gone with the run.
import { execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

/** Something a peer needs is not installed. */
export class Missing extends Error {}

function binary(name, folders = []) {
  for (const folder of [...(process.env.PATH ?? "").split(delimiter), ...folders]) {
    if (existsSync(join(folder, name))) return join(folder, name);
  }
  throw new Missing(`${name} is not installed`);
}

function postgresFolders() {
  const debian = "/usr/lib/postgresql";
  return existsSync(debian) ? readdirSync(debian).map((version) => join(debian, version, "bin")) : [];
}

/** PostgreSQL refuses to run as root: somebody without rights is asked to. */
function somebody() {
  if (process.getuid?.() !== 0) return {};
  for (const user of ["postgres", "nobody"]) {
    try {
      const id = (flag) => Number(execFileSync("id", [flag, user], { stdio: ["ignore", "pipe", "ignore"] }));
      return { uid: id("-u"), gid: id("-g") };
    } catch {
      // Not on this machine.
    }
  }
  throw new Missing("no user to run PostgreSQL as");
}

async function up(server, ready, log) {
  for (let n = 0; n < 300; n++) {
    if (server.exitCode !== null) throw new Error(`the server ended: ${log()}`);
    if (ready()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`the server does not come up: ${log()}`);
}

function started(file, args, options, folder) {
  const server = spawn(file, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [server.stdout, server.stderr]) {
    stream.on("data", (chunk) => {
      said = (said + chunk).slice(-4_000);
    });
  }
  const kill = () => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  process.once("exit", kill);
  return {
    server,
    said: () => said,
    async stop(signal) {
      process.off("exit", kill);
      const gone = new Promise((done) => server.once("exit", done));
      if (server.exitCode === null && server.signalCode === null) {
        server.kill(signal);
        await gone;
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A PostgreSQL with fsync on, as it comes. Answers how to connect. */
export async function startPostgres() {
  const initdb = binary("initdb", postgresFolders());
  const postgres = binary("postgres", postgresFolders());
  const who = somebody();
  const folder = mkdtempSync(join(tmpdir(), "dlo-pg-"));
  if (who.uid !== undefined) chownSync(folder, who.uid, who.gid);
  const data = join(folder, "data");
  execFileSync(initdb, ["-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8"], { ...who, stdio: "ignore" });
  const settings = { listen_addresses: "", unix_socket_directories: folder, port: 5432, max_connections: 60 };
  const args = Object.entries(settings).flatMap(([key, value]) => ["-c", `${key}=${value}`]);
  const run = started(postgres, ["-D", data, ...args], who, folder);
  await up(
    run.server,
    () => existsSync(join(folder, ".s.PGSQL.5432")) && /ready to accept/.test(run.said()),
    run.said,
  );
  return {
    connection: { host: folder, port: 5432, user: "bench", database: "postgres" },
    stop: () => run.stop("SIGINT"),
  };
}

/** A Redis that has every write on disk before it answers. */
export async function startRedis() {
  const redis = binary("redis-server");
  const folder = mkdtempSync(join(tmpdir(), "dlo-redis-"));
  const socket = join(folder, "redis.sock");
  const settings = {
    port: 0,
    unixsocket: socket,
    dir: folder,
    appendonly: "yes",
    appendfsync: "always",
    save: "",
  };
  const args = Object.entries(settings).flatMap(([key, value]) => [`--${key}`, String(value)]);
  const run = started(redis, args, {}, folder);
  await up(run.server, () => existsSync(socket) && /ready to accept/.test(run.said()), run.said);
  return { socket, stop: () => run.stop("SIGTERM") };
}
