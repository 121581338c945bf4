// The receiver: an HTTP server on loopback that is flaky in the same way on every run. It refuses every fourth message
// (by its id) the first time, and all sponsorship events until it is mended. What it answered is kept in a file, so
// that an interrupted run goes on as if it had not been; a message that comes twice is recognised by its id.
import { createHash } from "node:crypto";
import { once } from "node:events";
import { appendFileSync, closeSync, ftruncateSync, openSync, readFileSync } from "node:fs";
import { createServer } from "node:http";

/** Every fourth message, by a hash of its id. */
const isShaky = (id) => createHash("sha256").update(id).digest()[0] % 4 === 0;

/** What the receiver remembers: ids it accepted, and ids it refused at least once. */
export function readJournal(file) {
  const accepted = new Set();
  const refused = new Set();
  let twice = 0;
  let text = "";
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
  }
  // A kill can leave half a line at the end; whoever wrote it got no answer, so it does not count.
  const lines = text.split("\n");
  lines.pop();
  for (const line of lines) {
    const [answer, id] = line.split("\t");
    if (answer === "200" && accepted.has(id)) twice += 1;
    (answer === "200" ? accepted : refused).add(id);
  }
  return { accepted, refused, twice, whole: Buffer.byteLength(text.slice(0, text.lastIndexOf("\n") + 1)) };
}

/** Starts the receiver on a free port. `fixed`: it refuses nothing any more. */
export async function startReceiver(file, { fixed }) {
  const memory = readJournal(file);
  const journal = openSync(file, "a", 0o600);
  ftruncateSync(journal, memory.whole);

  const answerTo = (id, event) => {
    if (fixed) return 200;
    if (event === "sponsorship") return 503;
    return isShaky(id) && !memory.refused.has(id) ? 503 : 200;
  };
  const server = createServer(async (request, response) => {
    const id = request.headers["x-message-id"];
    request.resume();
    await once(request, "end");
    const answer = answerTo(id, request.headers["x-event"]);
    // Remembered before it is answered: an answer nobody remembers could be given differently next time.
    appendFileSync(journal, `${answer}\t${id}\n`);
    if (answer === 200 && memory.accepted.has(id)) memory.twice += 1;
    (answer === 200 ? memory.accepted : memory.refused).add(id);
    response.writeHead(answer).end();
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    memory,
    close() {
      server.close();
      server.closeAllConnections();
      closeSync(journal);
    },
  };
}
