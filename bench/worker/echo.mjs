// The bare channel: answers every message with the smallest possible one.
process.on("message", () => process.send(0));
