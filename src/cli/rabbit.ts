/** `dlo work --url`: the queue and letters of a RabbitMQ in place of the data directory. */
import { DloError } from "../core/index.ts";
import type { WorkerInfo } from "../http/index.ts";
import type { Source } from "./commands/work.ts";
import type { Setted } from "./config.ts";
import { managementOf } from "./doctor-source.ts";
import { deadLettersOf } from "./engine.ts";
import type { Io } from "./io.ts";
import { loggerTo } from "./log.ts";

/** The URL without what is secret in it, for people. */
function masked(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname === "/" ? "" : url.pathname}`;
}

/** The management address with the login of the AMQP one, where it has none of its own. */
function withLogin(management: string, amqp: URL): string {
  if (!URL.canParse(management)) return management;
  const at = new URL(management);
  if (at.username === "") {
    at.username = amqp.username;
    at.password = amqp.password;
  } else if (at.password !== "" && at.password !== "guest") {
    throw new DloError(
      "BAD_ARGUMENT",
      "--refuse-lossy holds a password; without one the login of DLO_URL or dlo.config.json is used",
    );
  }
  return at.href;
}

/** Reads the URL. A password on the command line would be seen by every process of the machine: refused there. */
export function rabbitUrl(setted: Setted): URL {
  let url: URL;
  try {
    url = new URL(setted.value);
  } catch {
    throw new DloError("BAD_ARGUMENT", `${setted.from} is no URL; expected amqp://host or amqps://host`);
  }
  if (url.protocol !== "amqp:" && url.protocol !== "amqps:") {
    throw new DloError(
      "BAD_ARGUMENT",
      `${setted.from} begins with ${url.protocol}; expected amqp: or amqps:`,
    );
  }
  if (setted.from === "--url" && url.password !== "" && url.password !== "guest") {
    throw new DloError("BAD_ARGUMENT", "--url holds a password; expected it in DLO_URL or dlo.config.json");
  }
  return url;
}

/**
 * Connects and sees to it that the queues a worker needs are there. With the address of a management API (null: the
 * guessed one) the consumer's start also minds a delivery limit set by a policy.
 */
export async function openRabbit(
  io: Io,
  setted: Setted,
  worker: WorkerInfo,
  management?: string | null,
): Promise<Source> {
  const url = rabbitUrl(setted);
  const { connectRabbitMQ } = await import("../engines/rabbitmq/index.ts");
  const managementUrl =
    management === null ? managementOf(url.href).url : management && withLogin(management, url);
  const rabbit = await connectRabbitMQ({
    url: url.href,
    name: "dlo work",
    logger: loggerTo(io),
    ...(managementUrl === undefined ? {} : { managementUrl }),
  });
  try {
    await rabbit.setUpTopology({ queue: worker.queue, deliveryLimit: "existing" });
    return {
      queue: rabbit.queue(worker.queue),
      deadLetters: rabbit.deadLetters(deadLettersOf(worker.queue)),
      where: masked(url),
      checkLettersKept: async (management) => {
        const at = management === undefined ? managementOf(url.href) : { url: withLogin(management, url) };
        const { checkLettersKept } = await import("../dev/index.ts");
        await checkLettersKept({
          queue: worker.queue,
          deadLetters: deadLettersOf(worker.queue),
          managementUrl: at.url,
          vhost: managementOf(url.href).vhost ?? "/",
          signal: io.signal,
        });
      },
      close: () => rabbit.close(),
    };
  } catch (error) {
    await rabbit.close();
    throw error;
  }
}
