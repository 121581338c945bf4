// Dies before it is ready the first three times: counts its starts in the file named by the environment.
import { appendFileSync, readFileSync } from "node:fs";

appendFileSync(process.env.STARTS, "x");
if (readFileSync(process.env.STARTS, "utf8").length <= 3) process.kill(process.pid, "SIGKILL");
export default () => {};
