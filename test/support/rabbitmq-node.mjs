// A RabbitMQ for tests and benches: the one DLO_RABBITMQ_URL names, or a private node of our own.
//
// A private node never touches a machine-wide service: own node name, own ports, own epmd, own cookie and
// directories under the temp folder, loopback only. Between us and the node stands a keeper, a small process that
// starts the node and takes it away again when whoever needed it is gone, however that one ended (SIGKILL too).
//
//   this process --fork--> keeper --spawn--> epmd, rabbitmq-server (beam)
//
// The shared node belongs to a test run (the pid of vitest's main process): the first file that asks starts it,
// the others wait for its ready.json, and its keeper watches the run's pid.
import { fork, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const NO_RABBITMQ = "RabbitMQ not found: set DLO_RABBITMQ_URL or install rabbitmq-server";

const SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const SELF = fileURLToPath(import.meta.url);
const READY_MS = 120_000; // a cold start is 6 s here; slow, busy machines need many times that
const PREFIX = "dlo-rabbit-";

/** True when tests against a real RabbitMQ can run here. */
export function haveRabbit() {
  return Boolean(process.env.DLO_RABBITMQ_URL) || existsSync(SERVER);
}

/** The RabbitMQ of this test run, started on first use; null when there is none. */
export async function sharedRabbit() {
  const given = process.env.DLO_RABBITMQ_URL;
  if (given) return { url: given, managementUrl: process.env.DLO_RABBITMQ_MANAGEMENT_URL ?? null };
  if (!existsSync(SERVER)) return null;
  // Vitest's forks share its main process; a bench or a script is a run of its own.
  const run = process.env.VITEST_WORKER_ID === undefined ? process.pid : process.ppid;
  const dir = join(tmpdir(), `${PREFIX}run-${run}-${startTimeOf(run)}`);
  let first = true;
  try {
    mkdirSync(dir);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    first = false;
  }
  if (first) {
    sweep();
    spawn(process.execPath, [SELF, JSON.stringify({ dir, watch: run })], {
      detached: true,
      stdio: "ignore",
      env: keeperEnv(),
    }).unref();
  }
  return await whenReady(dir);
}

async function whenReady(dir) {
  const until = Date.now() + READY_MS;
  while (Date.now() < until) {
    const ready = readJson(join(dir, "ready.json"));
    if (ready) return ready;
    const failed = readJson(join(dir, "failed.json"));
    if (failed) throw new Error(`the test node of RabbitMQ did not start: ${failed.error}`);
    await sleep(100);
  }
  throw new Error(`the test node of RabbitMQ was not ready after ${READY_MS} ms (${dir})`);
}

/**
 * A node for one test alone, to be killed and restarted at will; null when rabbitmq-server is not installed (also
 * when DLO_RABBITMQ_URL is set: that server is not ours to kill). `conf` is appended to rabbitmq.conf, `advanced` is
 * an Erlang term for what that file has no key for, `plugins` are enabled beside the management plugin.
 */
export async function startPrivateRabbit(options = {}) {
  if (!existsSync(SERVER)) return null;
  sweep();
  const dir = join(
    tmpdir(),
    `${PREFIX}own-${process.pid}-${startTimeOf(process.pid)}-${Math.random().toString(36).slice(2, 8)}`,
  );
  mkdirSync(dir);
  const keeper = fork(SELF, [JSON.stringify({ dir, ...options })], {
    stdio: "ignore",
    env: keeperEnv(),
  });
  const replies = new Map();
  let next = 1;
  keeper.on("message", (reply) => {
    const waiter = replies.get(reply.re);
    replies.delete(reply.re);
    if (reply.error) waiter?.reject(new Error(reply.error));
    else waiter?.resolve(reply.value);
  });
  keeper.on("exit", () => {
    for (const waiter of replies.values())
      waiter.reject(new Error("the keeper of the private node has gone"));
    replies.clear();
  });
  const ask = (command, ...args) =>
    new Promise((resolve, reject) => {
      const id = next++;
      replies.set(id, { resolve, reject });
      keeper.send({ id, command, args });
    });
  const where = await ask("start");
  return {
    ...where,
    dir,
    kill9: () => ask("kill9"),
    stop: () => ask("stop"),
    start: () => ask("start"),
    ctl: (...args) => ask("ctl", ...args),
    async restart() {
      await ask("kill9");
      await ask("start");
    },
    async close() {
      if (keeper.exitCode !== null || keeper.signalCode !== null) return;
      const gone = new Promise((resolve) => keeper.once("exit", resolve));
      keeper.send({ id: 0, command: "close" });
      await gone;
    },
  };
}

/**
 * A virtual host of the caller's own on `server`, so that names never meet. Without a management URL the given
 * virtual host is used as it is, and only unique names keep tests apart.
 */
export async function freshVhost(server, label = "t") {
  if (!server.managementUrl)
    return { url: server.url, name: null, managementUrl: null, drop: async () => {} };
  const name = uniqueName(label);
  const at = new URL(server.url);
  await management(server, "PUT", `/api/vhosts/${name}`);
  const user = decodeURIComponent(at.username || "guest");
  await management(server, "PUT", `/api/permissions/${name}/${encodeURIComponent(user)}`, {
    configure: ".*",
    write: ".*",
    read: ".*",
  });
  at.pathname = `/${name}`;
  return {
    url: at.href,
    name,
    managementUrl: server.managementUrl,
    drop: async () => {
      await management(server, "DELETE", `/api/vhosts/${name}`);
    },
  };
}

/** A name nobody else uses. */
export function uniqueName(label = "t") {
  return `${label}-${process.pid.toString(36)}-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 7)}`;
}

/** One call of the management API; answers the JSON body or null, throws with status and path otherwise. */
export async function management(server, method, path, body) {
  const at = new URL(path, server.managementUrl);
  const amqp = new URL(server.url);
  const own = new URL(server.managementUrl);
  const user = decodeURIComponent(own.username || amqp.username || "guest");
  const password = decodeURIComponent(own.password || amqp.password || "guest");
  at.username = "";
  at.password = "";
  const response = await fetch(at, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`,
      "content-type": "application/json",
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 200)}`);
  return text === "" ? null : JSON.parse(text);
}

// ---------------------------------------------------------------- the keeper

async function keep({ dir, watch, conf = "", advanced = "[]", plugins = [] }) {
  const node = makeNode(dir, conf, advanced, ["rabbitmq_management", ...plugins]);
  let closing = false;
  const close = async () => {
    if (closing) return;
    closing = true;
    await node.kill9().catch(() => {});
    node.killEpmd();
    rmSync(dir, { recursive: true, force: true });
    process.exit(0);
  };
  process.on("SIGTERM", close);
  process.on("SIGINT", () => {}); // Ctrl-C reaches the whole group; we go when the run goes
  writeFileSync(
    join(dir, "keeper.json"),
    JSON.stringify({ pid: process.pid, start: startTimeOf(process.pid) }),
  );
  if (watch !== undefined) {
    const born = startTimeOf(watch);
    setInterval(() => {
      if (startTimeOf(watch) !== born) void close();
    }, 300);
    try {
      writeAtomic(join(dir, "ready.json"), await node.start());
    } catch (error) {
      writeAtomic(join(dir, "failed.json"), { error: String(error?.message ?? error) });
    }
    return;
  }
  process.on("disconnect", close);
  process.on("message", async ({ id, command, args = [] }) => {
    if (command === "close") return void close();
    try {
      process.send({ re: id, value: await node[command](...args) });
    } catch (error) {
      if (process.connected) process.send({ re: id, error: String(error?.message ?? error) });
    }
  });
}

function makeNode(dir, conf, advanced, plugins) {
  let beam = null;
  let epmd = null;
  let ports = null;
  const at = (...parts) => join(dir, ...parts);

  async function start() {
    if (beam && beam.exitCode === null && beam.signalCode === null) throw new Error("already running");
    ports ??= await freePorts(4);
    const [amqp, http, , epmdPort] = ports;
    const server = {
      url: `amqp://guest:guest@127.0.0.1:${amqp}/`,
      managementUrl: `http://127.0.0.1:${http}`,
    };
    for (const name of ["home", "mnesia", "log", "conf"]) mkdirSync(at(name), { recursive: true });
    writeFileSync(
      at("conf", "rabbitmq.conf"),
      [
        `listeners.tcp.1 = 127.0.0.1:${amqp}`,
        "management.tcp.ip = 127.0.0.1",
        `management.tcp.port = ${http}`,
        "disk_free_limit.absolute = 1MB", // a full CI disk must not raise an alarm that blocks publishers
        "vm_memory_high_watermark.absolute = 2GB",
        "collect_statistics_interval = 1000",
        "log.file.level = warning",
        conf,
        "",
      ].join("\n"),
    );
    writeFileSync(at("conf", "advanced.config"), `${advanced}.\n`);
    writeFileSync(at("conf", "enabled_plugins"), `[${plugins.join(",")}].\n`);
    if (!epmd) {
      epmd = spawn("epmd", ["-address", "127.0.0.1", "-port", String(epmdPort)], { stdio: "ignore" });
      epmd.on("error", () => {});
    }
    const env = environment();
    rmSync(at("pid"), { force: true });
    // A group of its own, so that killing it takes the shell, the beam and its port helpers together.
    beam = spawn(SERVER, [], { env, cwd: dir, stdio: "ignore", detached: true });
    let died = null;
    beam.on("error", (error) => (died = String(error.message)));
    beam.on("exit", (code, signal) => (died ??= `rabbitmq-server ended (${signal ?? code})`));
    writeFileSync(at("beam.json"), JSON.stringify({ pid: beam.pid, epmd: epmd.pid }));
    const until = Date.now() + READY_MS;
    while (Date.now() < until) {
      if (died) throw new Error(`${died}; ${tailOfLog(at("log"))}`);
      try {
        const overview = await management(server, "GET", "/api/overview");
        if (overview?.listeners?.some?.((one) => one.protocol === "amqp")) {
          return { ...server, version: overview.rabbitmq_version };
        }
      } catch {}
      await sleep(100);
    }
    throw new Error("not ready in time");
  }

  function environment() {
    const [amqp, , dist, epmdPort] = ports;
    return {
      PATH: process.env.PATH,
      LANG: process.env.LANG ?? "C.UTF-8",
      HOME: at("home"),
      RABBITMQ_NODENAME: `dlo-${amqp}@localhost`,
      RABBITMQ_DIST_PORT: String(dist),
      ERL_EPMD_PORT: String(epmdPort),
      ERL_EPMD_ADDRESS: "127.0.0.1",
      RABBITMQ_MNESIA_BASE: at("mnesia"),
      RABBITMQ_LOG_BASE: at("log"),
      RABBITMQ_CONFIG_FILE: at("conf", "rabbitmq.conf"),
      RABBITMQ_ADVANCED_CONFIG_FILE: at("conf", "advanced.config"),
      RABBITMQ_CONF_ENV_FILE: at("conf", "none"),
      RABBITMQ_ENABLED_PLUGINS_FILE: at("conf", "enabled_plugins"),
      RABBITMQ_PID_FILE: at("pid"),
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS:
        "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
    };
  }

  /** `rabbitmqctl ARGS` against this node; answers what it printed. */
  async function ctl(...args) {
    const child = spawn(join(dirname(SERVER), "rabbitmqctl"), args, { env: environment(), cwd: dir });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (text += chunk));
    const code = await new Promise((resolve, reject) => child.once("error", reject).once("close", resolve));
    if (code !== 0)
      throw new Error(`rabbitmqctl ${args.join(" ")} ended with ${code}: ${text.slice(0, 300)}`);
    return text;
  }

  const gone = () =>
    new Promise((resolve) => {
      if (!beam || beam.exitCode !== null || beam.signalCode !== null) resolve();
      else beam.once("exit", () => resolve());
    });

  /** Kills the whole group and waits until the Erlang process is no more, so that ports and files are free. */
  async function kill9() {
    if (!beam) return;
    const erlang = Number(readText(at("pid")));
    const ended = gone();
    killGroup(beam.pid, "SIGKILL");
    await ended;
    while (erlang > 1 && startTimeOf(erlang) !== "0") await sleep(20);
  }

  return {
    start,
    ctl,
    kill9,
    async stop() {
      if (!beam) return;
      const pid = Number(readText(at("pid")));
      const ended = gone();
      if (pid > 1) process.kill(pid, "SIGTERM");
      await Promise.race([ended, sleep(30_000)]);
      await kill9();
    },
    killEpmd() {
      epmd?.kill("SIGKILL");
    },
  };
}

