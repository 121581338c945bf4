// The handler: checks a webhook against its schema and delivers it by HTTP. It runs in a child process, so the worst
// it can do is end that. `dlo work --handler examples/webhooks/handler.mjs` runs this same file.
//
//   WEBHOOK_RECEIVER   where to deliver, http://127.0.0.1:PORT/
//   WEBHOOK_FIXED=1    the mended version: takes what older senders send, and no longer falls for the two bad ones
import { createRequire } from "node:module";
import Ajv from "ajv";
import addFormats from "ajv-formats";
import { PermanentError } from "dead-letter-office";

const schema = createRequire(import.meta.url)("@octokit/webhooks-schemas");
// Each of the 344 definitions as a schema of its own, so that what many refer to is compiled once, when first needed.
const ajv = new Ajv.default({ strict: false, validateSchema: false, inlineRefs: false });
addFormats.default(ajv);
const definitions = JSON.parse(JSON.stringify(schema.definitions).replaceAll('"#/definitions/', '"/'));
for (const [name, definition] of Object.entries(definitions)) ajv.addSchema(definition, `/${name}`);

const fixed = process.env.WEBHOOK_FIXED === "1";

/** The first thing that is wrong with a payload, or null. */
function complaint(event, payload) {
  const name = payload.action === undefined ? `${event}$event` : `${event}$${payload.action}`;
  if (!Object.hasOwn(definitions, name)) return `no schema for ${event} events of this kind`;
  const validate = ajv.getSchema(`/${name}`);
  if (validate(payload)) return null;
  const [error] = validate.errors;
  return `${error.instancePath || "payload"} ${error.message}`;
}

export default async function deliver(message) {
  const { event, payload } = message.body;
  if (payload.crash && !fixed) process.kill(process.pid, "SIGKILL");
  if (payload.filter && !fixed) new RegExp(payload.filter).test(payload.label);

  const problem = complaint(event, payload);
  // Trying again cannot help: the payload will be just as wrong. So it is moved aside at once.
  if (problem && !fixed) throw new PermanentError(problem);

  const response = await fetch(process.env.WEBHOOK_RECEIVER, {
    method: "POST",
    headers: { "content-type": "application/json", "x-message-id": message.id, "x-event": event },
    body: JSON.stringify(payload),
  });
  await response.arrayBuffer();
  // A receiver that is busy may well be back in a moment: an ordinary error, so the message is tried again.
  if (!response.ok) throw new Error(`the receiver answered ${response.status} to a ${event} event`);
}
