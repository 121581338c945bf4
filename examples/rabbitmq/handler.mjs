/** Handles one order. Runs in a child process of the consumer. */
export default function handle(message, { attempt }) {
  const { item, price, flaky, poison } = message.body;
  if (poison) process.kill(process.pid, "SIGKILL");
  if (price < 0) throw Object.assign(new Error(`price of ${item} is ${price}`), { name: "PermanentError" });
  if (flaky && attempt === 1) throw new Error(`the price list does not answer for ${item}`);
}