function killGroup(pid, signal) {
  try {
    process.kill(-pid, signal);
  } catch {} // gone already
}

// ---------------------------------------------------------------- leftovers and little things

/** Takes away what a keeper that was itself killed has left behind: only nodes whose directory is ours. */
function sweep() {
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue;
    const dir = join(tmpdir(), name);
    const keeper = readJson(join(dir, "keeper.json"));
    if (!keeper || startTimeOf(keeper.pid) === keeper.start) continue;
    const beam = readJson(join(dir, "beam.json"));
    const isOurs = (pid, word) => readText(`/proc/${pid}/cmdline`).includes(word);
    const erlang = Number(readText(join(dir, "pid")));
    if (erlang > 1 && isOurs(erlang, dir)) killGroup(beam?.pid ?? erlang, "SIGKILL");
    if (beam?.epmd && isOurs(beam.epmd, "epmd")) {
      try {
        process.kill(beam.epmd, "SIGKILL");
      } catch {}
    }
    rmSync(dir, { recursive: true, force: true });
  }
}

/** A pid alone can be another process by now; with its start time it is one process. "0" when there is none. */
function startTimeOf(pid) {
  const stat = readText(`/proc/${pid}/stat`);
  if (stat !== "") {
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? "0" : (fields[19] ?? "0");
  }
  if (existsSync("/proc/self/stat")) return "0";
  try {
    process.kill(pid, 0);
    return "1";
  } catch {
    return "0";
  }
}

async function freePorts(count) {
  const servers = [];
  for (let i = 0; i < count; i++) {
    const server = createServer();
    await new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen(0, "127.0.0.1", resolve);
    });
    servers.push(server);
  }
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** What the keeper and the node need; the run's coverage and loader settings stay outside. */
function keeperEnv() {
  const env = { ...process.env };
  for (const name of Object.keys(env)) {
    if (name.startsWith("VITEST") || name.startsWith("NODE_") || name.startsWith("RABBITMQ_"))
      delete env[name];
  }
  return env;
}

function tailOfLog(dir) {
  try {
    const name = readdirSync(dir).find((one) => one.endsWith(".log") && !one.includes("upgrade"));
    return name ? readFileSync(join(dir, name), "utf8").slice(-500) : "no log";
  } catch {
    return "no log";
  }
}

function readText(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return null;
  }
}

function writeAtomic(path, value) {
  writeFileSync(`${path}.new`, JSON.stringify(value));
  renameSync(`${path}.new`, path);
}

if (process.argv[1] === SELF) await keep(JSON.parse(process.argv[2]));
