import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { processStart } from "../../../src/engines/embedded/lock.ts";
import { openDatabase } from "../../../src/engines/embedded/sqlite.ts";
import { type DloError, openBroker } from "../../../src/index.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "dlo-file-"));
  file = join(folder, "data.db");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function refusal(path: string = file): DloError {
  try {
    openBroker({ file: path });
  } catch (error) {
    return error as DloError;
  }
  throw new Error("it opened");
}

async function filled(count = 50): Promise<void> {
  const broker = openBroker({ file });
  const bodies = Array.from({ length: count }, () => ({ body: "x".repeat(2000) }));
  await broker.queue("q").sendMany(bodies);
  await broker.close();
}

describe("a data file", () => {
  it("is refused with the holder's name while another process has it, and free when that one is killed", async () => {
    const main = pathToFileURL(join(import.meta.dirname, "../../../dist/engines/embedded/index.js")).href;
    const script = `const { openBroker } = await import(${JSON.stringify(main)});
      const broker = openBroker({ file: process.argv[1] }); await broker.queue("q").send("x");
      console.log("open"); setInterval(() => {}, 1000);`;
    const holder = spawn(process.execPath, ["--input-type=module", "-e", script, file], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(holder.stdout, "data");
    const refused = refusal();
    expect(refused.code).toBe("DATA_IN_USE");
    expect(refused.message).toContain(`process ${holder.pid}`);
    const closed = once(holder, "close");
    holder.kill("SIGKILL");
    await closed;
    await using broker = openBroker({ file });
    expect(broker.queue("q").pending()).toBe(1);
  });

  it("is refused to a second opener in the same process", async () => {
    await using _broker = openBroker({ file });
    expect(refusal()).toMatchObject({ code: "DATA_IN_USE" });
    expect(refusal().message).toContain(`pid ${process.pid}`);
  });

  it("is taken over from a dead process, and from a pid that another process has now", async () => {
    const gone = spawnSync(process.execPath, ["-e", ""]).pid;
    const lock = (pid: number, started: string | null) =>
      writeFileSync(`${file}.lock`, JSON.stringify({ pid, started, host: hostname(), openedAt: 1 }));
    await filled();
    lock(gone, null);
    await openBroker({ file }).close();
    lock(process.ppid, "another-boot/1");
    if (processStart(process.ppid) !== null) await openBroker({ file }).close();
    lock(process.ppid, processStart(process.ppid));
    expect(refusal()).toMatchObject({ code: "DATA_IN_USE" });
  });

  it("of a newer version is left alone", async () => {
    await filled();
    const db = openDatabase(file);
    db.exec("PRAGMA user_version = 99");
    db.close();
    unchangedBy(() => expect(refusal()).toMatchObject({ code: "DATA_NEWER" }));
  });

  it("of another program, or no database at all, is left alone", () => {
    const db = openDatabase(file);
    db.exec("CREATE TABLE theirs (a)");
    db.close();
    unchangedBy(() => expect(refusal()).toMatchObject({ code: "DATA_FOREIGN" }));
    writeFileSync(file, "Dear diary, ".repeat(1000));
    unchangedBy(() => expect(refusal()).toMatchObject({ code: "DATA_FOREIGN" }));
    expect(refusal(folder)).toMatchObject({ code: "DATA_FOREIGN" });
  });

  it("that was cut short, emptied, or overwritten in the middle is called damaged", async () => {
    await filled();
    const whole = readFileSync(file);
    for (const size of [0, 50, 4096, whole.length - 8192]) {
      writeFileSync(file, whole);
      truncateSync(file, size);
      unchangedBy(() => expect([size, refusal().code]).toEqual([size, "DATA_DAMAGED"]));
    }
    writeFileSync(file, Buffer.concat([whole.subarray(0, 100), Buffer.alloc(whole.length - 100, 7)]));
    expect(refusal()).toMatchObject({ code: "DATA_DAMAGED" });
  });

  it("that is gone while its log is there is not begun afresh", () => {
    writeFileSync(`${file}-wal`, "frames");
    expect(refusal()).toMatchObject({ code: "DATA_DAMAGED" });
    expect(existsSync(file)).toBe(false);
  });

  it("in a folder that cannot be written is refused", (context) => {
    const locked = join(folder, "locked");
    mkdirSync(locked, { mode: 0o500 });
    const main = pathToFileURL(join(import.meta.dirname, "../../../dist/engines/embedded/index.js")).href;
    const script = `const { openBroker } = await import(${JSON.stringify(main)});
      try { openBroker({ file: process.argv[1] }); console.log("opened") } catch (error) { console.log(error.code) }`;
    // Root may write anywhere: the child becomes nobody where that is needed.
    const user = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
    if ("uid" in user) spawnSync("chmod", ["755", folder]);
    const run = spawnSync(process.execPath, ["--input-type=module", "-e", script, join(locked, "data.db")], {
      encoding: "utf8",
      ...user,
    });
    if (run.status !== 0) return context.skip(`no child under another user: ${run.stderr.slice(0, 200)}`);
    expect(run.stdout.trim()).toBe("DATA_UNWRITABLE");
    expect(readdirSync(locked)).toEqual([]);
  });

  it("with no room refuses what is new, keeps what was confirmed, goes on reading, and goes on when there is room", async () => {
    const broker = openBroker({ file, clock: { now: Date.now } });
    const queue = broker.queue<string>("q");
    const alarms: string[][] = [];
    broker.host.onAlarm?.((now) => alarms.push([...now]));
    const { db } = (broker.host as unknown as { file: { db: ReturnType<typeof openDatabase> } }).file;
    db.exec("PRAGMA max_page_count = 60");
    const confirmed: string[] = [];
    let refused: DloError | undefined;
    for (let i = 0; i < 400 && refused === undefined; i++) {
      await queue.send("x".repeat(2000), `m${i}`).then(
        (id) => confirmed.push(id),
        (error) => (refused = error as DloError),
      );
    }
    expect(refused?.code).toBe("DISK_FULL");
    expect(broker.host.alarms?.()).toEqual(["disk"]);
    await expect(queue.send("more")).rejects.toMatchObject({ code: "DISK_FULL" });
    const first = queue.receive();
    expect(first?.id).toBe("m0");
    db.exec("PRAGMA max_page_count = 100000");
    await until(() => broker.host.alarms?.().length === 0);
    expect(alarms).toEqual([["disk"], []]);
    await queue.ack("m0", first?.receipt);
    await queue.send("after", "after");
    await broker.close();
    await using again = openBroker({ file });
    const ids = again
      .queue("q")
      .receiveMany(1000)
      .map((message) => message.id);
    for (const id of confirmed.slice(1)) expect(ids).toContain(id);
    expect(ids).not.toContain("m0");
    expect(ids.at(-1)).toBe("after");
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("on a real disk with no room says so, keeps what was confirmed, and goes on when the disk has grown", async (context) => {
    const mount = join(folder, "small");
    mkdirSync(mount);
    const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", mount]);
    if (mounted.status !== 0) return context.skip("needs the right to mount a small disk");
    try {
      const small = join(mount, "data.db");
      const broker = openBroker({ file: small });
      const confirmed: string[] = [];
      let code = "";
      for (let i = 0; i < 2000 && code === ""; i++)
        await broker
          .queue("q")
          .send("x".repeat(3000), `m${i}`)
          .then(
            (id) => confirmed.push(id),
            (error: DloError) => (code = error.code),
          );
      expect(code).toBe("DISK_FULL");
      spawnSync("mount", ["-o", "remount,size=30m", mount]);
      await until(() => broker.host.alarms?.().length === 0);
      await broker.close();
      const again = openBroker({ file: small });
      const ids = again
        .queue("q")
        .receiveMany(5000)
        .map((message) => message.id);
      expect(ids.slice(0, confirmed.length)).toEqual(confirmed);
      await again.close();
    } finally {
      spawnSync("umount", ["-l", mount]);
    }
  });

  it("closed on a full disk is opened again in the same process, as soon as there is room", async (context) => {
    const mount = join(folder, "small");
    mkdirSync(mount);
    const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", mount]);
    if (mounted.status !== 0) return context.skip("needs the right to mount a small disk");
    try {
      const small = join(mount, "data.db");
      const broker = openBroker({ file: small });
      const queue = broker.queue("q");
      const confirmed: string[] = [];
      let code = "";
      for (let i = 0; i < 2000 && code === ""; i++)
        await queue.send("x".repeat(3000), `m${i}`).then(
          (id) => confirmed.push(id),
          (error: DloError) => (code = error.code),
        );
      expect(code).toBe("DISK_FULL");
      await broker.close();
      // Twice: what the refused opening leaves must not be in the way either.
      expect(refusal(small).code).toBe("DISK_FULL");
      expect(refusal(small).code).toBe("DISK_FULL");
      spawnSync("mount", ["-o", "remount,size=30m", mount]);
      const again = openBroker({ file: small });
      const ids = again
        .queue("q")
        .receiveMany(5000)
        .map((message) => message.id);
      expect(ids.slice(0, confirmed.length)).toEqual(confirmed);
      await again.close();
      // Now it was closed for good: nothing keeps another process out.
      expect(readdirSync(mount)).toEqual(["data.db"]);
      rmSync(small);
      await openBroker({ file: small }).close();
    } finally {
      spawnSync("umount", ["-l", mount]);
    }
  });
});

function unchangedBy(work: () => void): void {
  const before = readFileSync(file);
  work();
  expect(readFileSync(file).equals(before)).toBe(true);
}

async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !holds(); i++) await new Promise((done) => setTimeout(done, 10));
}
