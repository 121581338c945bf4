import { PassThrough, Readable } from "node:stream";
import { expect, it } from "vitest";
import { runDoctor } from "../../../src/cli/doctor.ts";
import type { Report } from "../../../src/topology/index.ts";
import { management, needVhost } from "../../support/rabbitmq-node.ts";
import { b, doc, operator, p, q, x } from "../../unit/topology/build.ts";

it("dlo doctor on a live broker: what an export would show, the tie settled, with the management tag alone", async (ctx) => {
  const vhost = await needVhost(ctx, "doctor");
  if (vhost.managementUrl === null || vhost.name === null) return ctx.skip("needs the management API");
  const all = doc(
    x("dlx", "fanout"),
    q("work"),
    q("broken", { dlx: "gone" }),
    q("dlq"),
    b("dlx -> dlq"),
    p("a", "^work$", { "dead-letter-exchange": "dlx" }),
    p("c", "^work$", { "dead-letter-exchange": "dlx", "max-length": 5 }),
    operator("cap", "^work$", { "message-ttl": 60_000 }),
  );
  const here = JSON.parse(JSON.stringify(all), (key, value) => (key === "vhost" ? undefined : value));
  const name = encodeURIComponent(vhost.name);
  await management(vhost, "POST", `/api/definitions/${name}`, { ...here, vhosts: undefined });
  const user = `doctor-${vhost.name}`;
  await management(vhost, "PUT", `/api/users/${user}`, { password: "pw", tags: "management" });
  try {
    await management(vhost, "PUT", `/api/permissions/${name}/${user}`, {
      configure: "",
      write: "",
      read: "",
    });
    const at = new URL(vhost.managementUrl);
    const stdout = new PassThrough();
    const stderr = new PassThrough().resume();
    let out = "";
    stdout.on("data", (chunk) => (out += chunk));
    const io = {
      stdin: Readable.from([]),
      stdout,
      stderr,
      env: {},
      cwd: "/",
      signal: new AbortController().signal,
    };
    const url = `http://${user}:pw@${at.host}`;
    expect(await runDoctor(io, url, { json: true, vhost: vhost.name })).toBe(10);
    const report = JSON.parse(out) as Report;
    const ends = Object.fromEntries(
      report.queues.map((queue) => [
        queue.queue,
        queue.letters.map((letter) => `${letter.reason} ${letter.ends} ${letter.at}`),
      ]),
    );
    expect(ends["broken"]).toEqual(["rejected nowhere gone"]);
    expect(ends["work"]).toContain("rejected queue dlq");
    expect(ends["work"]).toContain("expired queue dlq");
    expect(report.queues.find((queue) => queue.queue === "work")!.settings["ttl"]!.value).toBe(60_000);
    expect(out).not.toContain(user);
  } finally {
    await management(vhost, "DELETE", `/api/users/${user}`);
  }
});
