// A broker stays awake for a moment after each message. Without messages it must sleep.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import amqplib from "amqplib";
import { expect, it } from "vitest";

const SERVER = `
const { startBroker } = await import(${JSON.stringify(join(import.meta.dirname, "../../../dist/dev/index.js"))});
const server = await startBroker();
console.log(server.url);
// Each line asks how much of the next second was spent on the processor, in thousandths.
process.stdin.on("data", () => {
  const before = process.cpuUsage();
  setTimeout(() => {
    const { user, system } = process.cpuUsage(before);
    console.log(Math.ceil((user + system) / 1000));
  }, 1000);
});
`;

it("uses no processor while its clients are silent", { timeout: 30_000 }, async () => {
  const child = spawn(process.execPath, ["--input-type=module", "-e", SERVER], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  try {
    const line = async (): Promise<string> => String((await once(child.stdout, "data"))[0]).trim();
    const connection = await amqplib.connect(await line());
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue("q");
    for (let i = 0; i < 20; i++) {
      channel.sendToQueue("q", Buffer.from("x"), { persistent: true });
      await channel.waitForConfirms();
    }
    // The engine's own tidying up after the start is over in one of these.
    const used: number[] = [];
    for (let i = 0; i < 6 && !used.some((ms) => ms < 10); i++) {
      const answer = line();
      child.stdin.write("\n");
      used.push(Number(await answer));
    }
    expect(Math.min(...used)).toBeLessThan(10);
    await connection.close();
  } finally {
    child.kill("SIGKILL");
  }
});
