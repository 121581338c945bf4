/** How a process spends the time between its work. */
export { stayAwake } from "./awake.ts";
