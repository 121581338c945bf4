import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { connectRabbitMQ } from "../../../src/engines/rabbitmq/index.ts";
import { management, needRabbit, needVhost } from "../../support/rabbitmq-node.ts";
import { writeHandler } from "./handlers.ts";
import { MAIN, Running } from "./spawn.ts";

/** A folder of the test's own with the handler in it. */
function handlerFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "dlo-rabbit-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeHandler(folder);
  return folder;
}

async function connected(url: string): ReturnType<typeof connectRabbitMQ> {
  const rabbit = await connectRabbitMQ({ url });
  onTestFinished(() => rabbit.close());
  return rabbit;
}

it("dlo work --url handles a RabbitMQ's queue and moves aside there what fails", async (ctx) => {
  const vhost = await needVhost(ctx);
  const folder = handlerFolder();
  const rabbit = await connected(vhost.url);
  await rabbit.setUpTopology({ queue: "orders" });
  const queue = rabbit.queue("orders");
  await queue.send({ id: "good", body: { do: "nothing" } });
  await queue.send({ id: "bad", body: { do: "permanent", price: -1 } });
  const worker = new Running(
    [MAIN, "work", "--queue", "orders", "--handler", "handler.mjs", "--until-empty"],
    {
      cwd: folder,
      env: { DLO_URL: vhost.url },
    },
  );
  onTestFinished(() => void worker.process.kill("SIGKILL"));
  expect(await worker.ended).toMatchObject({
    status: 0,
    err: expect.stringMatching(
      /message bad is dead \(permanent\): PermanentError: negative price -1[\s\S]*handled 1, retried 0, dead 1/,
    ),
  });
  expect(readFileSync(join(folder, "seen.log"), "utf8")).toContain("end good");
  expect(await rabbit.deadLetters("orders.dead").list()).toMatchObject([{ id: "bad", reason: "permanent" }]);
});

it("dlo work --url --refuse-lossy asks the management API, and does not start where a policy drops letters", async (ctx) => {
  const vhost = await needVhost(ctx);
  const server = await needRabbit(ctx);
  if (!vhost.managementUrl) ctx.skip("no management API: the policy cannot be set");
  const folder = handlerFolder();
  const work = async () => {
    const worker = new Running(
      [
        MAIN,
        "work",
        "--queue",
        "orders",
        "--handler",
        "handler.mjs",
        "--until-empty",
        "--refuse-lossy",
        vhost.managementUrl as string,
      ],
      { cwd: folder, env: { DLO_URL: vhost.url } },
    );
    onTestFinished(() => void worker.process.kill("SIGKILL"));
    return worker.ended;
  };
  const first = await work();
  expect(first.err).toContain("handled 0");
  expect(first.status).toBe(0);
  await management(server, "PUT", `/api/policies/${vhost.name}/short-lived`, {
    pattern: "^orders\\.dead$",
    definition: { "message-ttl": 60_000 },
    "apply-to": "queues",
  });
  const refused = await work();
  expect(refused.status).toBe(6);
  expect(refused.err).toMatch(/^dlo: queue 'orders\.dead': /m);
});

it("dlo work --url takes a queue with the limit it has, and is refused with both numbers where it asks for more", async (ctx) => {
  const vhost = await needVhost(ctx);
  const folder = handlerFolder();
  const rabbit = await connected(vhost.url);
  await rabbit.setUpTopology({ queue: "orders", deliveryLimit: 3 });
  const work = async (...more: string[]) => {
    const args = [MAIN, "work", "--queue", "orders", "--handler", "handler.mjs", "--until-empty", ...more];
    const worker = new Running(args, { cwd: folder, env: { DLO_URL: vhost.url } });
    onTestFinished(() => void worker.process.kill("SIGKILL"));
    return worker.ended;
  };
  expect((await work("--max-attempts", "3")).status).toBe(0);
  const refused = await work("--max-attempts", "4");
  expect(refused.err).toMatch(/^dlo: queue 'orders' has delivery limit 3, the consumer maxAttempts 4/m);
  expect(refused.status).toBe(6);
  if (!vhost.managementUrl) return;
  const server = await needRabbit(ctx);
  await management(server, "PUT", `/api/policies/${vhost.name}/low`, {
    pattern: "^orders$",
    "apply-to": "queues",
    definition: { "delivery-limit": 2 },
  });
  // The API tells a queue's policy with its next report.
  const told = () => management(server, "GET", `/api/queues/${vhost.name}/orders`);
  const inForce = { effective_policy_definition: { "delivery-limit": 2 } };
  await expect.poll(told, { timeout: 20_000, interval: 250 }).toMatchObject(inForce);
  const byPolicy = await work("--max-attempts", "3", "--refuse-lossy", vhost.managementUrl);
  expect(byPolicy.err).toMatch(/^dlo: .*delivery limit 2, the consumer maxAttempts 3/m);
  expect(byPolicy.status).toBe(6);
});

it("dlo work --url beside a worker with other max attempts is refused with both numbers, and starts when that has died", async (ctx) => {
  const vhost = await needVhost(ctx);
  const folder = handlerFolder();
  const rabbit = await connected(vhost.url);
  await rabbit.setUpTopology({ queue: "orders" });
  const work = (...more: string[]): Running => {
    const args = [MAIN, "work", "--queue", "orders", "--handler", "handler.mjs", ...more];
    const worker = new Running(args, { cwd: folder, env: { DLO_URL: vhost.url } });
    onTestFinished(() => void worker.process.kill("SIGKILL"));
    return worker;
  };
  const first = work("--max-attempts", "3");
  await rabbit.queue("orders").send({ id: "x", body: { do: "nothing" } });
  const seen = () =>
    existsSync(join(folder, "seen.log")) ? readFileSync(join(folder, "seen.log"), "utf8") : "";
  await expect.poll(seen, { timeout: 20_000 }).toContain("end x");
  const refused = await work("--max-attempts", "4", "--until-empty").ended;
  expect(refused.err).toMatch(/^dlo: queue 'orders' has consumers with maxAttempts 3, this one asks for 4/m);
  expect(refused.status).toBe(6);
  first.process.kill("SIGKILL");
  await first.ended;
  expect((await work("--max-attempts", "4", "--until-empty").ended).status).toBe(0);
});

it("dlo work --url says in one line when nobody is there, without the password", async () => {
  const folder = handlerFolder();
  const worker = new Running([MAIN, "work", "--queue", "orders", "--handler", "handler.mjs"], {
    cwd: folder,
    env: { DLO_URL: "amqp://user:secret@127.0.0.1:1" },
  });
  const ended = await worker.ended;
  expect(ended.status).toBe(5);
  expect(ended.err).toMatch(/^dlo: .*127\.0\.0\.1:1.*\n$/);
  expect(ended.err).not.toContain("secret");
});
