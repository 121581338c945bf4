export default async function handler(message) {
  if (message.body === "die") process.kill(process.pid, "SIGKILL");
  if (message.body === "loop") for (;;);
}
